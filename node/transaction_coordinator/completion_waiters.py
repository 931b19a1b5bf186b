"""Waits for a step of a transaction, by its pair (producer id, epoch), or of a group, by (writer, batch)."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

K = TypeVar("K")


class CompletionWaiters(Generic[K]):
    def __init__(self) -> None:
        self._waiting: dict[K, list[asyncio.Future[bool]]] = {}

    async def wait(self, key: K, within_s: float) -> bool:
        """Wait for the step. Returns whether it was done in time."""
        waiting = self._waiting.setdefault(key, [])
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.append(told)
        try:
            async with asyncio.timeout(within_s):
                return await told
        except TimeoutError:
            return False
        finally:
            if told in waiting:
                waiting.remove(told)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    def tell(self, key: K) -> None:
        """Wake the waiters: the step is done. May be called inside a turn."""
        _answer(self._waiting.pop(key, []), done=True)

    def awaited(self) -> list[K]:
        return list(self._waiting)

    def give_up(self) -> None:
        """Wake all waiters with False: this node cannot tell any more."""
        all_waiting, self._waiting = self._waiting, {}
        for waiting in all_waiting.values():
            _answer(waiting, done=False)


def _answer(waiting: list[asyncio.Future[bool]], *, done: bool) -> None:
    for told in waiting:
        if not told.done():
            told.set_result(done)
