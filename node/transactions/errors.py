"""Why a transaction cannot be begun, gone on with, or committed."""

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
    """`decided`: nothing of the transaction counts, now or ever. False: nobody knows, or nothing was decided."""

    def __init__(self, code: Code, detail: str, *, decided: bool = False) -> None:
        super().__init__(detail)
        self.code: Code = code
        self.detail = detail
        self.decided = decided
