"""A batch of the client, and what its owners hold meanwhile: asked for by awaiting, or told to a callback.

Problem: a program that sends event by event asks seldom what became of one, and a thousand objects kept for each batch
cost more than to send it. So the outcome stands in the batch, and a `Delivery` only says which events of it it means.
Rules never broken:
 - a batch is settled exactly once, as confirmed or with the error: all of its events with it;
 - whoever awaits one goes on in the turn of the event loop in which it is settled, before anybody who waits for room.
   Each has a future of its own: one for all, shielded, takes a turn more;
 - a failure is heard by the callback of its event, or by a caller that waits for it and does not stop. Of each other
   one the producer is told, so that `flush` raises it;
 - callbacks are called in the order of sending; one that raises is the program's fault, and stops nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES
from holdfast.amqp.messages.message import offset_text
from holdfast.client.callbacks import FAULTS, report
from holdfast.client.errors import BatchFullError, HoldfastError, InvalidOperationError
from holdfast.client.events import Event, as_event, encode_event
from holdfast.client.produce.event_batch import MAX_BATCH_EVENTS, EventBatch
from holdfast.client.produce.producer_identity import following
from holdfast.client.transport.links import EVENT_BYTES
from holdfast.records.codec import Codec
from holdfast.records.digests import digests_of, digests_of_messages
from holdfast.records.record_batch import OpenBatch, RecordBatch

Done = Callable[[HoldfastError | None], None]

EVENT_COST = EVENT_BYTES + MAX_HEAD_BYTES  # bytes of an event in a batch besides its record, at most


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The place where events stand. `offset` and `sequence_number` are those of the first one: the offset as a consumer
    sees it, None if the node does not tell; the number is None without idempotence."""

    partition: str | None
    offset: str | None
    sequence_number: int | None
    count: int


