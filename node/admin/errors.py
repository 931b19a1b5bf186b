"""How an administrative request fails, whichever part of the node carries it out."""

from __future__ import annotations


class AdminRequestFailed(Exception):
    """An administrative request failed. `code` is one of `holdfast.protocol.STATUS_OF_ERROR`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class CannotRepair(Exception):
    """A replica must not be given up: the message says why, and what to do first."""
