"""Release of what a client holds: the work runs once, to the end, even if its caller is cancelled.

Problem: `close` is awaited by a task of the program's, which may be cancelled in the middle of it, for example by a
timeout. The rest would never be released: nobody else knows of it, and a second `close` finds the client closed.
Rules never broken:
 - the work is begun once, and goes on when its callers are cancelled;
 - every caller returns when it has ended, however late it calls;
 - what it raises is raised once, to the first caller that still waits.
Rejected: a lock around the work. A caller that is cancelled within it would still leave it half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class CloseOnce:
    """The work of letting go."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._work, self._name = work, name
        self._task: asyncio.Task[None] | None = None
        self._told = False

    async def done(self) -> None:
        """Return when the work has ended; it begins with the first call."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), name=self._name)
        await asyncio.wait({self._task})  # which leaves it alone when it is cancelled itself
        if not self._told:
            self._told = True
            self._task.result()


def heard(task: asyncio.Future[Any]) -> None:
    """Take a failure as known, so that asyncio does not log it if all callers that waited have given up before it."""
    if not task.cancelled():
        task.exception()