class PendingBatch:
    """Events that go to one partition together: first filled, then sealed and sent, then settled. A batch that is not
    sent yet may be cut; then `rest` holds what stood behind the cut."""

    __slots__ = (
        "_asked", "_dones", "_unclaimed", "_waiters", "error", "events", "given", "in_doubt", "is_settled", "number",
        "offset", "open", "partition", "publication", "rest", "sealed", "sent_s", "since_s", "size", "stands_alone",
    )  # fmt: skip

    def __init__(self, partition: str, unclaimed: Callable[[PendingBatch], None]) -> None:
        """`unclaimed`: told of it when events of it fail with nobody to hear."""
        self.partition = partition
        self.events = self.size = 0
        self.open: OpenBatch | None = OpenBatch()  # None: it was sealed
        self.sealed: RecordBatch | None = None
        self.rest: PendingBatch | None = None
        self.stands_alone = False  # a call of its own publishes it: nothing else is put into it, and it is not cut
        self.publication: EventBatch | None = None  # whose events these are, to be told with it
        self.number: int | None = None  # of the first event, once it was sent by an idempotent producer
        self.in_doubt = False  # it was sent, and may be stored although nobody said so
        self.offset: int | None = None  # of the first event, when a node has told
        self.since_s = monotonic()  # events are here since then, in the time of the event loop
        self.sent_s = 0.0
        self.is_settled = False
        self.error: HoldfastError | None = None  # why it failed, once it has
        self._unclaimed = unclaimed
        self._dones: dict[int, Done] = {}  # by place
        self.given: dict[int, Event] = {}  # objects that learn their numbers, by place
        self._asked: dict[int, int] = {}  # somebody hears of so many events from a place on
        self._waiters: dict[asyncio.Future[None], None] = {}

    # ---------------------------------------------------------------- while it is filled

    def extend(self, records: Sequence[bytes], size: int, *, bodies: bool) -> int:
        """Take encoded messages, or the bodies of messages that are nothing else. Returns the place of the first."""
        assert self.open is not None, "it is sealed"
        place = self.events
        self.open.extend(records, bodies=bodies)
        self.events += len(records)
        self.size += size
        return place

    def tell(self, place: int, done: Done) -> None:
        """Call this when the event is settled."""
        self._dones[place] = done
        self._asked[place] = 1

    @property
    def weight(self) -> int:
        """Bytes of the events in the batch that is sent, at most."""
        return self.size + self.events * EVENT_COST

    def seal(self, codec: Codec, *, with_digests: bool) -> RecordBatch:
        """The batch as it is sent, each time the same. `with_digests`: its events are recognised one by one, also in
        another cut."""
        if self.sealed is None:
            batch = self.open
            assert batch is not None, "it is settled"
            digests = b""
            if with_digests:
                digests = digests_of(batch.pieces) if batch.are_bodies else digests_of_messages(batch.pieces)
            self.sealed, self.open = batch.seal(codec, digests), None
        return self.sealed

    def cut(self, events: int) -> PendingBatch:
        """Leave the first ones here; the others are in what is returned."""
        batch = self.open
        assert batch is not None, "it was sealed"
        rest = self.rest = PendingBatch(self.partition, self._unclaimed)
        rest.since_s = self.since_s
        pieces, batch.pieces = batch.pieces, batch.pieces[:events]
        size = min(sum(map(len, batch.pieces)), self.size)  # as it was given, which both together keep
        rest.extend(pieces[events:], self.size - size, bodies=batch.are_bodies)
        self.events, self.size = events, size
        for here, there in ((self._dones, rest._dones), (self.given, rest.given)):
            for place in [place for place in here if place >= events]:
                there[place - events] = here.pop(place)  # type: ignore[assignment]
        for place, count in list(self._asked.items()):
            if place + count > events:
                del self._asked[place]
                if place < events:
                    self._asked[place] = events - place
                first = max(0, place - events)
                rest._asked[first] = place + count - events - first
        return rest

    # ---------------------------------------------------------------- what became of it

    def settle(self, error: HoldfastError | None) -> None:
        """Say what became of it; the sender does, once."""
        assert not self.is_settled, "a batch was settled twice"
        self.is_settled, self.error = True, error
        self.open = self.sealed = None  # who keeps a delivery keeps no events
        if error is not None:
            self.number = None
        for place, event in self.given.items():
            event.being_published = False
            event.published_sequence_number = self.number_at(place)
        if self.publication is not None:
            if error is None:
                self.publication.published(self.number)
            else:
                self.publication.unlock()
            self.publication = None
        for future in self._waiters:
            if not future.done():  # else it was cancelled
                future.set_result(None)
        dones, self._dones = self._dones, {}  # what a callback holds is not held for the sake of the others
        for done in dones.values():
            try:
                done(error)
            except FAULTS as problem:
                report("of a delivery", problem)
        if self.unheard:
            self._unclaimed(self)

    @property
    def unheard(self) -> int:
        """Events that failed, and of which nobody has heard."""
        return 0 if self.error is None else self.events - sum(self._asked.values())

    def number_at(self, place: int) -> int | None:
        return None if self.number is None else following(self.number, place)

    # ---------------------------------------------------------------- from those who ask

    def ask(self, place: int, events: int) -> bool:
        """Note that somebody hears of a failure of these. Returns True if nobody did before."""
        is_new = place not in self._asked
        self._asked[place] = events
        return is_new

    def was_told(self) -> None:
        """The producer has told of all that failed here."""
        self._asked = {0: self.events}

    def let_go(self, place: int) -> None:
        """Take back `ask`."""
        self._asked.pop(place, None)
        if self.unheard:
            self._unclaimed(self)

    def __await__(self) -> Generator[object, None, None]:
        """Wait until it is settled."""
        if self.is_settled:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[future] = None
        try:
            yield from future
        finally:
            self._waiters.pop(future, None)


def claim(events: Sequence[Event]) -> None:
    """Note that they are published from now on; raises if one of them cannot be, and claims none then."""
    for event in events:
        if event.published_sequence_number is not None:
            raise InvalidOperationError(f"an event was published before, with number {event.published_sequence_number}")
        if event.being_published:
            raise InvalidOperationError("an event is being published already")
    if len(set(map(id, events))) < len(events):
        raise InvalidOperationError("an event stands in the list twice")
    for event in events:
        event.being_published = True


def publication_of(
    batch: EventBatch | Sequence[Event | bytes | str], key: str | None, partition: str, *, named: bool
) -> PendingBatch:
    """Make the batch that an idempotent producer publishes as a whole. `named`: by a producer with `partition_options`,
    which publishes an event only once (Event Hubs)."""
    if len(batch) > MAX_BATCH_EVENTS:
        raise BatchFullError(
            f"{len(batch)} events: an idempotent producer publishes at most {MAX_BATCH_EVENTS} together",
            advice="give them in several lists, or to send_many",
        )
    pending = PendingBatch(partition, lambda _: None)  # its publisher hears of a failure
    pending.stands_alone = True
    if isinstance(batch, EventBatch):
        batch.lock()
        pending.publication, contents = batch, batch.contents
    else:
        events = [as_event(event, key, None) for event in batch]
        contents = [encode_event(event.body, event.key, event.properties) for event in events]
        pending.given = {place: event for place, event in enumerate(batch) if isinstance(event, Event)}
        if named:
            claim(list(pending.given.values()))
    pending.extend(contents, sum(map(len, contents)), bodies=False)
    return pending


