"""An asyncio loop whose time is the schedule's: what production awaits waits for events of the schedule.

What a task raises that nobody expects of it is a violation, at the step at which it happens: asyncio would keep it for
whoever asks, and nobody does.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from cluster.rpc.raft_transport.errors import StreamError
from tests.simulation.checker import Violation
from tests.simulation.world.rpc.lives import LIFE

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

EXPECTED = (grpc.aio.AioRpcError, grpc.aio.AbortError, StreamError, asyncio.CancelledError)
"""How calls and streams end."""
MOST_READY = 100_000
"""Callbacks of one moment; with more they call each other for ever."""


class VirtualLoop(asyncio.AbstractEventLoop):
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._failure: BaseException | None = None
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Whatever runs inside finds this loop, as a node's code does."""
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(None)

    def close(self) -> None:
        """The schedule is over: what was to begin in its last moment never will."""
        for task in self._tasks:
            coroutine = task.get_coro()
            if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
        self._tasks.clear()

    def time(self) -> float:
        return self._schedule.now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def run_ready(self) -> int:
        """All that was to be called soon, and what that calls soon, before anything else happens; how much it was."""
        count = 0
        while self._ready:
            self._run(self._ready.popleft())
            count += 1
            if count > MOST_READY:
                raise Violation(f"over {MOST_READY} callbacks in one moment")
        return count

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._schedule.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._schedule.at(when, partial(self._run, handle))
        return handle

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle._cancelled:  # type: ignore[attr-defined]
            handle._run()
        if self._failure is not None:
            self.judge()

    def judge(self) -> None:
        """Raises what was raised where nobody hears it."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def fail(self, failure: BaseException) -> None:
        self._failure = self._failure or failure

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        life = LIFE.get()
        if life is not None:
            life.began(task)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A verdict is one whoever asks for the task's result."""
        del self._tasks[task]
        if not task.cancelled() and task._exception is not None and isinstance(task._exception, Violation):  # type: ignore[attr-defined]
            self.fail(task._exception)  # type: ignore[attr-defined]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Violation):
            self.fail(error)
        elif not isinstance(error, EXPECTED):  # a callback's, or of a task that nobody asked
            self.fail(Violation(f"{context.get('message')}: {error!r}"))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays in the schedule, and does nothing."""
