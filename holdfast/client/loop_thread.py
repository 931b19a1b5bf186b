"""An event loop in a thread of its own, for programs that have none.

Problem: a synchronous program must not have to know that its client is not.
Rules never broken: every call ends with the outcome of what it asked for, or takes it back when it is interrupted; the
thread is there from the first use to `close`, and no longer; a call from the loop's own thread, which could never
return, is refused; so is one in a process that was forked, where there is no thread. A callback of the program's that
says `sys.exit` ends the thread, not the program: waiting callers are told.
Rejected: one loop for all clients of a process. Closing one would be a matter of counting the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import uvloop

from holdfast.client.callbacks import ENDS
from holdfast.client.errors import ClosedError, InvalidOperationError
from holdfast.client.one_process import OneProcess

T = TypeVar("T")


class LoopThread(OneProcess):
    """The thread and its loop."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        # A daemon: a program that forgets to close its clients can end all the same.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._lock = threading.Lock()
        self._closed = False
        self._ended_by: BaseException | None = None
        self._process = os.getpid()
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except ENDS as problem:
            with self._lock:  # nothing is begun there from now on
                self._ended_by, self._closed = problem, True
            self._cancel_all()
        try:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _cancel_all(self) -> None:
        """Tell all waiting callers, whatever other callbacks say meanwhile."""
        while True:
            with contextlib.suppress(*ENDS, asyncio.CancelledError):  # `close` may do the same, and cancel this
                self._loop.run_until_complete(_cancel_others())
                return

    @property
    def is_elsewhere(self) -> bool:
        """True if this process was forked from the one whose thread it is."""
        return os.getpid() != self._process

    def check_thread(self) -> None:
        if self.is_elsewhere:
            raise InvalidOperationError(
                "the client belongs to the process that this one was forked from",
                advice="make a client in this process, after the fork",
            )
        if threading.current_thread() is self._thread:
            raise InvalidOperationError(
                "a callback of the client must not call it: it runs on the client's own thread",
                advice="hand the work to another thread, for example by a queue",
            )

    def run(self, make: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """Run a coroutine there and return what it does. A timeout gives up waiting, and takes the call back."""
        self.check_thread()
        future = self.start(make)
        try:
            return future.result(timeout_s)
        except CancelledError:
            if self._closed:  # by another thread, or by a callback, while this one waited
                raise self._closed_error() from self._ended_by
            raise
        except BaseException:
            future.cancel()  # Ctrl-C, or the timeout; nothing if the coroutine itself raised
            raise

    def start(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Have a coroutine run there, and go on meanwhile; its outcome is the future's."""
        with self._lock:
            if self._closed:
                raise self._closed_error() from self._ended_by
            return asyncio.run_coroutine_threadsafe(make(), self._loop)

    def _closed_error(self) -> ClosedError:
        if self._ended_by is None:
            return ClosedError("the client was closed")
        advice = "let the callback tell another thread, for example by a queue"
        return ClosedError(f"the client's thread was ended by a callback: {self._ended_by!r}", advice=advice)

    def call(self, function: Callable[[], T]) -> T:
        """Call something there that does not wait."""

        async def work() -> T:
            return function()

        return self.run(work)

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Have something called there, and do not wait for it. Nothing, once the thread has ended."""
        with self._lock:
            if not self._closed:
                self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """End the thread; what was still running there is cancelled. Idempotent. In a process that was forked there is
        nothing to end, and the sockets are the other one's."""
        if self.is_elsewhere:
            return
        self.check_thread()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            cancelled = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        try:
            with contextlib.suppress(CancelledError):  # by the thread, which has done it itself
                cancelled.result()
        finally:
            with contextlib.suppress(RuntimeError):  # a callback has ended the loop by now, and the thread closed it
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