class Delivery:
    """The events of one call on their way. Await it for one `DeliveryResult` of them all; it raises if any of them was
    not stored, or may not be."""

    __slots__ = ("_batch", "_count", "_more", "_place")

    def __init__(self, batch: PendingBatch, place: int, count: int, more: Sequence[Delivery] = ()) -> None:
        """`more`: events of other batches, behind these."""
        self._batch, self._place, self._count, self._more = batch, place, count, more

    @classmethod
    def of(cls, parts: Sequence[Delivery], partition: str) -> Delivery:
        """One delivery of these, each of one batch. Without any it is done."""
        if parts:
            return cls(parts[0]._batch, parts[0]._place, parts[0]._count, parts[1:])
        nothing = PendingBatch(partition, lambda _: None)
        nothing.settle(None)
        return cls(nothing, 0, 0)

    def _parts(self) -> Iterable[tuple[PendingBatch, int, int]]:
        """The places where the events are by now: a batch may have been cut."""
        if self._batch.rest is None and not self._more:  # as most are
            return ((self._batch, self._place, self._count),)
        return self._found()

    def _found(self) -> Iterator[tuple[PendingBatch, int, int]]:
        for part in (self, *self._more):
            batch, place, count = part._batch, part._place, part._count
            while batch.rest is not None and place + count > batch.events:
                here = batch.events - place
                if here > 0:
                    yield batch, place, here
                    count -= here
                place, batch = max(0, -here), batch.rest
            yield batch, place, count

    def _first(self) -> tuple[PendingBatch, int]:
        batch, place, _ = next(iter(self._parts()))
        return batch, place

    @property
    def count(self) -> int:
        """Events of it."""
        return self._count + sum(part._count for part in self._more)

    @property
    def failed(self) -> int:
        """Events of it that were not stored, or may not be; once it is done."""
        return sum(count for batch, _, count in self._parts() if batch.error is not None)

    @property
    def event(self) -> Event | None:
        """The object that an idempotent producer was given, and which learns its number; None: it was none."""
        batch, place = self._first()
        return batch.given.get(place)

    @property
    def is_done(self) -> bool:
        return all(batch.is_settled for batch, _, _ in self._parts())

    @property
    def error(self) -> HoldfastError | None:
        """The error with which it failed; None: it has not."""
        return next((batch.error for batch, _, _ in self._parts() if batch.error is not None), None)

    @property
    def partition(self) -> str | None:
        """The partition of the first event."""
        return self._batch.partition

    @property
    def offset(self) -> int | None:
        """The offset of the first event; None: it is not done, or nobody told."""
        batch, place = self._first()
        return None if batch.offset is None or not batch.is_settled else batch.offset + place

    @property
    def sequence_number(self) -> int | None:
        """The number of the first event; None: it is not done, or its producer is not idempotent."""
        batch, place = self._first()
        return batch.number_at(place) if batch.is_settled else None

    @property
    def offset_text(self) -> str | None:
        """The offset as consumers see it."""
        offset = self.offset
        return None if offset is None else offset_text(offset)

    def __await__(self) -> Generator[object, None, DeliveryResult]:
        if not self.is_done:
            is_new = [batch.ask(place, count) for batch, place, count in self._parts()]
            try:
                while not self.is_done:
                    for batch, _, _ in self._parts():
                        yield from batch.__await__()
            except BaseException:  # who waits was cancelled: it does not hear of it
                if any(is_new):
                    for batch, place, _ in self._parts():
                        batch.let_go(place)
                raise
        return self.result()

    def result(self) -> DeliveryResult:
        """Return or raise the outcome of one that is done."""
        assert self.is_done, "await it first"
        for batch, place, count in self._parts():
            batch.ask(place, count)
        error = self.error
        if error is not None:
            failed, count = self.failed, self.count
            if failed < count:
                note = f"{failed} of the {count} events failed; this is the first failure"
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)
            raise error.with_traceback(None)  # kept, and raised to each who asks: else it would keep their frames
        return DeliveryResult(self.partition, self.offset_text, self.sequence_number, self.count)
