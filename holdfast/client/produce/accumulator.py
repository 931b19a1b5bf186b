"""What a producer has taken in and not finished: the partition senders it travels on, the room that is left, what
failed.

Rules never broken:
 - every event that is taken in is counted until its outcome is known, and then exactly once not any more;
 - memory is bounded: above a bound there is no room, until half of it is free again;
 - what is taken in during one turn of the loop, or while it lingers, goes out together, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.amqp.partition_key import partition_index
from holdfast.batches.codec import Codec
from holdfast.client.errors import BufferFullError, ConfigurationError, NotFoundError
from holdfast.client.events import check_key
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.delivery import Delivery
from holdfast.client.produce.idempotent.partition_publisher import PartitionPublisher
from holdfast.client.produce.idempotent.partition_queue import PartitionQueue
from holdfast.client.produce.idempotent.producer_identity import PartitionPublishingOptions
from holdfast.client.produce.partition_sender import PartitionSender, ProducerStats
from holdfast.client.transport.log_info import read_info
from holdfast.client.transport.network import Network

# Events without key and partition stay with one partition for so many events: batches stay whole, the load spreads.
ROUND_ROBIN_RUN = 64
# Failures kept for the next `flush`; more are only counted.
MAX_FAILURES_KEPT = 100
# Bookkeeping per event besides its bytes, so that a million empty events are not free.
EVENT_OVERHEAD_BYTES = 200


class Accumulator:
    def __init__(self, network: Network, log: str, options: ProducerOptions, stats: ProducerStats) -> None:
        self.partitions: list[str] = []
        # Called with a partition (None: the node chose it) and the number of its events just confirmed.
        self.on_confirmed: Callable[[str | None, int], None] | None = None
        self.events = 0  # waiting or unconfirmed
        self.this_turn = 0  # taken in since something went out last
        self._bytes = 0
        self._publishing = 0  # batches of an idempotent producer, which are in their callers' hands
        self._network, self._log, self._options, self._stats = network, log, options, stats
        self._partition_senders: dict[str | None, PartitionSender | PartitionQueue] = {}
        self._staged: dict[PartitionSender | PartitionQueue, list[Delivery]] = {}
        self.staged_bytes = 0  # the same in bytes
        self._pumping: asyncio.Handle | None = None
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._room.set()
        self._failures: list[Delivery] = []
        self._failed = 0
        self._turn = 0
        self._loop = asyncio.get_running_loop()

    # ---------------------------------------------------------------- in

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    def check_room(self) -> None:
        if not self._room.is_set():
            raise BufferFullError(f"{self.events} events ({self._bytes} bytes) are unconfirmed")

    async def wait_for_room(self) -> None:
        while not self._room.is_set():
            await self._room.wait()

    def take(self, partition_sender: PartitionSender | PartitionQueue, delivery: Delivery) -> None:
        """One event."""
        staged = self._staged.get(partition_sender)
        if staged is None:
            self._staged[partition_sender] = [delivery]
        else:
            staged.append(delivery)
        self._count(1, len(delivery.content))

    def take_all(self, partition_sender: PartitionSender | PartitionQueue, deliveries: list[Delivery]) -> None:
        """Several, in this order."""
        self._staged.setdefault(partition_sender, []).extend(deliveries)
        self._count(len(deliveries), sum(len(delivery.content) for delivery in deliveries))

    def _count(self, events: int, size: int) -> None:
        options = self._options
        self.events += events
        self._bytes += size + events * EVENT_OVERHEAD_BYTES
        if self.events >= options.max_buffered_events or self._bytes >= options.max_buffered_bytes:
            self._room.clear()
        self._idle.clear()
        self.this_turn += events
        self.staged_bytes += size
        if self._pumping is None:
            linger_s = options.linger_s
            self._pumping = self._loop.call_later(linger_s, self.pump) if linger_s else self._loop.call_soon(self.pump)
        elif options.linger_s and self.staged_bytes >= options.linger_bytes:
            self._pumping.cancel()
            self._pumping = self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """What was taken in goes out."""
        if self._pumping is not None:
            self._pumping.cancel()
            self._pumping = None
        self.this_turn = self.staged_bytes = 0
        staged, self._staged = self._staged, {}
        for partition_sender, deliveries in staged.items():
            partition_sender.put(deliveries)
            partition_sender.pump()

    def publishing(self, more: int) -> None:
        """So many batches more (or fewer) are on their way."""
        self._publishing += more
        if self._publishing:
            self._idle.clear()
        self._idle_again()

    # ---------------------------------------------------------------- out

    async def finished(self) -> None:
        """Until nothing is here any more."""
        self.pump()
        await self._idle.wait()

    def raise_failures(self) -> None:
        """Raise the first failure since the last call that nobody has asked for."""
        failures, count = self._failures, self._failed
        self._failures, self._failed = [], 0
        unheard = [delivery.error for delivery in failures if not delivery.claimed]
        count -= len(failures) - len(unheard)
        if unheard and unheard[0] is not None:
            if count > 1:
                unheard[0].add_note(f"{count} events failed; this is the first failure")
            raise unheard[0]

    async def close(self) -> None:
        """Nothing goes out any more; those who wait are told. The network is closed in the middle of it, so that
        nobody waits for an answer."""
        self._room.set()
        self.pump()
        partition_senders = list(self._partition_senders.values())
        await asyncio.gather(*(partition_sender.close() for partition_sender in partition_senders))
        await self._network.close()
        await asyncio.gather(
            *(
                partition_sender.ended()
                for partition_sender in partition_senders
                if isinstance(partition_sender, PartitionQueue)
            )
        )

    def _on_settled(self, partition: str | None, events: int, size: int, confirmed: bool) -> None:
        self.events -= events
        self._bytes -= size + events * EVENT_OVERHEAD_BYTES
        assert self.events >= 0, "an event was settled twice"
        if not self._room.is_set():
            # Half empty, not one place: a sender that wakes up should find work for a whole batch.
            options = self._options
            if self.events <= options.max_buffered_events // 2 and self._bytes <= options.max_buffered_bytes // 2:
                self._room.set()
        self._idle_again()
        if confirmed:
            self._on_confirmed(partition, events)

    def _on_confirmed(self, partition: str | None, events: int) -> None:
        if self.on_confirmed is not None:
            self.on_confirmed(partition, events)

    def _idle_again(self) -> None:
        if self.events == 0 and self._publishing == 0:
            self._idle.set()

    def _on_failure(self, delivery: Delivery) -> None:
        self._failed += 1
        if len(self._failures) < MAX_FAILURES_KEPT:
            self._failures.append(delivery)

    # ---------------------------------------------------------------- partition senders

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

    def partition_sender_for(self, key: str | None, partition: str | None) -> PartitionSender | PartitionQueue:
        """The partition sender to where `place_for` says."""
        name = self.place_for(key, partition)
        partition_sender = self._partition_senders.get(name)
        return partition_sender if partition_sender is not None else self._new_way(name)

    def line_for(self, partition: str) -> PartitionQueue:
        """Of an idempotent producer."""
        line = self._partition_senders.get(partition)
        if line is None:
            line = self._new_way(partition)
        assert isinstance(line, PartitionQueue)
        return line

    def _new_way(self, partition: str | None) -> PartitionSender | PartitionQueue:
        if partition is not None:
            self.check_partition(partition)
        options = self._options
        partition_sender: PartitionSender | PartitionQueue
        if options.idempotent:
            assert partition is not None, "an idempotent producer is told the partition"
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
            partition_sender = self._partition_senders[partition] = PartitionQueue(
                publisher,
                stats=self._stats,
                settled=self._on_settled,
                confirmed=self._on_confirmed,
                unclaimed=self._on_failure,
            )
            return partition_sender
        partition_sender = self._partition_senders[partition] = PartitionSender(
            self._network,
            self._log,
            partition,
            window=options.window,
            codec=Codec.named(options.compression),
            delivery_timeout_s=options.delivery_timeout_s,
            stats=self._stats,
            settled=self._on_settled,
            unclaimed=self._on_failure,
        )
        return partition_sender
