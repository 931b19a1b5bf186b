"""One bell for everything that may change where a link belongs: logs, partitions, leaders, addresses.

The rule: ringing is cheap and may happen inside a turn; subscribers are told once, in the next pass of the event loop,
however often it rang. A caller that waits for a state says which state and for how long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RoutingEvents:
    def __init__(self) -> None:
        self._subscribers: list[Callable[[], None]] = []
        self._scheduled = False
        self._next: asyncio.Event = asyncio.Event()

    def ring(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._tell)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after changes; it must not raise. The returned function ends that."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback) if callback in self._subscribers else None

    async def wait(self, timeout_s: float) -> None:
        """Wait for the next change, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):  # `wait_for` forgets that it was cancelled when a change comes then
                await self._next.wait()
        except TimeoutError:
            return

    async def until(self, state: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `state` is true; it is looked at after each change. Returns whether that happened in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not state():
            left_s = deadline - loop.time()
            if left_s <= 0:
                return False
            await self.wait(left_s)
        return True

    def _tell(self) -> None:
        self._scheduled = False
        waiting, self._next = self._next, asyncio.Event()
        waiting.set()
        for callback in list(self._subscribers):
            callback()
