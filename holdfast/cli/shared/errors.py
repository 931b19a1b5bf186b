"""Errors of the command line: one line for a person, a number for a script."""

from __future__ import annotations

# Exit statuses, stable: 0 done, 1 the thing itself failed, 2 the command was wrong (click's own), 3 no such log or
# node, 4 no server could be reached, 5 it took too long, 130 interrupted.
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_UNREACHABLE = 4
EXIT_TIMEOUT = 5
EXIT_INTERRUPTED = 130


class CliError(Exception):
    """Something the user should read: what is wrong, and what to do about it."""

    def __init__(self, message: str, *, advice: str = "", exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.advice, self.exit_code = advice, exit_code
