"""Failures of administrative requests, in all parts of the node."""

from __future__ import annotations


class AdminRequestFailed(Exception):
    """Raised when an administrative request failed. `code` is one of `holdfast.protocol.STATUS_OF_ERROR`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class CannotRepair(Exception):
    """Raised when a replica must not be given up: the message says why, and what to do first."""
