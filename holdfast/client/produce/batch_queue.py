"""Queue of what a partition's sender has not settled: batches that were sent, those that wait, and the last of these.

The last may still be filled.

Rules never broken:
 - events stand in the order of the calls; a publication is a batch of its own, between what came before and behind it;
 - a batch has no more events and bytes than are good for one transfer, unless a single event is larger;
 - what came in this turn of the loop is not given out before it is released. A batch that was released and
   still waits goes on being filled: so batches grow by themselves while a partition is busy;
 - while SLOTS of them are unanswered, only a full one leaves.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, islice

from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.client.errors import EventTooLargeError
from holdfast.client.events import Event
from holdfast.client.produce.delivery import EVENT_COST, Delivery, Done, PendingBatch
from holdfast.client.transport.links import BATCH_BYTES, OVERHEAD_BYTES, Sender
from holdfast.records.in_flight_window import InFlightWindow

MOST_EVENTS = 2048  # in a batch: eight of them are what a link has unanswered
MOST_BYTES = BATCH_BYTES - OVERHEAD_BYTES
SLOTS = 8  # unanswered batches beside which one goes on being filled; a full one gains nothing by that, and leaves
NO_LIMIT = sys.maxsize


class BatchQueue:
    def __init__(self, partition: str, most_unanswered: int, unclaimed: Callable[[PendingBatch], None]) -> None:
        """`most_unanswered`: events. `unclaimed`: see `PendingBatch`."""
        self.partition = partition
        self.sent: InFlightWindow[PendingBatch, DeliveryState] = InFlightWindow()
        self._most_unanswered = most_unanswered
        self._most_events, self._unclaimed = min(most_unanswered, MOST_EVENTS), unclaimed
        self._batches: deque[PendingBatch] = deque()  # that wait
        self.largest = NO_LIMIT  # bytes of an event that the link takes
        self._open: PendingBatch | None = None  # the last one, if it takes more
        self._released = 0  # so many of the first ones that wait

    def __iter__(self) -> Iterator[PendingBatch]:
        """Queue of all that is not settled, in the order in which it was sent or will be."""
        return chain(self.sent, self._batches)

    # ---------------------------------------------------------------- in

    def check_sizes(self, records: Sequence[bytes | str]) -> None:
        """Raise EventTooLargeError for an event beyond the link's limit, since the node would end the link."""
        if self.largest < NO_LIMIT and (size := max(map(len, records), default=0)) > self.largest:
            raise EventTooLargeError.of(size, self.largest)

    def add(self, record: bytes, *, body: bool, done: Done | None = None, given: Event | None = None) -> Delivery:
        """One event: its message, or its body. `given`: is to learn its number."""
        if len(record) > self.largest:
            self.check_sizes((record,))
        batch, place = self._add((record,), len(record), bodies=body)
        if done is not None:
            batch.tell(place, done)
        if given is not None:
            batch.given[place] = given
        return Delivery(batch, place, 1)

    def extend(self, records: Sequence[bytes], *, bodies: bool, given: Sequence[Event | None] = ()) -> list[Delivery]:
        """Events of one call, cut where a batch is full."""
        self.check_sizes(records)
        parts: list[Delivery] = []
        sizes = list(map(len, records))
        at = 0
        while at < len(records):
            count = self._fitting(sizes[at:] if at else sizes)
            those = records if count == len(records) else records[at : at + count]
            batch, place = self._add(those, sum(sizes[at : at + count]), bodies=bodies)
            for number, event in enumerate(given[at : at + count]):
                if event is not None:
                    batch.given[place + number] = event
            parts.append(Delivery(batch, place, count))
            at += count
        return parts

    def _add(self, records: Sequence[bytes], size: int, *, bodies: bool) -> tuple[PendingBatch, int]:
        batch = self._open
        if (
            batch is None
            or batch.events + len(records) > self._most_events
            or batch.weight + size + EVENT_COST * len(records) > MOST_BYTES
        ):
            batch = self._open = PendingBatch(self.partition, self._unclaimed)
            self._batches.append(batch)
        return batch, batch.extend(records, size, bodies=bodies)

    def _fitting(self, sizes: Sequence[int]) -> int:
        """Count those that go into the batch that is filled; at least one goes into the next, if that one is full."""
        batch = self._open
        events, room = self._most_events, MOST_BYTES
        if batch is not None:
            events, room = events - batch.events, room - batch.weight
        count = min(events, len(sizes))
        if count and sum(sizes[:count]) + EVENT_COST * count > room:
            count = bisect_right(list(accumulate(size + EVENT_COST for size in sizes[:count])), room)
        if count or batch is None:
            return max(1, count)
        self._open = None
        return self._fitting(sizes)

    def put(self, batch: PendingBatch) -> None:
        """A publication."""
        self._batches.append(batch)
        self._open = None

    # ---------------------------------------------------------------- out

    def release(self) -> None:
        """The turn is over."""
        self._released = len(self._batches)

    @property
    def first(self) -> PendingBatch | None:
        """The next one to be sent, if there is one that was released."""
        return self._batches[0] if self._released else None

    @property
    def is_outstanding(self) -> bool:
        """True if something was sent, or may be."""
        return bool(self._released or self.sent)

    def next_for(self, link: Sender) -> PendingBatch | None:
        """The first one, if it may leave now, cut to what the link takes."""
        batch = self.first
        if batch is None or not link.credit:
            return None
        if self.sent:
            if len(self.sent) >= SLOTS and (batch is self._open or batch.stands_alone):
                return None
            if sum([one.events for one in self.sent]) + batch.events > self._most_unanswered:
                return None
        if batch.weight > link.batch_bytes and batch.open is not None and not batch.stands_alone:
            self.cut_first(link.batch_bytes)
        return batch

    def leaves(self, number: int) -> None:
        """Note that the first one was sent, with this number of the link."""
        self.sent.sent(number, self.pop_first())

    def take_back(self) -> list[tuple[PendingBatch, DeliveryState | None]]:
        """Let all that was sent and not settled wait again, in its old order. Returns it, with the answers to it."""
        found = self.sent.take_back()
        self._batches.extendleft(batch for batch, _ in reversed(found))
        self._released += len(found)
        return found

    def pop_first(self) -> PendingBatch:
        """Take out the first one that waits."""
        batch = self._batches.popleft()
        self._released -= 1
        if batch is self._open:
            self._open = None
        return batch

    def cut_first(self, most_bytes: int) -> None:
        """The first one holds no more than that from now on, or one event."""
        batch = self._batches[0]
        assert batch.open is not None, "it was sealed"
        ends = list(accumulate(len(piece) + EVENT_COST for piece in batch.open.pieces))
        events = max(1, bisect_right(ends, most_bytes))
        if events == batch.events:
            return
        rest = batch.cut(events)
        self._batches.insert(1, rest)
        self._released += 1
        if batch is self._open:
            self._open = rest

    def withdraw(self, wanted: Callable[[PendingBatch], bool]) -> list[PendingBatch]:
        """Take out all that wait and are wanted."""
        found = [batch for batch in self._batches if wanted(batch)]
        self._released -= sum(map(wanted, islice(self._batches, self._released)))
        self._batches = deque(batch for batch in self._batches if not wanted(batch))
        if self._open in found:
            self._open = None
        return found

    def withdraw_released(self) -> list[PendingBatch]:
        return [self.pop_first() for _ in range(self._released)]
