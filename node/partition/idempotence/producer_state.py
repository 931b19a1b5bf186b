"""The idempotent producers of one partition: their next numbers, and the offsets of their last events.

The problem: a producer that heard no answer sends again, through whichever node leads by then, and what it sends again
may have been stored. The rule never broken: for one producer id and epoch, each number is stored at most once, and
numbers are stored in order without a gap. It is decided here, when entries are applied, from what earlier entries left
behind; nothing that a leader remembers on the side has a say.

Each record is a transfer of its own with a number of its own. One entry may hold many records that follow each other,
and a producer that sends again is never asked to cut its records as they were cut the first time: reception cuts them
where the network did. So the memory is of *records*, not of entries. A record that comes again is recognised by its
number and by the digest of its bytes, whatever it came together with; of an entry whose front is known, the rest is
new. The answer of each record is the one that it would get alone, except for records after a refused one in the same
entry: they are refused with it, since a producer must not go on after a refusal.

| a producer's record arrives with                         | and is                                              |
| -------------------------------------------------------- | --------------------------------------------------- |
| no state here: never opened, or forgotten                | refused, `unknown`: who sends must open anew         |
| an epoch below the one in force                          | refused, `stolen`                                    |
| a higher epoch that was not opened                       | as Kafka has it: number 0 opens it, else `order`     |
| the next number, or any number where the epoch has none  | stored                                               |
| a remembered number and the same digest                  | known: answered with its first place, not stored     |
| a number of the last REMEMBERED_EVENTS that its epoch    | known, its place forgotten: answered, not stored      |
| has stored, and whose digest made room                   |                                                      |
| anything else: a gap, other bytes, older than all that   | refused, `order`                                     |

Numbers run from 0 to 2^31 - 1 and then again from 0, also within an entry. Opening (`open`) is a command of its own,
because what it grants must survive the leader that granted it, and because a higher epoch that may begin at any number
must have been announced before its first record arrives.

What is forgotten is decided by the entries alone: by their order, and by the time that passed from one to the next
(`LONGEST_STEP_MS` of node/partition/state_machine.py), so that no leap of a leader's clock makes a producer forgotten.

Each number up to the last one of an epoch is stored, so a number alone tells that a record is; its digest tells that it
is the same record. Where memory is scarce the digests go and the count stays: a producer that keeps the rules hears the
truth about all that it can have under way, and one that reuses a number for another event is not caught at it.

Rejected: to grant credit by what is remembered (others may take the room after the credit was given, and a failover
finds it gone); remembering five entries, exactly as they were cut (a resend cut otherwise would be refused, and a
client told to give up, for the whim of a socket buffer); and one entry for each transfer (forty times the price).
Rejected, too: comparing stored bytes instead of digests. `apply` reads no disk, and retention may have removed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Literal, NamedTuple

import msgspec

from holdfast.records.record_batch import DIGEST_BYTES, SEQUENCES
from node.partition.partition_commands import OpenProducer
from node.partition.raft_entry import EntryHead

MAX_PRODUCER_ID = (1 << 63) - 1
MAX_EPOCH = (1 << 15) - 1

REMEMBERED_BATCHES = 5
REMEMBERED_EVENTS = 32_768
"""Records remembered of each producer: its last batches, and as many more as hold so many records. So many numbers are
known to be stored even when the digests have made room. A link may have half as many unanswered (the listener bounds
its credit by that), and the client twice that, when a connection breaks between the answers and the credit that
followed them. Half of it is what a producer of small events has under way in 20 ms, at 800,000 a second."""
LEAST_EVENTS = 4096
"""Records remembered of each producer if those of all producers do not fit into MEMORY_BYTES."""

MEMORY_BYTES = 16 << 20
"""Bytes remembered of the batches of all producers: they are written with every checkpoint. Beyond it the producers
that were silent longest come down to LEAST_EVENTS. Once none has more, the longest silent one loses its batches; its
repeated records are known by number only."""

MAX_PRODUCERS = 10_000
"""Producers known to one partition. Each costs some hundred bytes of every checkpoint, and clients that let the
partition choose their id leave one behind with each start. Room comes from the longest silent of those that have sent
nothing since they were opened, then of those that renew themselves, and only then from another one: a client that opens
producers by the thousand pushes out its own, and not those whose numbers protect stored events."""

EXPIRY_MS = 7 * 24 * 3600 * 1000
"""Time after which a producer that neither opened nor sent is forgotten, by the time lived in entries: a week, so that
a program stopped over a weekend can go on from its saved state."""

RENEWING_EXPIRY_MS = 24 * 3600 * 1000
"""The same for a producer that renews itself: it goes on without its state, and nobody saved that."""

ALLOCATED_FROM = 1 << 52
"""Lower bound of ids that a partition gives out: [2^52, 2^53), scattered by the entry's index and time. Below it are
the numbers that people write down, counters and microseconds since 1970; above it, numbers that a client in JavaScript
cannot hold. An id given out by one partition and used by mistake in another collides with none there."""

NOTHING = -1

FORGOTTEN = -1
"""Value of an offset that is not remembered, of a record that is stored."""

_BATCH = Struct(">IQq")  # records, base offset, timestamp
_MASK = (1 << 64) - 1

Code = Literal["producer-unknown", "producer-stolen", "out-of-order", "invalid-producer"]


class Producer(msgspec.Struct, array_like=True):
    """Row of a producer in a checkpoint. Fields are only ever added at the end."""

    producer_id: int
    epoch: int
    start: int  # the number that opening this epoch answered
    last: int = NOTHING  # the last number stored; NOTHING: none of this epoch
    touched_ms: int = 0
    batches: bytearray = msgspec.field(default_factory=bytearray)  # _BATCH each, oldest first
    digests: bytearray = msgspec.field(default_factory=bytearray)  # of the records of these batches
    touched_lived_ms: int = 0  # by the time that the log has lived
    stored: int = 0  # how many numbers up to `last` this epoch has stored; not counted beyond REMEMBERED_EVENTS
    renews: bool = False  # goes on with a higher epoch, or a new id, when it is forgotten

    @property
    def remembered(self) -> int:
        """Number of remembered records: those with the numbers up to `last`."""
        return len(self.digests) // DIGEST_BYTES

    @property
    def memory_bytes(self) -> int:
        return len(self.batches) + len(self.digests)


class StoredAt(NamedTuple):
    """Offsets of consecutive records."""

    events: int
    base_offset: int  # or FORGOTTEN
    timestamp_ms: int

    def offset(self, position: int) -> int:
        """Offset of one of the records, or FORGOTTEN."""
        return FORGOTTEN if self.base_offset == FORGOTTEN else self.base_offset + position


@dataclass(frozen=True, slots=True)
class Known:
    """The first records of a batch that are stored already, by their offsets; none: all are new."""

    places: tuple[StoredAt, ...] = ()

    @property
    def count(self) -> int:
        return sum(place.events for place in self.places)


@dataclass(frozen=True, slots=True)
class ProducerRefusal:
    """Refusal of a batch: nothing was stored. `known`: records at its front that are stored already; the one after them
    is refused."""

    code: Code
    detail: str
    known: Known = Known()


@dataclass(frozen=True, slots=True)
class Opening:
    """Numbers granted to an opened producer. `fenced`: its id was open with a lower epoch before."""

    producer_id: int
    epoch: int
    last_sequence: int
    fenced: bool


ALL_NEW = Known()


class ProducerTable:
    """Producers of a partition, ordered by when they were last heard of, the longest silent one first."""

    def __init__(self, rows: Iterable[Producer] = (), lived_ms: int = 0) -> None:
        self._lived_ms = lived_ms
        ordered = list(rows)
        self._by_id = {producer.producer_id: producer for producer in ordered}
        self._unused = {producer.producer_id: producer for producer in ordered if producer.last == NOTHING}
        self._renewing = {producer.producer_id: producer for producer in ordered if producer.renews}
        self._remembering = {producer.producer_id: producer for producer in ordered if producer.digests}
        self._with_plenty = {producer.producer_id: producer for producer in ordered if _has_plenty(producer)}
        self.memory_bytes = sum(producer.memory_bytes for producer in ordered)

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, producer_id: int) -> Producer | None:
        return self._by_id.get(producer_id)

    def rows(self) -> list[Producer]:
        """Rows in order, the longest silent one first, as a checkpoint keeps them."""
        return list(self._by_id.values())

    # ------------------------------------------------------------ opening

    def open(self, wish: OpenProducer, index: int, clock_ms: int) -> Opening | ProducerRefusal:
        """Open a producer. `clock_ms`: the time of the log, which never goes back."""
        wrong = nonsense(wish.producer_id, wish.epoch, wish.last_sequence)
        if wrong is not None:
            return ProducerRefusal("invalid-producer", wrong)
        producer = None if wish.producer_id is None else self._by_id.get(wish.producer_id)
        if producer is None:
            return self._create(wish, index, clock_ms)
        epoch = producer.epoch if wish.epoch is None else wish.epoch
        if epoch < producer.epoch:
            return ProducerRefusal("producer-stolen", _stolen(producer, epoch))
        fenced = epoch > producer.epoch
        if fenced:
            self._begin_epoch(producer, epoch)
        if producer.last == NOTHING:
            if wish.last_sequence is not None:
                producer.start = wish.last_sequence
            answer = producer.start
        else:
            answer = producer.last if wish.last_sequence is None else wish.last_sequence
        producer.renews = wish.renews
        self._touch(producer, clock_ms)
        return Opening(producer.producer_id, epoch, answer, fenced)

    def _create(self, wish: OpenProducer, index: int, clock_ms: int) -> Opening | ProducerRefusal:
        if wish.producer_id is not None and wish.epoch is not None and wish.last_sequence is not None:
            detail = (
                f"producer {wish.producer_id} is not known here: it never was, or has been silent too long. Its numbers"
                " cannot be continued; open it without a number, and expect that what was in doubt may be stored twice"
            )
            return ProducerRefusal("producer-unknown", detail)
        producer_id = self._allocate(index, clock_ms) if wish.producer_id is None else wish.producer_id
        if len(self._by_id) >= MAX_PRODUCERS:
            self._forget(next(iter((self._unused or self._renewing or self._by_id).values())))
        producer = Producer(producer_id, wish.epoch or 0, wish.last_sequence or 0, renews=wish.renews)
        self._touch(producer, clock_ms)
        return Opening(producer_id, producer.epoch, producer.start, False)

    def _allocate(self, index: int, clock_ms: int) -> int:
        """An id of the partition's own; equal on every replica."""
        seed = _scattered((clock_ms << 24) ^ index)
        while (chosen := ALLOCATED_FROM + seed % ALLOCATED_FROM) in self._by_id:
            seed += 1
        return chosen

    def _begin_epoch(self, producer: Producer, epoch: int) -> None:
        producer.epoch, producer.start, producer.last, producer.stored = epoch, 0, NOTHING, 0
        self._drop_batches(producer)

    # ------------------------------------------------------------ records

    def judge(self, batch: EntryHead) -> Known | ProducerRefusal:
        """Judge a producer's batch, without changing anything."""
        head = batch.head
        producer = self._by_id.get(head.producer_id)
        if producer is None:
            detail = f"producer {head.producer_id} is not known here (any more): open it anew"
            return ProducerRefusal("producer-unknown", detail)
        first, last = head.base_sequence, producer.last
        if head.producer_epoch != producer.epoch:
            if head.producer_epoch < producer.epoch:
                return ProducerRefusal("producer-stolen", _stolen(producer, head.producer_epoch))
            if first == 0:
                return ALL_NEW
            detail = f"epoch {head.producer_epoch} of producer {producer.producer_id} was not opened"
            return ProducerRefusal("out-of-order", f"{detail}: it may begin with number 0 only, not {first}")
        if last == NOTHING or first == (last + 1) % SEQUENCES:
            return ALL_NEW
        return compare(producer, batch)

    def accept(self, batch: EntryHead, stored: StoredAt, clock_ms: int) -> None:
        """Note a batch that was judged `Known`; `stored`: the offsets of its last records, which were new."""
        head = batch.head
        producer = self._by_id[head.producer_id]
        if head.producer_epoch > producer.epoch:
            self._begin_epoch(producer, head.producer_epoch)
        if stored.events:
            self._remember(producer, batch, stored)
        self._touch(producer, clock_ms)
        while self.memory_bytes > MEMORY_BYTES:
            self._make_room()

    def _remember(self, producer: Producer, batch: EntryHead, stored: StoredAt) -> None:
        before = producer.memory_bytes
        remember(producer, batch, stored, REMEMBERED_EVENTS)
        self.memory_bytes += producer.memory_bytes - before

    def _make_room(self) -> None:
        with_plenty = next(iter(self._with_plenty.values()), None)
        if with_plenty is None:
            self._drop_batches(next(iter(self._remembering.values())))
            return
        before = with_plenty.memory_bytes
        _forget_oldest(with_plenty)
        self.memory_bytes += with_plenty.memory_bytes - before
        if not _has_plenty(with_plenty):
            del self._with_plenty[with_plenty.producer_id]

    # ------------------------------------------------------------ forgetting

    def expire(self, lived_ms: int) -> None:
        """Forget producers whose time is over at this lived time of the log."""
        self._lived_ms = lived_ms
        for producers, expiry_ms in ((self._renewing, RENEWING_EXPIRY_MS), (self._by_id, EXPIRY_MS)):
            while producers:
                silent = next(iter(producers.values()))
                if silent.touched_lived_ms + expiry_ms >= lived_ms:
                    break
                self._forget(silent)

    def _touch(self, producer: Producer, clock_ms: int) -> None:
        producer.touched_ms, producer.touched_lived_ms = clock_ms, self._lived_ms
        producer_id = producer.producer_id
        self._by_id.pop(producer_id, None)
        self._by_id[producer_id] = producer
        self._unused.pop(producer_id, None)
        if producer.last == NOTHING:
            self._unused[producer_id] = producer
        self._renewing.pop(producer_id, None)
        if producer.renews:
            self._renewing[producer_id] = producer
        self._remembering.pop(producer_id, None)
        if producer.digests:
            self._remembering[producer_id] = producer
        self._with_plenty.pop(producer_id, None)
        if _has_plenty(producer):
            self._with_plenty[producer_id] = producer

    def _forget(self, producer: Producer) -> None:
        self._drop_batches(producer)
        self._unused.pop(producer.producer_id, None)
        self._renewing.pop(producer.producer_id, None)
        del self._by_id[producer.producer_id]

    def _drop_batches(self, producer: Producer) -> None:
        self.memory_bytes -= producer.memory_bytes
        producer.batches, producer.digests = bytearray(), bytearray()
        self._remembering.pop(producer.producer_id, None)
        self._with_plenty.pop(producer.producer_id, None)


