"""The routes of a producer into its log: which partition an event goes to, and what carries it there.

Rule never broken: events of one key, and events for one partition, take one route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from holdfast.amqp.partition_key import partition_index
from holdfast.client.errors import ConfigurationError, NotFoundError
from holdfast.client.events import check_key
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.idempotent.partition_publisher import PartitionPublisher
from holdfast.client.produce.idempotent.partition_queue import PartitionQueue
from holdfast.client.produce.idempotent.producer_identity import PartitionPublishingOptions
from holdfast.client.produce.partition_sender import PartitionSender, ProducerStats
from holdfast.client.transport.log_info import read_info
from holdfast.client.transport.network import Network
from holdfast.records.codec import Codec

# Events without key and partition stay with one partition for so many events: batches stay whole, the load spreads.
ROUND_ROBIN_RUN = 64

Route = PartitionSender | PartitionQueue


class Routes:
    """One for each partition that was used; the only one, if the node chooses."""

    def __init__(
        self,
        network: Network,
        log: str,
        options: ProducerOptions,
        stats: ProducerStats,
        *,
        settled: Callable[[str | None, int, int, bool], None],
        confirmed: Callable[[str | None, int], None],
    ) -> None:
        """Callbacks: see `PartitionQueue`."""
        self.partitions: list[str] = []
        self._network, self._log, self._options, self._stats = network, log, options, stats
        self._settled, self._confirmed = settled, confirmed
        self._routes: dict[str | None, Route] = {}
        self._turn = 0

    async def close(self) -> None:
        """Those who wait are told. The network is to be closed then, before `ended`."""
        await asyncio.gather(*(route.close() for route in self._routes.values()))

    async def ended(self) -> None:
        """When nobody is at work here any more."""
        await asyncio.gather(*(route.ended() for route in self._routes.values() if isinstance(route, PartitionQueue)))

    def stuck(self, since_s: float) -> Iterator[tuple[int, int]]:
        """Events and bytes that are held by each route without progress since then."""
        return (route.outstanding() for route in self._routes.values() if route.waits_since(since_s))

    def shortest_round_trip_s(self) -> float:
        """That was seen on any of them; 0 while there was none."""
        shortest_s = (route.round_trips.shortest_s for route in self._routes.values())
        return min(filter(None, shortest_s), default=0.0)

    def latencies_s(self, since_s: float) -> list[float]:
        """Of transfers on any of them whose events were taken in since then, and that were answered."""
        return [seconds for route in self._routes.values() for seconds in route.round_trips.latencies_s(since_s)]

    # ---------------------------------------------------------------- partitions

    async def learn_partitions(self) -> None:
        info = await read_info(self._network, self._log, timeout_s=self._options.delivery_timeout_s)
        self.partitions = [entry.partition for entry in info]
        for partition in self._options.partition_options:
            self.check_partition(partition)

    def check_partition(self, partition: str) -> None:
        if partition in self.partitions:
            return
        if not isinstance(partition, str):
            raise ConfigurationError(f"partitions are named by strings, not {partition!r}")
        if not self.partitions:
            raise ConfigurationError("the producer was not started", advice="use `async with`, or await start()")
        known = ", ".join(self.partitions[:20])
        raise NotFoundError(f"log {self._log!r} has no partition {partition!r} (it has {known})")

    def place_for(self, key: str | None, partition: str | None) -> str | None:
        """The partition that is named, that of a key, or the one whose turn it is. None: the node chooses."""
        if partition is not None:
            return partition
        if self._options.route_by == "node":
            return None
        if not self.partitions:
            raise ConfigurationError("the producer was not started", advice="use `async with`, or await start()")
        if key is not None:
            check_key(key)
            return self.partitions[partition_index(key, len(self.partitions))]
        self._turn += 1
        return self.partitions[((self._turn - 1) // ROUND_ROBIN_RUN) % len(self.partitions)]

    def turn_passes(self) -> None:
        """The partition whose turn it was has got enough: the next event without a place goes to the next one."""
        self._turn += -self._turn % ROUND_ROBIN_RUN

    def route_for(self, key: str | None, partition: str | None) -> Route:
        """The one to where `place_for` says."""
        name = partition if partition is not None else self.place_for(key, None)
        route = self._routes.get(name)
        return route if route is not None else self._new_route(name)

    def line_for(self, partition: str) -> PartitionQueue:
        """Of an idempotent producer."""
        line = self._routes.get(partition)
        if line is None:
            line = self._new_route(partition)
        assert isinstance(line, PartitionQueue)
        return line

    def _new_route(self, partition: str | None) -> Route:
        if partition is not None:
            self.check_partition(partition)
        route = self._queue(partition) if self._options.idempotent else self._sender(partition)
        self._routes[partition] = route
        return route

    def _sender(self, partition: str | None) -> PartitionSender:
        options = self._options
        return PartitionSender(
            self._network,
            self._log,
            partition,
            window=options.window,
            codec=Codec.named(options.compression),
            delivery_timeout_s=options.delivery_timeout_s,
            stats=self._stats,
            settled=self._settled,
        )

    def _queue(self, partition: str | None) -> PartitionQueue:
        assert partition is not None, "an idempotent producer is told the partition"
        options = self._options
        publisher = PartitionPublisher(
            self._network,
            self._log,
            partition,
            options.partition_options.get(partition, PartitionPublishingOptions()),
            window=options.window,
            codec=Codec.named(options.compression),
            delivery_timeout_s=options.delivery_timeout_s,
            stats=self._stats,
        )
        return PartitionQueue(
            publisher,
            stats=self._stats,
            settled=self._settled,
            confirmed=self._confirmed,
        )
