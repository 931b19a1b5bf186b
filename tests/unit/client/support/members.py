"""Members of a group that a test empties: what they got, and what they heard."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from holdfast.client import ConsumerClient, Event, Start
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.peer import WAIT_S, eventually


async def filled(nodes: Nodes, partitions: int = 4, count: int = 100, log: str | None = None) -> str:
    name = log or await nodes.log(partitions)
    async with nodes.producer(name) as producer:
        for partition in range(partitions):
            await producer.send_batch([Event(b"%d" % number) for number in range(count)], partition=str(partition))
    return name


class TinyMember:
    """A consumer that a task empties; what it got is noted, with the claims under which it came."""

    def __init__(self, nodes: Nodes, log: str, **more: Any) -> None:
        self.got: dict[str, list[int]] = defaultdict(list)
        self.heard: list[tuple[str, str]] = []
        more = {"start": Start.earliest(), "group": "g"} | more
        self.consumer = ConsumerClient(
            nodes.servers,
            log,
            on_assigned=lambda partition: self.heard.append(("assigned", partition)),
            on_revoked=lambda partition: self.heard.append(("revoked", partition)),
            **more,
        )
        self.error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> TinyMember:
        await self.consumer.start()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.close()
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for events in self.consumer.batches():
                self.got[events[0].partition] += [int(event.offset, 16) for event in events]
        except Exception as error:  # noqa: BLE001 - the test asks for it
            self.error = error

    @property
    def count(self) -> int:
        return sum(map(len, self.got.values()))

    @property
    def partitions(self) -> set[str]:
        return set(self.consumer.assignment)


async def share(members: list[TinyMember], *wanted: int, within_s: float = WAIT_S) -> None:
    def fair() -> bool:
        owned = [partition for member in members for partition in member.partitions]
        return sorted(len(member.partitions) for member in members) == sorted(wanted) and len(set(owned)) == len(owned)

    await eventually(fair, within_s)
