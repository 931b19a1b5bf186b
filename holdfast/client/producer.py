"""The producer: events in, confirmed events out, in order per key, through failures.

Problem: a confirmed event must be in the log whatever dies meanwhile; the price of asking for each confirmation alone
would be a round trip per event.
Rules never broken:
 - what `flush` or `close` returned without an error for is stored; what failed raises, exactly once;
 - memory is bounded: `send` waits when the buffer is full, `send_nowait` raises;
 - events of one key stay in order (see `lane`); delivery is at least once: copies after a failover are counted.
Rejected: a thread of its own with a lock per event; a batch timer (a loop turn already gathers what is produced in
it).

Events with a key go to the partition that the node itself would choose (`holdfast.amqp.partition_key`), over a link
of that partition to its leader. With `route_by="node"` there is one agnostic link, and the node chooses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from holdfast.amqp.partition_key import partition_index
from holdfast.client.errors import (
    BufferFullError,
    ClosedError,
    ConfigurationError,
    HoldfastError,
    NotFoundError,
    UndeliveredError,
)
from holdfast.client.events import encode_event
from holdfast.client.info import read_info
from holdfast.client.lane import Lane, Outgoing, ProducerStats
from holdfast.client.network import Network, NetworkOptions

# Events without key and partition stay with one partition for so many events: batches stay whole, the load spreads.
ROUND_ROBIN_RUN = 64
# `send` gives way to the event loop after so many events, or nothing would move until the buffer is full.
YIELD_EVENTS = 256
# Failures kept for the next `flush`; more are only counted.
MAX_FAILURES_KEPT = 100
# Bookkeeping per event besides its bytes, so that a million empty events are not free.
EVENT_OVERHEAD_BYTES = 200

Done = Callable[[HoldfastError | None], None]


@dataclass(frozen=True)
class ProducerOptions:
    """How a producer behaves; every bound has a default that suits a program on one core."""

    route_by: Literal["client", "node"] = "client"
    window: int = 4000  # unconfirmed events per partition; the node's credit bounds them too
    max_buffered_events: int = 50_000
    max_buffered_bytes: int = 64 * 1024 * 1024
    delivery_timeout_s: float = 30.0  # without any confirmation for so long, events are given up
    network: NetworkOptions = field(default_factory=NetworkOptions)

    def check(self) -> None:
        if self.route_by not in ("client", "node"):
            raise ConfigurationError(f"route_by is 'client' or 'node', not {self.route_by!r}")
        for name in ("window", "max_buffered_events", "max_buffered_bytes", "delivery_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be more than 0, not {getattr(self, name)}")


class ProducerClient:
    """Publishes events to one log.

    async with ProducerClient("127.0.0.1:5672", "trades") as producer:
        await producer.send(b"...", key="IBM")      # returns when it is buffered
        await producer.flush()                      # returns when everything is confirmed
    """

    def __init__(self, servers: str | Sequence[str], log: str, options: ProducerOptions | None = None) -> None:
        self.log = log
        self.options = options or ProducerOptions()
        self.options.check()
        self.stats = ProducerStats()
        # Called with a partition (None with route_by="node") and the number of its events just confirmed.
        self.on_confirmed: Callable[[str | None, int], None] | None = None
        self._network = Network(servers, self.options.network)
        self._partitions: list[str] = []
        self._lanes: dict[str | None, Lane] = {}
        self._dirty: set[Lane] = set()
        self._pump_scheduled = False
        self._events = self._bytes = 0  # buffered: waiting or unconfirmed
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._room.set()
        self._failures: list[HoldfastError] = []
        self._failed = 0
        self._turn = 0
        self._this_turn = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()

    # ---------------------------------------------------------------- life

    async def start(self) -> None:
        """Learn the log's partitions; raises `NotFoundError` when there is no such log."""
        info = await read_info(self._network, self.log, timeout_s=self.options.delivery_timeout_s)
        self._partitions = [entry.partition for entry in info]

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
        """Wait until everything is confirmed (bounded by the delivery timeout), then let go. Raises what failed."""
        try:
            await self.flush()
        finally:
            await self._shut()

    async def _shut(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._room.set()
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
        await self._network.close()

    @property
    def partitions(self) -> list[str]:
        return list(self._partitions)

    @property
    def outstanding(self) -> int:
        """Events that are buffered or on their way, not yet confirmed."""
        return self._events

    # ---------------------------------------------------------------- sending

    async def send(
        self,
        body: bytes,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> None:
        """Buffer one event, waiting for room if need be. `flush` says what became of it, or `done`: it is called with
        None (confirmed) or with the error, which then is not `flush`'s any more."""
        while not self._room.is_set():
            await self._room.wait()
        self._enqueue(encode_event(body, key, properties), key, partition, done)
        if self._this_turn >= YIELD_EVENTS:
            await asyncio.sleep(0)  # let what was produced go out, and answers come in

    def send_nowait(
        self,
        body: bytes,
        *,
        key: str | None = None,
        partition: str | None = None,
        properties: Mapping[str, Any] | None = None,
        done: Done | None = None,
    ) -> None:
        """Buffer one event or raise `BufferFullError`."""
        if not self._room.is_set():
            raise BufferFullError(f"{self._events} events ({self._bytes} bytes) are unconfirmed")
        self._enqueue(encode_event(body, key, properties), key, partition, done)

    async def send_and_confirm(self, body: bytes, **where: Any) -> None:
        """Send one event and return when it is stored; raises if it is not."""
        confirmed: asyncio.Future[None] = self._loop.create_future()

        def done(error: HoldfastError | None) -> None:
            if confirmed.done():
                return
            if error is None:
                confirmed.set_result(None)
            else:
                confirmed.set_exception(error)

        await self.send(body, done=done, **where)
        await confirmed

    async def flush(self) -> None:
        """Return when nothing is outstanding. Raises the first failure since the last call, if there was one.

        Bounded: each event is confirmed, refused, or given up after the delivery timeout without any progress.
        """
        await self._idle.wait()
        if self._failures:
            failures, count = self._failures, self._failed
            self._failures, self._failed = [], 0
            if count > 1:
                failures[0].add_note(f"{count} events failed; this is the first failure")
            raise failures[0]

    # ---------------------------------------------------------------- inside

    def _enqueue(
        self,
        payload: bytes,
        key: str | None,
        partition: str | None,
        done: Done | None,
    ) -> None:
        if self._closed:
            raise ClosedError("the producer was closed")
        lane = self._lane_for(key, partition)
        lane.put(Outgoing(payload, done))
        self._events += 1
        self._bytes += len(payload) + EVENT_OVERHEAD_BYTES
        if self._events >= self.options.max_buffered_events or self._bytes >= self.options.max_buffered_bytes:
            self._room.clear()
        if self._events == 1:
            self._idle.clear()
        self._this_turn += 1
        self._dirty.add(lane)
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Once per loop turn: what was produced in it goes out together."""
        self._pump_scheduled = False
        self._this_turn = 0
        dirty, self._dirty = self._dirty, set()
        for lane in dirty:
            lane.pump()

    def _lane_for(self, key: str | None, partition: str | None) -> Lane:
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

    def _new_lane(self, partition: str | None) -> Lane:
        if partition is not None and partition not in self._partitions:
            known = ", ".join(self._partitions[:20])
            raise NotFoundError(f"log {self.log!r} has no partition {partition!r} (it has {known})")
        lane = Lane(
            self._network,
            self.log,
            partition,
            window=self.options.window,
            delivery_timeout_s=self.options.delivery_timeout_s,
            stats=self.stats,
            settled=self._on_settled,
            unclaimed=self._on_failure,
        )
        self._lanes[partition] = lane
        return lane

    def _on_settled(self, partition: str | None, events: int, size: int, confirmed: bool) -> None:
        self._events -= events
        self._bytes -= size + events * EVENT_OVERHEAD_BYTES
        assert self._events >= 0, "an event was settled twice"
        if not self._room.is_set() and self._has_room():
            self._room.set()
        if self._events == 0:
            self._idle.set()
        if confirmed and self.on_confirmed is not None:
            self.on_confirmed(partition, events)

    def _has_room(self) -> bool:
        # Half empty, not one place: a sender that wakes up should find work for a whole batch.
        options = self.options
        return self._events <= options.max_buffered_events // 2 and self._bytes <= options.max_buffered_bytes // 2

    def _on_failure(self, error: HoldfastError) -> None:
        self._failed += 1
        if len(self._failures) < MAX_FAILURES_KEPT:
            self._failures.append(error)


__all__ = ["ProducerClient", "ProducerOptions", "ProducerStats", "UndeliveredError"]
