"""Errors that a program's callback raises: its own fault, which it is told of, and which harms nothing else.

The rule: they go to the event loop's exception handler, and neither end a connection nor keep an event from its
owner. A callback may raise `CancelledError`, too, by asking for the result of something that was cancelled. One that
wants the program to end (`sys.exit`) ends the event loop, as it would without us, but in a turn of its own: what is
being settled when it says so is settled to the end.
"""

from __future__ import annotations

import asyncio

ENDS = (SystemExit, KeyboardInterrupt)
"""Exceptions that end event loops."""

FAULTS = (Exception, asyncio.CancelledError, *ENDS)
"""Exceptions of a callback that is called, not awaited."""


def report(whose: str, problem: BaseException) -> None:
    """Report what a callback raised. `whose`: the callback, as in "of a delivery"."""
    loop = asyncio.get_running_loop()
    if isinstance(problem, ENDS):
        loop.call_soon(_raise, problem)
    else:
        loop.call_exception_handler({"message": f"a callback {whose} failed", "exception": problem})


def _raise(problem: BaseException) -> None:
    raise problem
