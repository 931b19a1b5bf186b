"""The books of a producer about what it has taken in and not finished.

Rules never broken:
 - every event that is taken in is counted until its outcome is known, and then exactly once not any more;
 - memory is bounded: above a bound there is no room, until half of it is free again. Who can wait for room is bounded
   by the latency that is aimed at, too (`latency_bound`), and there until a piece of it is free. What a partition
   without progress holds is not counted against the others' latency;
 - what is taken in during one turn of the loop goes out together, in order, no later than its sender waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol

from holdfast.client.callbacks import FAULTS, report
from holdfast.client.errors import BufferFullError
from holdfast.client.options import ProducerOptions
from holdfast.client.produce.batch_queue import BatchQueue
from holdfast.client.produce.failures import UnheardFailures
from holdfast.client.produce.latency_bound import LatencyBound

# `send` gives way to the event loop after so many events for each partition they go to, or so many in all, or so many
# bytes: else nothing would move until there is no room. The first is half of a batch of small events. With more for one
# partition nodes stand idle until the first ones come; with less for several, they do much for each piece that comes.
YIELD_EVENTS_OF_PARTITION = 1200
YIELD_EVENTS = 4096
YIELD_BYTES = 1 << 20
# It gives way for so many turns: in one of them what came is read, in the next one those who await it go on.
TURNS_GIVEN = 3

LOOK_AGAIN_S = 0.02  # a caller that waits for room looks so often whether a partition is stuck
STUCK_AFTER_S = 0.1  # a partition is, without progress for so long
# A caller that waits for room because of the latency is woken as soon as there is so much, or half of all.
ROOM_BYTES = 256 * 1024
EVENT_OVERHEAD_BYTES = 200  # reckoned for each event besides its bytes: a million empty ones are not free


class BatchSender(Protocol):
    """The sender of a partition. What it is to send is put into its queue, and counted here."""

    queue: BatchQueue

    def pump(self) -> None:
        """The turn is over: send what may be sent now."""


class Accumulator:
    def __init__(
        self,
        options: ProducerOptions,
        *,
        latency_target_s: float | None = None,
        stuck: Callable[[float], Iterable[tuple[int, int]]] = lambda since_s: (),
    ) -> None:
        """`stuck`: events and bytes that are held by each sender without progress since a time."""
        self.failures = UnheardFailures(stop=options.after_failure == "raise")
        self.on_confirmed: Callable[[str, int], None] | None = None  # a partition, and events just confirmed
        self.events = 0  # waiting or unconfirmed
        self.has_room = True  # for who can wait for it
        self.this_turn = 0  # taken in since something went out last
        self._bytes = 0
        self._this_turn_bytes = 0
        self._options, self._stuck = options, stuck
        self._touched: dict[BatchSender, None] = {}  # those that were given something this turn
        self._pumping: asyncio.Handle | None = None
        self._latency = LatencyBound(latency_target_s, options.max_buffered_bytes)
        self._stuck_bytes = 0  # of partitions without progress, as last seen
        self._full = False  # a hard limit is reached, and not half of it is free again
        self._looking: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()  # set when there is room again
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()

    # ---------------------------------------------------------------- in

    def check_room(self) -> None:
        """Raise at the hard limits, for a caller that cannot wait."""
        if self._full:
            raise BufferFullError(f"{self.events} events ({self._bytes} bytes) are unconfirmed")

    async def wait_for_room(self) -> None:
        while not self.has_room:
            self.pump()  # nobody can join what was taken in: it would only be waited for
            self._latency.waits(self._loop.time())
            if self._looking is None:
                self._looking = self._loop.call_later(LOOK_AGAIN_S, self._look_again)
            await self._room.wait()
            await asyncio.sleep(0)  # first those go on who await the other outcomes that were read together

    def _look_again(self) -> None:
        """Leave out of the reckoning what partitions without progress hold."""
        self._looking = None
        stuck = self._stuck(self._loop.time() - STUCK_AFTER_S)
        self._stuck_bytes = sum(size + events * EVENT_OVERHEAD_BYTES for events, size in stuck)
        self._room_again()
        if not self.has_room:
            self._looking = self._loop.call_later(LOOK_AGAIN_S, self._look_again)

    @property
    def turn_is_over(self) -> bool:
        """Enough was taken in since something went out last."""
        if self._this_turn_bytes >= YIELD_BYTES:
            return True
        if self.this_turn < YIELD_EVENTS_OF_PARTITION:
            return False
        return self.this_turn >= min(YIELD_EVENTS, YIELD_EVENTS_OF_PARTITION * len(self._touched))

    async def give_way(self) -> None:
        """Let what was taken in go out, and those go on that await an outcome which has come meanwhile."""
        self.pump()
        for _ in range(TURNS_GIVEN):
            await asyncio.sleep(0)

    def took_in(self, sender: BatchSender, events: int, size: int) -> None:
        """Count what this sender was given; it goes out when the turn is over."""
        options = self._options
        self._touched[sender] = None
        self.events += events
        self._bytes += size + events * EVENT_OVERHEAD_BYTES
        if self.events >= options.max_buffered_events or self._bytes >= options.max_buffered_bytes:
            self._full = True
        if self._full or self._bytes >= self._latency.limit + self._stuck_bytes:
            self.has_room = False
            self._room.clear()
        self.this_turn += events
        self._this_turn_bytes += size
        self._idle.clear()
        if self._pumping is None:  # else there was something already
            self._pumping = self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Let what was taken in go out."""
        if self._pumping is not None:
            self._pumping.cancel()
            self._pumping = None
        self.this_turn = self._this_turn_bytes = 0
        touched, self._touched = self._touched, {}
        for sender in touched:
            sender.pump()

    # ---------------------------------------------------------------- out

    async def finished(self) -> None:
        """Return when nothing is here any more."""
        self.pump()
        await self._idle.wait()

    def close(self) -> None:
        """Let all who wait for room go on, and let go of what was taken in."""
        self._full = False
        self.has_room = True
        self._room.set()
        if self._looking is not None:
            self._looking.cancel()
        self.pump()

    def answered(self, since_s: float, sent_s: float, now_s: float) -> None:
        """A batch was answered, whose first event came at `since_s`. All are times of the loop."""
        self._latency.took(now_s - sent_s)
        # Who awaits the outcome learns it when the loop comes round, behind all that it has to do before.
        self._loop.call_soon(lambda: self._latency.told(since_s, monotonic()))

    def settled(self, partition: str, events: int, size: int, confirmed: bool) -> None:
        """Events and payload bytes have left the sender of a partition."""
        self.events -= events
        size += events * EVENT_OVERHEAD_BYTES
        self._bytes -= size
        assert self.events >= 0, "an event was settled twice"
        if confirmed:
            self._latency.confirmed(partition, events, size, self._loop.time())
        if not self.has_room:
            self._room_again()
        if self.events == 0:
            self._idle.set()
        if confirmed and self.on_confirmed is not None:
            try:
                self.on_confirmed(partition, events)
            except FAULTS as problem:
                report("of confirmed events", problem)

    def _room_again(self) -> None:
        """Make room, and not for one event: a sender that wakes up should find work for a whole batch."""
        options, limit = self._options, self._latency.limit
        if self.events <= options.max_buffered_events // 2 and self._bytes <= options.max_buffered_bytes // 2:
            self._full = False
            if self._bytes <= limit - min(ROOM_BYTES, limit // 2) + self._stuck_bytes:
                self.has_room = True
                self._room.set()
