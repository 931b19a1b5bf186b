"""What a life of a simulated node has begun on the loop, so that it ends with the node.

On one loop the tasks of all nodes run side by side; those of a node that has crashed must not take another step. Which
life a task belongs to is known by the context in which it was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world.nodes import SimNode


class NodeCrashed(asyncio.CancelledError):
    """The node ends in the middle of what it does. To whoever runs, it is as being cancelled."""


class Life:
    def __init__(self, node: SimNode) -> None:
        self.node = node
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def began(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is begun inside belongs to this life."""
        token = LIFE.set(self)
        try:
            yield
        finally:
            LIFE.reset(token)


LIFE: ContextVar[Life | None] = ContextVar("life", default=None)
