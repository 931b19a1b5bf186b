"""What a client holds is let go once, to the end, whoever stops waiting for it meanwhile.

Problem: `close` is awaited by a task of the program's, which may be cancelled in the middle of it, for example by a
timeout. What was half let go then would stay: nobody else knows of it, and a second `close` finds the client closed.
Rules never broken:
 - the work is begun once, and goes on when those who wait for it are cancelled;
 - whoever asks for it returns when it has ended, however late it asks;
 - what it raises is raised once, to the first who is there to hear of it.
Rejected: a lock around the work. Who is cancelled within it would still leave it half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Release:
    """The work of letting go."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._work, self._name = work, name
        self._task: asyncio.Task[None] | None = None
        self._told = False

    async def done(self) -> None:
        """Return when it has ended; it begins with the first who asks."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), name=self._name)
        await asyncio.wait({self._task})  # which leaves it alone when it is cancelled itself
        if not self._told:
            self._told = True
            self._task.result()
