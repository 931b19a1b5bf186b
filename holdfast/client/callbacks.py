"""What a program's callback raises is the program's own fault: it is told of it, and nobody else pays.

The rule: it goes to the event loop's exception handler, and neither ends a connection nor keeps an event from its
owner. A callback may raise `CancelledError`, too, by asking for the result of something that was cancelled.
"""

from __future__ import annotations

import asyncio

FAULTS = (Exception, asyncio.CancelledError)
"""Of a callback that is called, not awaited."""


def report(whose: str, problem: BaseException) -> None:
    """`whose`: the callback, as in "of a delivery"."""
    context = {"message": f"a callback {whose} failed", "exception": problem}
    asyncio.get_running_loop().call_exception_handler(context)