def was_given_out(producer_id: int) -> bool:
    """Tell whether a partition gives out such ids; people do not write them down."""
    return ALLOCATED_FROM <= producer_id < 2 * ALLOCATED_FROM


def nonsense(producer_id: int | None, epoch: int | None, sequence: int | None) -> str | None:
    """The error text for impossible numbers; None: they are possible."""
    for what, value, highest in (
        ("id", producer_id, MAX_PRODUCER_ID),
        ("epoch", epoch, MAX_EPOCH),
        ("sequence number", sequence, SEQUENCES - 1),
    ):
        if value is not None and not 0 <= value <= highest:
            return f"a producer's {what} lies between 0 and {highest}, not at {value}"
    return None


def _stolen(producer: Producer, epoch: int) -> str:
    return (
        f"producer {producer.producer_id} was opened with epoch {producer.epoch}: epoch {epoch} must not send any more"
    )


def remember(producer: Producer, batch: EntryHead, stored: StoredAt, least_events: int) -> None:
    """Remember the last records of the batch, which were new and are stored there now. `least_events`: as of
    REMEMBERED_EVENTS."""
    count = batch.head.record_count
    producer.last = (batch.head.base_sequence + count - 1) % SEQUENCES
    producer.stored = min(producer.stored + stored.events, REMEMBERED_EVENTS)
    producer.batches += _BATCH.pack(*stored)
    producer.digests += batch.marks[(count - stored.events) * DIGEST_BYTES :]
    _shorten(producer, least_events)


