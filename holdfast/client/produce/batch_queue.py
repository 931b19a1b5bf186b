"""Queue of what a partition's sender has not settled: batches that were sent and those that wait.

Rules never broken:
 - events stand in the order of the calls; a publication is a batch of its own;
 - a batch has no more events and bytes than are good for one transfer, unless a single event is larger;
 - what came in this turn of the loop is not given out before it is released. A batch that still waits goes on being
   filled: so batches grow by themselves while a partition is busy;
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
from holdfast.client.produce.in_flight_window import InFlightWindow
from holdfast.client.transport.links import BATCH_BYTES, OVERHEAD_BYTES, Sender

MOST_EVENTS = 2048  # in a batch; a link has no more unanswered events than eight such batches hold
MOST_BYTES = BATCH_BYTES - OVERHEAD_BYTES
SLOTS = 16  # unanswered batches beside which one goes on being filled; a full one gains nothing by that, and leaves
NO_LIMIT = sys.maxsize


def fitting(sizes: Sequence[int], room: int, more: int = 0) -> int:
    """Count the first ones that have no more bytes than that together, each with some `more`."""
    if sum(sizes) + more * len(sizes) <= room:
        return len(sizes)
    return bisect_right(list(accumulate(size + more for size in sizes)), room)


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
        size = len(record)
        if size > self.largest:
            self.check_sizes((record,))
        batch = self._filled(size)
        place = batch.extend((record,), size, bodies=body)
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
            batch = self._filled(sizes[at])
            those = sizes[at : at + self._most_events - batch.events]
            count = max(1, fitting(those, MOST_BYTES - batch.weight, EVENT_COST))
            place = batch.extend(records[at : at + count], sum(those[:count]), bodies=bodies)
            for number, event in enumerate(given[at : at + count]):
                if event is not None:
                    batch.given[place + number] = event
            parts.append(Delivery(batch, place, count))
            at += count
        return parts

    def _filled(self, size: int) -> PendingBatch:
        """The batch that takes the next event, of that size: the last one, or a new one behind it."""
        batch = self._open
        if batch is None or batch.events >= self._most_events or batch.weight + size + EVENT_COST > MOST_BYTES:
            batch = self._open = PendingBatch(self.partition, self._unclaimed)
            self._batches.append(batch)
        return batch

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
        events = max(1, fitting(list(map(len, batch.open.pieces)), most_bytes, EVENT_COST))
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
