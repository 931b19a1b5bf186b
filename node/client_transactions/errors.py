"""Errors of transactions that cannot be begun, continued or committed."""

from __future__ import annotations

from typing import Literal

Code = Literal[
    "unavailable",  # nobody can decide now: try again
    "fenced",  # another holder has the transactional id
    "ended",  # it was aborted, and why
    "timeout",  # it was aborted, since its time was over
    "invalid",
    "too-many",
]


class TransactionFailed(Exception):
    """Raised when a transaction cannot begin, go on or commit. `decided`: nothing of it counts, now or ever. False:
    that is unknown, or nothing was decided."""

    def __init__(self, code: Code, detail: str, *, decided: bool = False) -> None:
        super().__init__(detail)
        self.code: Code = code
        self.detail = detail
        self.decided = decided