def compare(producer: Producer, batch: EntryHead) -> Known | ProducerRefusal:
    """Compare a batch that does not begin with the next number: tell how much of its front is stored, with the same
    digests."""
    head, digests = batch.head, batch.marks
    remembered, who = producer.remembered, f"producer {producer.producer_id} (epoch {producer.epoch})"
    age = (producer.last - head.base_sequence) % SEQUENCES
    if age >= max(remembered, producer.stored):
        detail = (
            f"{who}: number {head.base_sequence} is neither the next one, {(producer.last + 1) % SEQUENCES}, nor one of"
            f" the {max(remembered, producer.stored)} before it that are known to be stored"
        )
        return ProducerRefusal("out-of-order", detail)
    forgotten = min(head.record_count, max(0, age + 1 - remembered))
    front = (StoredAt(forgotten, FORGOTTEN, 0),) if forgotten else ()
    position = max(0, remembered - 1 - age)
    count = min(head.record_count, age + 1) - forgotten
    width = DIGEST_BYTES
    stored = producer.digests[position * width : (position + count) * width]
    came = digests[forgotten * width : (forgotten + count) * width]
    if stored == came:
        return Known(front + _places(producer, position, count))
    same = next(i for i in range(count) if stored[i * width :][:width] != came[i * width :][:width])
    number = (head.base_sequence + forgotten + same) % SEQUENCES
    detail = f"{who}: number {number} was used before, for another event"
    return ProducerRefusal("out-of-order", detail, Known(front + _places(producer, position, same)))


