"""How many attaches of one connection are under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from node.listener.attach.attach_queue import UNDER_WAY, WAITING, AttachQueue
from node.listener.limits.fair_scheduling import Turns


class Link:
    alive = True


class Connection:
    """Attaches that take until somebody lets them go on."""

    def __init__(self) -> None:
        self.queue = AttachQueue(Turns(), lambda: None)
        self.under_way: list[asyncio.Future[None]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def attach(self, count: int) -> None:
        for _ in range(count):
            self.queue.add(Link(), self._work, self._start)  # type: ignore[arg-type]

    async def _work(self) -> None:
        self.under_way.append(asyncio.get_running_loop().create_future())
        await self.under_way[-1]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def answer(self) -> int:
        """How many are under way after one more of them was answered."""
        self.under_way.pop(0).set_result(None)
        for _ in range(5):  # turns of the loop: the end of one task, the start of the next
            await asyncio.sleep(0)
        return len(self.under_way)


async def test_a_flood_is_taken_one_by_one_until_nothing_of_it_waits() -> None:
    peer = Connection()
    peer.attach(UNDER_WAY + WAITING)
    await asyncio.sleep(0)
    assert len(peer.under_way) == UNDER_WAY  # they came before it was known for a flood
    assert peer.queue.is_full
    beside = [await peer.answer() for _ in range(UNDER_WAY + WAITING)]
    assert beside == [3, 2, 1] + [1] * WAITING + [0]
    peer.attach(UNDER_WAY + 1)
    await asyncio.sleep(0)
    assert len(peer.under_way) == UNDER_WAY  # it is over
    while peer.under_way:  # nothing is left for a loop that ends
        await peer.answer()
    assert all(task.done() for task in peer.tasks)


async def test_who_attaches_less_has_several_under_way_to_the_last() -> None:
    peer = Connection()
    peer.attach(UNDER_WAY + WAITING - 1)
    await asyncio.sleep(0)
    beside = [await peer.answer() for _ in range(UNDER_WAY + WAITING - 1)]
    assert beside == [UNDER_WAY] * (WAITING - 1) + [3, 2, 1, 0]
