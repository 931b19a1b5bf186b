"""The producer: events in, confirmed events out, in order per key, through failures.

Problem: a confirmed event must be in the log whatever dies meanwhile; the price of asking for each confirmation alone
would be a round trip per event.
Rules never broken:
 - what `flush` or `close` returned without an error for is stored; what failed raises, exactly once;
 - memory is bounded: `send` waits when the buffer is full, `send_nowait` raises;
 - events of one key stay in order (see `lane`); delivery is at least once: copies after a failover are counted. With
   `idempotent=True` there are none (see `publisher`), and every event needs its partition named.
Rejected: a thread of its own with a lock per event.

Events with a key go to the partition that the node itself would choose (`holdfast.amqp.partition_key`), over a link
of that partition to its leader. With `route_by="node"` there is one agnostic link, and the node chooses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from holdfast.amqp.partition_key import partition_index
from holdfast.client.delivery import Delivery, DeliveryResult, Done
from holdfast.client.errors import (
    BufferFullError,
    ClosedError,
    ConfigurationError,
    InvalidOperationError,
    NotFoundError,
    UndeliveredError,
)
from holdfast.client.eventbatch import EventBatch
from holdfast.client.events import Event, encode_content, encode_event
from holdfast.client.info import read_info
from holdfast.client.lane import Lane, ProducerStats
from holdfast.client.network import Network
from holdfast.client.numbered import NumberedLine
from holdfast.client.options import ProducerOptions
from holdfast.client.publications import EventList, Together, claim
from holdfast.client.publisher import Publisher
from holdfast.client.publishing import PartitionPublishingOptions, PartitionPublishingProperties

# Events without key and partition stay with one partition for so many events: batches stay whole, the load spreads.
ROUND_ROBIN_RUN = 64
# `send` gives way to the event loop after so many events, or nothing would move until the buffer is full.
YIELD_EVENTS = 256
# Failures kept for the next `flush`; more are only counted.
MAX_FAILURES_KEPT = 100
# Bookkeeping per event besides its bytes, so that a million empty events are not free.
EVENT_OVERHEAD_BYTES = 200


class ProducerClient:
    """Publishes events to one log.

    async with ProducerClient("127.0.0.1:5672", "trades") as producer:
        await producer.send(b"...", key="IBM")      # returns when it is buffered
        await producer.flush()                      # returns when everything is confirmed
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        log: str,
        options: ProducerOptions | None = None,
        *,
        idempotent: bool | None = None,
        partition_options: Mapping[str, PartitionPublishingOptions] | None = None,
    ) -> None:
        """`idempotent`, `partition_options`: those of `options`, for short."""
        self.log = log
        options = options or ProducerOptions()
        if idempotent is not None:
            options = replace(options, idempotent=idempotent)
        if partition_options is not None:
            options = replace(options, partition_options=dict(partition_options))
        options.check()
        self.options = options
        self.stats = ProducerStats()
        # Called with a partition (None with route_by="node") and the number of its events just confirmed.
        self.on_confirmed: Callable[[str | None, int], None] | None = None
        self._network = Network(servers, options.network)
        self._partitions: list[str] = []
        self._lanes: dict[str | None, Lane | NumberedLine] = {}
        self._staged: dict[Lane | NumberedLine, list[Delivery]] = {}  # what lingers
        self._staged_bytes = 0
        self._pumping: asyncio.Handle | None = None
        self._events = self._bytes = 0  # buffered: waiting or unconfirmed
        self._publishing = 0  # batches of an idempotent producer that are on their way
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._room.set()
        self._failures: list[Delivery] = []
        self._failed = 0
        self._turn = 0
        self._this_turn = 0
        self._closing = self._closed = False
        self._loop = asyncio.get_running_loop()

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Learn the log's partitions; raises `NotFoundError` when there is no such log."""
        self._check_open()
        info = await read_info(self._network, self.log, timeout_s=self.options.delivery_timeout_s)
        self._partitions = [entry.partition for entry in info]
        for partition in self.options.partition_options:
            self._check_partition(partition)

    async def __aenter__(self) -> ProducerClient:
        try:
            await self.start()
        except BaseException:
            await self._shut()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self._shut()

    async def close(self) -> None:
        """Take nothing more, wait until everything is confirmed (bounded by the delivery timeout), then let go. Raises
        what failed. Idempotent."""
        self._closing = True
        try:
            await self.flush()
        finally:
            await self._shut()

    async def _shut(self) -> None:
        if self._closed:
            return
        self._closing = self._closed = True
        self._room.set()
        self._pump()
        lanes = list(self._lanes.values())
        await asyncio.gather(*(lane.close() for lane in lanes))
        await self._network.close()
        await asyncio.gather(*(lane.ended() for lane in lanes if isinstance(lane, NumberedLine)))

    def _check_open(self) -> None:
        if self._closing:
            raise ClosedError("the producer was closed")

    @property
    def partitions(self) -> list[str]:
        """The log's partitions, known after `start`."""
        return list(self._partitions)

    @property
    def outstanding(self) -> int:
        """Events that are buffered or on their way, not yet confirmed."""
        return self._events

    # ---------------------------------------------------------------- single events, buffered

    async def send(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event, waiting for room if need be. What became of it: await the `Delivery` that is returned, or
        give `done`: it is called with None (confirmed) or with the error. Where nobody asked, `flush` raises it."""
        while not self._room.is_set():
            await self._room.wait()
        delivery = self._enqueue(event, key, partition, properties, done)
        if self._this_turn >= YIELD_EVENTS:
            await asyncio.sleep(0)  # let what was produced go out, and answers come in
        return delivery

    def send_nowait(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> Delivery:
        """Buffer one event or raise `BufferFullError`."""
        if not self._room.is_set():
            raise BufferFullError(f"{self._events} events ({self._bytes} bytes) are unconfirmed")
        return self._enqueue(event, key, partition, properties, done)

    async def send_and_confirm(
        self,
        event: Event | bytes | str,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> DeliveryResult:
        """Send one event and return when it is stored; raises if it is not."""
        return await (await self.send(event, key=key, partition=partition, properties=properties))

    async def flush(self) -> None:
        """Return when nothing is outstanding. Raises the first failure since the last call, if there was one.

        Bounded: each event is confirmed, refused, or given up after the delivery timeout without any progress.
        """
        self._pump()
        await self._idle.wait()
        failures, count = self._failures, self._failed
        self._failures, self._failed = [], 0
        unknown = [delivery.error for delivery in failures if not delivery.claimed]  # nobody has asked since
        count -= len(failures) - len(unknown)
        if unknown and unknown[0] is not None:
            if count > 1:
                unknown[0].add_note(f"{count} events failed; this is the first failure")
            raise unknown[0]

    # ---------------------------------------------------------------- batches

    async def create_batch(
        self, *, partition: str | None = None, key: str | None = None, max_bytes: int | None = None
    ) -> EventBatch:
        """An empty batch for one partition, for the partition of a key, or for whichever has its turn."""
        self._check_open()
        most = self.options.max_batch_bytes if max_bytes is None else max_bytes
        if most <= 0:
            raise ConfigurationError(f"max_bytes must be more than 0, not {most}")
        if partition is not None and key is not None:
            raise ConfigurationError("a batch is for a partition or for a key, not for both")
        self._check_place(key, partition)
        if partition is not None:
            self._check_partition(partition)
        return EventBatch(partition, key, max_bytes=most, numbered=self.options.idempotent)

    async def send_batch(
        self,
        batch: EventBatch | Sequence[Event | bytes | str],
        *,
        partition: str | None = None,
        key: str | None = None,
    ) -> DeliveryResult:
        """Publish a batch, or a list of events, and return when all of it is confirmed.

        Idempotent: it is published as a whole or raises; after a failure the same batch may be given again, and what
        had arrived is not stored twice. Otherwise single events may have failed (`UndeliveredError` tells how many).
        """
        self._check_open()
        if isinstance(batch, EventBatch):
            if partition is not None or key is not None:
                raise ConfigurationError("a batch knows where it goes", advice="name the place in create_batch")
            if batch.numbered != self.options.idempotent:
                raise InvalidOperationError(
                    "the batch was made by a producer of the other kind (idempotent or not)",
                    advice="make it by create_batch of the producer that sends it",
                )
            partition, key = batch.partition, batch.key
        self._check_place(key, partition)
        if self.options.idempotent:
            assert partition is not None, "checked before"
            return await self._publish(batch, partition)
        return await self._send_together(batch, partition, key)

    async def _publish(self, batch: EventBatch | Sequence[Event | bytes | str], partition: str) -> DeliveryResult:
        line = self._lane_for(None, partition)
        assert isinstance(line, NumberedLine)
        line.check_usable()
        publication = batch if isinstance(batch, EventBatch) else EventList(batch)
        if not len(publication):
            return DeliveryResult(partition, None, None, 0)
        publication.lock()
        self._publishing += 1
        self._idle.clear()
        try:
            await line.publish(publication)
        finally:
            self._publishing -= 1
            self._idle_again()
        return DeliveryResult(partition, None, publication.starting_published_sequence_number, len(publication))

    async def _send_together(
        self, batch: EventBatch | Sequence[Event | bytes | str], partition: str | None, key: str | None
    ) -> DeliveryResult:
        """All events over one lane; they are pipelined with whatever else is sent."""
        while not self._room.is_set():
            await self._room.wait()
        self._check_open()
        lane = self._lane_for(key, partition)
        together = Together(self._loop, lane.partition)
        if isinstance(batch, EventBatch):
            batch.lock()
            contents = batch.contents
        else:
            events = [_event(event, key, None) for event in batch]
            contents = [encode_event(event.body, event.key, event.properties) for event in events]
        if not contents:
            return together.result
        try:
            self._stage(lane, [Delivery(content, lane.partition, together.done) for content in contents])
            await together.wait(len(contents))
        finally:
            if isinstance(batch, EventBatch):
                batch.unlock()
        return together.result

    # ---------------------------------------------------------------- idempotence

    async def get_partition_publishing_properties(self, partition: str) -> PartitionPublishingProperties:
        """Who this producer is in a partition, and the number of the last event that it published there."""
        self._check_open()
        self._check_partition(partition)
        if not self.options.idempotent:
            return PartitionPublishingProperties(is_idempotent_publishing_enabled=False)
        line = self._lane_for(None, partition)
        assert isinstance(line, NumberedLine)
        return await line.properties()

    def _check_place(self, key: str | None, partition: str | None) -> None:
        if not self.options.idempotent:
            return
        if key is not None:
            raise ConfigurationError(
                "an idempotent producer publishes to partitions, not by key",
                advice="choose the partition yourself, and name it",
            )
        if partition is None:
            raise ConfigurationError(
                "an idempotent producer must be told the partition", advice="give partition=..., see `partitions`"
            )

    # ---------------------------------------------------------------- inside

    def _enqueue(
        self,
        event: Event | bytes | str,
        key: str | None,
        partition: str | None,
        properties: Mapping[str, Any] | None,
        done: Done | None,
    ) -> Delivery:
        self._check_open()
        given = event if isinstance(event, Event) else None
        if given is not None or not isinstance(event, bytes):
            whole = _event(event, key, properties)
            body, key, properties = whole.body, whole.key, whole.properties
        else:
            body = event
        if not self.options.idempotent:
            lane = self._lane_for(key, partition)
            delivery = Delivery(encode_event(body, key, properties), lane.partition, done)
        else:
            self._check_place(key, partition)
            lane = self._lane_for(None, partition)
            assert isinstance(lane, NumberedLine)
            lane.check_usable()
            delivery = Delivery(encode_content(body, properties), partition, done, given)
            if given is not None:
                claim([given])
        self._stage(lane, [delivery])
        return delivery

    def _stage(self, lane: Lane | NumberedLine, deliveries: list[Delivery]) -> None:
        """Take events in; they go out together with those that come in the same turn of the loop, or while they
        linger."""
        size = sum(len(delivery.content) for delivery in deliveries)
        count = len(deliveries)
        self._events += count
        self._bytes += size + count * EVENT_OVERHEAD_BYTES
        if self._events >= self.options.max_buffered_events or self._bytes >= self.options.max_buffered_bytes:
            self._room.clear()
        self._idle.clear()
        self._this_turn += count
        self._staged_bytes += size
        staged = self._staged.get(lane)
        if staged is None:
            self._staged[lane] = deliveries
        else:
            staged += deliveries
        linger_s = self.options.linger_s
        if self._pumping is None:
            soon = self._loop.call_soon(self._pump) if not linger_s else self._loop.call_later(linger_s, self._pump)
            self._pumping = soon
        elif linger_s and self._staged_bytes >= self.options.linger_bytes:
            self._pumping.cancel()
            self._pumping = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """What was staged goes out."""
        if self._pumping is not None:
            self._pumping.cancel()
            self._pumping = None
        self._this_turn = self._staged_bytes = 0
        staged, self._staged = self._staged, {}
        for lane, deliveries in staged.items():
            lane.put(deliveries)
            lane.pump()

    def _check_partition(self, partition: str) -> None:
        if partition not in self._partitions:
            if not self._partitions:
                raise ConfigurationError("the producer was not started", advice="use `async with`, or await start()")
            known = ", ".join(self._partitions[:20])
            raise NotFoundError(f"log {self.log!r} has no partition {partition!r} (it has {known})")

    def _lane_for(self, key: str | None, partition: str | None) -> Lane | NumberedLine:
        if self.options.route_by == "node" and partition is None:
            name: str | None = None
        elif partition is not None:
            name = partition
        elif not self._partitions:
            raise ConfigurationError("the producer was not started", advice="use `async with`, or await start()")
        elif key is not None:
            name = self._partitions[partition_index(key, len(self._partitions))]
        else:
            name = self._partitions[(self._turn // ROUND_ROBIN_RUN) % len(self._partitions)]
            self._turn += 1
        lane = self._lanes.get(name)
        return lane if lane is not None else self._new_lane(name)

    def _new_lane(self, partition: str | None) -> Lane | NumberedLine:
        if partition is not None:
            self._check_partition(partition)
        options = self.options
        bounds: dict[str, Any] = {
            "window": options.window,
            "delivery_timeout_s": options.delivery_timeout_s,
            "stats": self.stats,
        }
        if partition is not None and options.idempotent:
            own = options.partition_options.get(partition, PartitionPublishingOptions())
            publisher = Publisher(self._network, self.log, partition, own, **bounds)
            lane: Lane | NumberedLine = NumberedLine(
                publisher, settled=self._on_settled, confirmed=self._on_confirmed, unclaimed=self._on_failure
            )
        else:
            lane = Lane(
                self._network,
                self.log,
                partition,
                settled=self._on_settled,
                unclaimed=self._on_failure,
                **bounds,
            )
        self._lanes[partition] = lane
        return lane

    def _on_settled(self, partition: str | None, events: int, size: int, confirmed: bool) -> None:
        self._events -= events
        self._bytes -= size + events * EVENT_OVERHEAD_BYTES
        assert self._events >= 0, "an event was settled twice"
        if not self._room.is_set() and self._has_room():
            self._room.set()
        self._idle_again()
        if confirmed:
            self._on_confirmed(partition, events)

    def _on_confirmed(self, partition: str | None, events: int) -> None:
        if self.on_confirmed is not None:
            self.on_confirmed(partition, events)

    def _idle_again(self) -> None:
        if self._events == 0 and self._publishing == 0:
            self._idle.set()

    def _has_room(self) -> bool:
        # Half empty, not one place: a sender that wakes up should find work for a whole batch.
        options = self.options
        return self._events <= options.max_buffered_events // 2 and self._bytes <= options.max_buffered_bytes // 2

    def _on_failure(self, delivery: Delivery) -> None:
        self._failed += 1
        if len(self._failures) < MAX_FAILURES_KEPT:
            self._failures.append(delivery)


def _event(event: Event | bytes | str, key: str | None, properties: Mapping[str, Any] | None) -> Event:
    """What is to be sent, with what the call says of it."""
    if not isinstance(event, Event):
        return Event(event, key=key, properties=properties)
    if key is None and properties is None:
        return event
    return Event(event.body, key=event.key if key is None else key, properties=properties or event.properties)


__all__ = ["ProducerClient", "ProducerOptions", "ProducerStats", "UndeliveredError"]
