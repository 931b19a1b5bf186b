"""Three real nodes as the tests of a program see them: addresses and logs."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.client import ConsumerClient, ConsumerOptions, PartitionPublishingOptions, ProducerClient, Start
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import eventually

_numbers = itertools.count(1)


class Nodes:
    """A cluster as programs see it: addresses, and logs."""

    def __init__(self, cluster: ListenerCluster) -> None:
        self.cluster = cluster
        self._made: dict[str, str] = {}  # log -> test

    @property
    def servers(self) -> list[str]:
        return [f"127.0.0.1:{self.cluster.ports[number]}" for number in self.cluster.nodes]

    async def log(self, partitions: int = 2) -> str:
        """A new one, ready to be used. Those of earlier tests go: each of their groups has heartbeats for ever."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        for name in [name for name, maker in self._made.items() if maker != test]:
            del self._made[name]
            await self.cluster.delete(name)
        name = f"log-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
        await self.cluster.create(name, partitions)
        self._made[name] = test
        return name

    def producer(
        self, log: str, options: Mapping[str, PartitionPublishingOptions] | None = None, **more: Any
    ) -> ProducerClient:
        """An idempotent one."""
        return ProducerClient(self.servers, log, idempotent=True, partition_options=options, **more)

    async def bodies(self, log: str, partition: str = "0") -> list[bytes]:
        """What is stored, read by a consumer."""
        options = ConsumerOptions(until_end=True)
        start = Start.earliest()
        async with ConsumerClient(self.servers, log, start=start, partitions=[partition], options=options) as consumer:
            return [event.body async for event in consumer]

    async def until(self, condition: Callable[[], object]) -> None:
        await eventually(condition)
