"""One partition as a consumer reads it: the link it comes over, the credit for it, and how far we are.

Rules never broken: a new link starts after the last offset that arrived; credit and what is buffered stay together
within the bound; while it is paused nothing is handed out, and nothing more is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from typing import Protocol

from holdfast import protocol
from holdfast.client.blocks.batch_block import BatchBlock
from holdfast.client.callbacks import FAULTS, report
from holdfast.client.consume.batch_credit import BatchWindow
from holdfast.client.errors import DamagedBatchError, DamagedEventError, HoldfastError
from holdfast.client.events import DeliveryReader, ReceivedEvent, readable
from holdfast.client.options import ConsumerOptions
from holdfast.client.start_position import Start
from holdfast.client.transport.links import IN_BATCHES, Receiver
from holdfast.client.transport.log_info import PartitionInfo, read_info
from holdfast.client.transport.network import Backoff, Network
from holdfast.records.record_batch import Damaged

# Credit before the size of messages is known: what arrives unasked-for is at most so many.
FIRST_CREDIT = 64
LOOK_PACE_S = 10.0
"""Time between two looks at what retention has left: where transactions are rolled back, many events are left out."""
_COUNTED = re.compile("[0-9a-f]{16}")


class ReceivingConsumer(Protocol):
    """The consumer, as its readers see it."""

    log: str
    where: str | None  # which events
    uncommitted: bool  # also those of transactions that are open or were rolled back
    options: ConsumerOptions
    in_hands: PartitionReceiver | None  # whose events the program works on

    def deliver(self, reader: PartitionReceiver, events: list[ReceivedEvent]) -> None: ...
    def drop(self, reader: PartitionReceiver) -> None: ...
    def reader_finished(self) -> None: ...
    def fail(self, error: HoldfastError) -> None: ...


class PartitionReceiver:
    """One partition: the link it comes over, the credit for it, and how far we are."""

    def __init__(self, consumer: ReceivingConsumer, network: Network, info: PartitionInfo, start: Start) -> None:
        self.partition = info.partition
        self.finished = False
        self.taken: str | None = None  # offset of the last event handed to the program
        self.links_opened = 0
        self.paused = False
        self.held: deque[list[ReceivedEvent]] = deque()  # arrived, while paused
        self._consumer, self._network = consumer, network
        self._options = consumer.options
        # "From now on" is pinned to where the log ends now, so that what comes before our link does is not missed.
        self._next = start
        last = self._last_of(info)
        if start.is_latest:
            self._next = Start.earliest() if last is None else Start.after(last)
        self._begin = self._next
        self._end = last if self._options.until_end else None
        self.finished = self._options.until_end and not self._is_due(info)
        self._receiver: Receiver | None = None
        self._buffered = 0
        self._window = min(FIRST_CREDIT, self._options.prefetch)
        self._largest = 1.0  # bytes per message, decaying slowly: what the next credit may stand for
        # Where events are left out, the last one may not come: the node is asked to say when it has no more.
        left_out = consumer.where is not None or (info.has_transactions and not consumer.uncommitted)
        self._asks_for_end = self._end is not None and left_out
        self._asked = 0  # credit that it has not used yet
        self._read = DeliveryReader(info.partition)
        self._batches = BatchWindow(self._options.prefetch, self._options.prefetch_bytes)
        self._in_batches = False
        self._damage: Damaged | None = None  # of what came last
        self._damaged: Start | None = None  # what came after it was damaged, and is asked for again
        self._ended = asyncio.Event()
        self._closed_by: HoldfastError | None = None
        self._task: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None  # at what retention has taken
        self._is_new_link = True  # nothing has come over it

    def begin(self) -> None:
        if not self.finished:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"reader {self.partition}")

    @property
    def connected(self) -> bool:
        """True if it has a link, or needs none any more."""
        return self.finished or self._receiver is not None

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._receiver is not None:
            await self._receiver.close()
            self._receiver = None

    async def _run(self) -> None:
        backoff, hint = Backoff(), None
        loop = asyncio.get_running_loop()
        while not self.finished:
            self._ended.clear()
            self._closed_by = None
            before = self._next
            try:
                self._receiver = await self._network.attach_receiver(
                    self._consumer.log,
                    self.partition,
                    self._next,
                    self,
                    deadline_s=loop.time() + self._options.reconnect_timeout_s,
                    hint=hint,
                    properties=IN_BATCHES,
                    where=self._consumer.where,
                    uncommitted=self._consumer.uncommitted,
                )
            except HoldfastError as error:
                self._consumer.fail(error)
                return
            self.links_opened += 1
            self._is_new_link = True
            self._in_batches = self._receiver.in_batches
            self._asked = 0
            self.grant()
            await self._ended.wait()
            receiver, self._receiver, hint = self._receiver, None, self._closed_by
            if self.finished:
                await receiver.close()
                return
            if hint is not None and not hint.retriable:
                self._consumer.fail(hint)
                return
            if before != self._next:
                backoff.reset()
            await backoff.wait()

    # ---------------------------------------------------------------- from the link

    def on_transfers(self, payloads: list[bytes]) -> None:
        if self.finished:
            return
        self._take(payloads)
        if self._damage is not None and not self.finished:
            self._ask_again(self._damage)
        self._damage = None

    def _ask_again(self, damage: Damaged) -> None:
        """End the link; the next one begins after the last event that was good."""
        error = DamagedBatchError(self.partition, str(damage))
        if self._damaged == self._next:
            self._consumer.fail(error)
            return
        self._damaged = self._next
        if self._receiver is not None:
            self._receiver.for_good = False
            self._receiver.abandon()
        self.on_closed(error)

    def _take(self, payloads: list[bytes]) -> None:
        self._asked -= min(self._asked, len(payloads))
        try:
            events = self._fresh(self._events_of(payloads))
        except HoldfastError as error:
            self._consumer.fail(error)
            return
        if not events:
            self.grant()
            return
        before, first = self._next.offset, events[0].offset
        if (distance(before, first) or 1) > 1 and (self._is_new_link or self._consumer.where is None):
            self._look_for_lost(str(before), first)
        self._is_new_link = False
        if self._end is not None and events[-1].offset >= self._end:
            events = [event for event in events if event.offset <= self._end]
            self.finished = True
            self._ended.set()
        if events:
            self._next = Start.after(events[-1].offset)
            if self._options.on_damaged is not None:
                events = readable(events, self._tell_damaged)
        if events:
            self._buffered += len(events)
            self._consumer.deliver(self, events)
        else:
            self._consumer.reader_finished()
        self.grant()

    def _look_for_lost(self, before: str, first: str) -> None:
        """Events between two that came one after the other were left out: by a filter, since their transaction was
        rolled back, or since retention had deleted them, which the program is to hear of."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._tell_lost(before, first))

    async def _tell_lost(self, before: str, first: str) -> None:
        log, partition, timeout_s = self._consumer.log, self.partition, self._options.reconnect_timeout_s
        try:
            infos = await read_info(self._network, log, timeout_s=timeout_s)
        except HoldfastError as error:
            self._network.log_lines.say("%s: whether retention took events is not known: %s", log, error)
        else:
            earliest = next((info.earliest_offset for info in infos if info.partition == partition), None)
            lost = (distance(before, min(first, earliest or first)) or 0) - 1
            if lost > 0:
                self._network.log_lines.say(
                    "%s, partition %s: retention has deleted up to %d events before they were read, behind offset %s",
                    log, partition, lost, before, level=logging.WARNING,
                )  # fmt: skip
        await asyncio.sleep(LOOK_PACE_S)
        self._looking = None

    def _events_of(self, payloads: list[bytes]) -> list[ReceivedEvent]:
        if not self._in_batches:
            self._largest = max(max(map(len, payloads)), self._largest * 0.9)
            return [self._read.read(payload) for payload in payloads]
        found: list[ReceivedEvent] = []
        for payload in payloads:
            block = BatchBlock.read(self.partition, payload)
            self._batches.saw(len(block), block.size_bytes)
            found += block.events()
            if block.damage is not None:
                self._damage = block.damage
                break
        return found

    def _tell_damaged(self, error: DamagedEventError) -> None:
        assert self._options.on_damaged is not None
        try:
            self._options.on_damaged(error)
        except FAULTS as problem:  # or the events around it would be lost
            report("of a damaged event", problem)

    def _fresh(self, events: list[ReceivedEvent]) -> list[ReceivedEvent]:
        """Events that were not handed out before."""
        return events

    def on_closed(self, error: HoldfastError) -> None:
        self._closed_by = error
        self._ended.set()

    # ---------------------------------------------------------------- credit

    def hand_over(self, events: int) -> None:
        """Count so many events as handed to the program: there is room for others."""
        self._buffered -= events
        self.grant()

    def came_back(self, events: int) -> None:
        """Take so many events back, which the program has left to be handed out later."""
        self._buffered += events

    def took(self, offset: str) -> None:
        """Note that everything up to here is handed out."""
        self.taken = offset

    def grant(self) -> None:
        """Keep credit and buffer together within the window; in steps of half of it, not one by one."""
        receiver = self._receiver
        if receiver is None or self.finished or self.paused:
            return
        window, buffered = self._window_and_buffered()
        room = window - buffered - receiver.credit
        if room < max(1, window // 2):
            return
        if not self._asks_for_end:
            receiver.grant(room)
        elif not receiver.draining:
            self._asked = room
            receiver.drain(room, self._drained)

    def _window_and_buffered(self) -> tuple[int, int]:
        """Window and buffered events, in deliveries."""
        if self._in_batches:
            return self._batches.deliveries, self._batches.holding(self._buffered)
        if self._largest > 1:
            self._window = max(1, min(self._options.prefetch, int(self._options.prefetch_bytes / self._largest)))
        return self._window, self._buffered

    def _drained(self) -> None:
        """Finish, if all that was there is here; else, all that was asked for is here: ask for more."""
        if self._asked and not self.finished:
            self.finished = True
            self._ended.set()
            self._consumer.reader_finished()
        else:
            self.grant()

    def lag(self, info: PartitionInfo) -> int | None:
        """Events after the last one handed out, by what is known of the partition now."""
        if not info.available:
            return None
        last = self._last_of(info)
        if last is None:
            return 0
        stored = distance(info.earliest_offset, last)
        if self.taken is None and self._begin.offset == protocol.OFFSET_EARLIEST:
            return None if stored is None else stored + 1
        behind = distance(self._begin.offset if self.taken is None else self.taken, last)
        if behind is None or stored is None:
            return None
        return max(0, min(behind, stored + 1))  # retention may have taken what was next

    def _is_due(self, info: PartitionInfo) -> bool:
        """True if an event between our start and the end is there."""
        last = self._last_of(info)
        if last is None:
            return False
        start, latest_ms = self._next, info.latest_timestamp_ms
        if start.timestamp_ms is not None and latest_ms is not None and latest_ms <= start.timestamp_ms:
            return False
        if start.offset is None or start.offset == protocol.OFFSET_EARLIEST:
            return True
        if _COUNTED.fullmatch(last) and not _COUNTED.fullmatch(start.offset):
            return True  # none of this node's: it refuses that, and says why
        return start.offset < last

    def _last_of(self, info: PartitionInfo) -> str | None:
        """The last offset that is there for this reader now."""
        return info.latest_offset if self._consumer.uncommitted else info.last_stable_offset


def distance(earlier: str | None, later: str | None) -> int | None:
    """Events from one offset to another. Offsets are opaque to a client; only those that look like a Holdfast node's,
    which counts events in them, are read. Of others nothing is known."""
    if earlier is None or later is None or not (_COUNTED.fullmatch(earlier) and _COUNTED.fullmatch(later)):
        return None
    return int(later, 16) - int(earlier, 16)