def batches_of(producer: Producer) -> Iterator[StoredAt]:
    """Remembered batches, oldest first."""
    return (StoredAt(*fields) for fields in _BATCH.iter_unpack(producer.batches))


def rows_of(places: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """(records, offset of the first) of each run, with adjacent runs made one."""
    found: list[tuple[int, int]] = []
    for count, offset in places:
        if found and found[-1][1] != FORGOTTEN and sum(found[-1]) == offset:
            found[-1] = (found[-1][0] + count, found[-1][1])
        elif count:
            found.append((count, offset))
    return tuple(found)


def _places(producer: Producer, position: int, count: int) -> tuple[StoredAt, ...]:
    """Offsets of the remembered records [position, position + count)."""
    found: list[StoredAt] = []
    for batch in batches_of(producer):
        if position < batch.events and count:
            taken = min(count, batch.events - position)
            found.append(StoredAt(taken, batch.base_offset + position, batch.timestamp_ms))
            count -= taken
            position = 0
        else:
            position -= batch.events
    return tuple(found)


def _shorten(producer: Producer, least_events: int) -> None:
    """Forget the oldest batches that are not needed for either bound."""
    while _exceeds(producer, least_events):
        _forget_oldest(producer)


def _forget_oldest(producer: Producer) -> None:
    (oldest, _, _) = _BATCH.unpack_from(producer.batches)
    del producer.batches[: _BATCH.size]
    del producer.digests[: oldest * DIGEST_BYTES]


def _has_plenty(producer: Producer) -> bool:
    """Tell whether the producer has more than the least that is kept of each."""
    return _exceeds(producer, LEAST_EVENTS)


def _exceeds(producer: Producer, least_events: int) -> bool:
    """Tell whether the oldest batch is not needed for either bound."""
    if len(producer.batches) <= REMEMBERED_BATCHES * _BATCH.size:
        return False
    return producer.remembered - int(_BATCH.unpack_from(producer.batches)[0]) >= least_events


def _scattered(value: int) -> int:
    """splitmix64: near inputs, far outputs."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
