"""What every synchronous client is: one of the others, on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from holdfast.client.errors import ClosedError
from holdfast.client.loop_thread import LoopThread

C = TypeVar("C")
T = TypeVar("T")


class Twin(Generic[C]):
    """A client on a thread of its own."""

    def __init__(self, make: Callable[[], C], what: str) -> None:
        self._background = LoopThread(f"holdfast {what}")
        try:
            self._client = self._background.call(make)
        except BaseException:
            self._background.close()
            raise

    def _run(self, call: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        return self._background.run(lambda: call(self._client))

    def _call(self, call: Callable[[C], T]) -> T:
        return self._background.call(lambda: call(self._client))

    def _close(self, call: Callable[[C], Coroutine[Any, Any, None]]) -> None:
        """The last call; then the thread ends, whatever came of it. Idempotent."""
        if self._background.is_elsewhere:
            return
        self._background.check_thread()
        try:
            self._run(call)
        except ClosedError:
            pass
        finally:
            self._background.close()
