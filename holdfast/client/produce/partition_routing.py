"""The partitions of a producer's log: which of them an event goes to, and the sender of each.

Rule never broken: events of one key, and events for one partition, go over one sender.
"""

from __future__ import annotations

import asyncio

from holdfast.amqp.key_partitioner import partition_index
from holdfast.client.errors import ConfigurationError, NotFoundError
from holdfast.client.events import check_key
from holdfast.client.options import PartitionPublishingOptions, ProducerOptions
from holdfast.client.produce.accumulator import Accumulator
from holdfast.client.produce.partition_sender import PartitionSender, ProducerStats
from holdfast.client.produce.producer_identity import ProducerIdentity
from holdfast.client.transport.log_info import read_info
from holdfast.client.transport.network import Network

ROUND_ROBIN_RUN = 64  # events without key and partition go to the same one: batches stay whole, the load spreads


class Partitions:
    def __init__(self, network: Network, log: str, options: ProducerOptions, stats: ProducerStats) -> None:
        self.names: list[str] = []
        self.accumulator = Accumulator(
            options,
            latency_target_s=options.latency_target_s,
            stuck=lambda since_s: [sender.stuck(since_s) for sender in self._senders.values()],
        )
        self._network, self._log, self._options, self._stats = network, log, options, stats
        self._senders: dict[str, PartitionSender] = {}
        self._turn = 0

    async def close(self) -> None:
        """Close the senders; those who wait are told."""
        self.accumulator.close()
        await asyncio.gather(*(sender.close() for sender in self._senders.values()))
        await self._network.close()

    # ---------------------------------------------------------------- which

    async def learn(self) -> None:
        info = await read_info(self._network, self._log, timeout_s=self._options.delivery_timeout_s)
        self.names = [entry.partition for entry in info]
        for partition in self._options.partition_options:
            self.check(partition)

    def check(self, partition: str) -> None:
        """Raise if it is none of the log's."""
        if partition in self.names:
            return
        if not isinstance(partition, str):
            raise ConfigurationError(f"partitions are named by strings, not {partition!r}")
        if not self.names:
            raise ConfigurationError("the producer was not started", advice="use `async with`, or await start()")
        known = ", ".join(self.names[:20])
        raise NotFoundError(f"log {self._log!r} has no partition {partition!r} (it has {known})")

    def place_for(self, key: str | None, partition: str | None) -> str:
        """The partition that is named, that of a key, or the one whose turn it is."""
        if partition is not None:
            if partition not in self._senders:
                self.check(partition)
            return partition
        if not self.names:
            self.check("")
        if key is not None:
            check_key(key)
            return self.names[partition_index(key, len(self.names))]
        self._turn += 1
        return self.names[((self._turn - 1) // ROUND_ROBIN_RUN) % len(self.names)]

    def turn_passes(self) -> None:
        """The partition whose turn it was has got enough: the next event without a place goes to the next one."""
        self._turn += -self._turn % ROUND_ROBIN_RUN

    def sender(self, partition: str) -> PartitionSender:
        """The one of this partition, which is one of the log's."""
        sender = self._senders.get(partition)
        if sender is not None:
            return sender
        options, identity = self._options, None
        if options.idempotent:
            own = options.partition_options.get(partition, PartitionPublishingOptions())
            identity = ProducerIdentity(own, renews=not options.partition_options)
        sender = self._senders[partition] = PartitionSender(
            self._network, self._log, partition,
            identity=identity, options=options, stats=self._stats, accumulator=self.accumulator,
        )  # fmt: skip
        return sender
