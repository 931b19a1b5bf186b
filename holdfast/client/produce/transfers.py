"""What goes out together, and what of it is under way.

Problem: the peer answers transfers, and a program asks for its events. Where a link carries record batches, one
transfer is hundreds of events: to keep book on each of them would cost more than to send them.
Rules never broken:
 - a transfer is a record batch, or a single message on other links, and hears one outcome;
 - a transfer holds what stood side by side in the queue, in that order;
 - what is taken back comes in the order in which it was sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from holdfast.amqp.links.delivery_states import ACCEPTED, DeliveryState
from holdfast.client.errors import EventTooLargeError
from holdfast.client.produce.chunks.chunk import Run
from holdfast.client.produce.idempotent.producer_identity import following
from holdfast.client.produce.receipts import receipt_of
from holdfast.client.produce.round_trips import RoundTrips
from holdfast.client.transport.batch_transfers import EVENT_BYTES
from holdfast.client.transport.links import Sender
from holdfast.records.codec import Codec
from holdfast.records.lengths import table_of
from holdfast.records.record_batch import Numbering, RecordBatch, seal

# Single messages handed to the engine in one go: enough to amortise the call, few enough that others get their turn.
PUMP_MESSAGES = 512
# The same in bytes: the connection is asked for room again after so much.
PUMP_BYTES = 256 * 1024
# While something is under way, a run is not cut for less, nor for less than a whole batch.
LEAST_CUT = 512


class Transfer:
    """Events that travel in one transfer."""

    __slots__ = ("events", "numbering", "runs", "sent_s", "size")

    def __init__(self, runs: list[Run], events: int, size: int) -> None:
        self.runs, self.events, self.size = runs, events, size
        self.sent_s = 0.0
        self.numbering: Numbering | None = None  # of an idempotent producer's

    def stands_at(self, offset: int, partition: str) -> None:
        for run in self.runs:
            run.stands_at(offset, partition)
            offset += run.events

    def messages(self) -> list[bytes]:
        """Each for itself, as it travels."""
        return [message for run in self.runs for message in run.messages()]

    @property
    def message_bytes(self) -> int:
        """Of its messages together, at most."""
        return sum(run.weight(0) for run in self.runs)

    def sealed(self, codec: Codec) -> RecordBatch:
        """Its record batch."""
        runs, bodies = self.runs, all(run.bodies for run in self.runs)
        digests = b"".join([run.digests for run in runs]) if self.numbering is not None else b""
        if bodies or not any(run.bodies for run in runs):
            lengths, pieces = b"".join([run.lengths for run in runs]), [run.data for run in runs]
            batch = seal(lengths, pieces, bodies=bodies, codec=codec, digests=digests)
        else:
            messages = self.messages()
            batch = seal(table_of(messages), messages, bodies=False, codec=codec, digests=digests)
        return batch if self.numbering is None else batch.numbered(self.numbering)


class Room(NamedTuple):
    """What may go out over a link in one go."""

    batches: bool
    events: int
    batch_bytes: int  # of the events in one batch, each with EVENT_BYTES
    scarce: bool  # of batches: an answer to what is under way will make room for a better piece


def room_of(sender: Sender, most_events: int) -> Room:
    if sender.sends_batches:
        scarce = most_events < min(LEAST_CUT, sender.batch_events)
        return Room(True, min(most_events, sender.batch_events), sender.batch_bytes, scarce)
    return Room(False, min(most_events, PUMP_MESSAGES), 0, False)


def next_transfers(waiting: deque[Run], room: Room) -> list[Transfer]:
    """The next ones, taken out of the queue. A message that is larger than the link takes has a transfer of its own.
    Where this fails, the queue is as it was."""
    taken: list[Run] = []
    try:
        if room.batches:
            return [_next_transfer(waiting, taken, room.events, room.batch_bytes)]
        return _next_singles(waiting, taken, room.events)
    except BaseException:
        waiting.extendleft(reversed(taken))
        raise


def _next_singles(waiting: deque[Run], taken: list[Run], most_events: int) -> list[Transfer]:
    size = 0
    while waiting and size < PUMP_BYTES and len(taken) < most_events:
        run = waiting[0]
        few = max(1, (PUMP_BYTES - size) // run.largest) if run.size > PUMP_BYTES - size else run.events
        singles, rest = run.singles(min(few, most_events - len(taken)))
        if rest is None:
            waiting.popleft()
        else:
            waiting[0] = rest
        taken += singles
        size += run.size if rest is None else run.size - rest.size
    return [Transfer([one], 1, one.size) for one in taken]


def _next_transfer(waiting: deque[Run], taken: list[Run], most_events: int, most_bytes: int) -> Transfer:
    """At least one event, whatever its size. Those that have numbers follow each other."""
    events = size = 0
    while waiting and events < most_events:
        run = waiting[0]
        if taken and not _follows(run, taken[-1]):
            break
        count = run.fitting(most_events - events, most_bytes, EVENT_BYTES)
        if not count and taken:
            break
        count = count or 1  # one that is larger than all others may be together
        if count < run.events:
            run, waiting[0] = run.cut(count)
        else:
            waiting.popleft()
        taken.append(run)
        most_bytes -= run.weight(EVENT_BYTES)
        events += run.events
        size += run.size
    return Transfer(taken, events, size)


def _follows(run: Run, before: Run) -> bool:
    """Its numbers go on where those of the other end, or neither has any yet."""
    if before.sequence_number is None:
        return run.sequence_number is None
    return run.sequence_number == following(before.sequence_number, before.events)


def without_too_large(
    waiting: deque[Run], transfers: list[Transfer], limit: int, refuse: Callable[[Transfer, EventTooLargeError], None]
) -> list[Transfer]:
    """Those whose messages a link takes; a node would end the link for any other, at each attempt. Each such message
    has a transfer of its own. Where the sizes cannot be told, all stand in the queue again."""
    try:
        sizes = [transfer.message_bytes for transfer in transfers]
    except BaseException:
        waiting.extendleft(run for transfer in reversed(transfers) for run in reversed(transfer.runs))
        raise
    if max(sizes, default=0) <= limit:
        return transfers
    fitting: list[Transfer] = []
    for transfer, size in zip(transfers, sizes, strict=True):
        if size <= limit:
            fitting.append(transfer)
        else:
            refuse(transfer, EventTooLargeError.of(size, limit))
    return fitting


def transfer_of(runs: Iterable[Run]) -> Transfer:
    """All of these, whether they would go into one transfer or not."""
    found = list(runs)
    return Transfer(found, *weight_of(found))


def weight_of(those: Iterable[Run | Transfer], *more: Iterable[Transfer]) -> tuple[int, int]:
    """Events and bytes of all of these."""
    found = [(one.events, one.size) for part in (those, *more) for one in part]
    return sum(events for events, _ in found), sum(size for _, size in found)


def worth_waiting(waiting: deque[Run], room: Room) -> bool:
    """Whether a run would be cut for a small piece now. Only while something is under way, or nobody would go on."""
    return room.scarce and waiting[0].events > room.events


class UnderWay:
    """Transfers that a link has not answered, by its numbers, in the order sent."""

    def __init__(self) -> None:
        self.events = 0
        self.round_trips = RoundTrips()
        self._transfers: dict[int, Transfer] = {}

    def __bool__(self) -> bool:
        return bool(self._transfers)

    @property
    def transfers(self) -> Iterable[Transfer]:
        return self._transfers.values()

    def send(
        self, sender: Sender, transfers: Sequence[Transfer], *, now_s: float, txn_id: bytes | None = None
    ) -> Sequence[int]:
        """Returns their numbers."""
        numbers: Sequence[int]
        if sender.sends_batches:
            numbers = [sender.send_batch(one.sealed(sender.codec), txn_id=txn_id) for one in transfers]
        else:
            messages = [message for transfer in transfers for message in transfer.messages()]
            numbers = sender.send_many(messages, txn_id=txn_id)
        self._transfers.update(zip(numbers, transfers, strict=True))
        for transfer in transfers:
            transfer.sent_s = now_s
            self.events += transfer.events
        return numbers

    def says_stored(self, number: int, state: DeliveryState) -> bool:
        """Whether this outcome says that the transfer is stored. Where it tells the place, it is told to the
        transfer and to those behind it that stand in the same row."""
        if state is ACCEPTED:
            return True
        row = receipt_of(state)
        if row is None:
            return False
        transfer = self._transfers.get(number)
        single = transfer is None or transfer.events == 1  # a batch stands side by side, and is answered for itself
        for one in range(number, number + (min(row.events, len(self._transfers)) if single else 1)):
            if (transfer := self._transfers.get(one)) is not None:
                transfer.stands_at(row.base_offset + one - number, row.partition)
        return True

    def pop(self, number: int, now_s: float) -> Transfer | None:
        """It was answered. None: it is not here any more."""
        transfer = self._transfers.pop(number, None)
        if transfer is not None:
            self.events -= transfer.events
            self.round_trips.took(transfer.runs[0].since_s, transfer.sent_s, now_s)
        return transfer

    @property
    def first(self) -> tuple[int, Transfer] | None:
        """Of those that are not answered."""
        return next(iter(self._transfers.items()), None)

    def take_back(self) -> list[tuple[int, Transfer]]:
        """All, with their numbers. Nothing is under way then."""
        found = list(self._transfers.items())
        self._transfers.clear()
        self.events = 0
        return found


def runs_of(transfers: Iterable[tuple[int, Transfer]]) -> list[Run]:
    """Of transfers that were taken back or not accepted, in the order in which they were sent."""
    return [run for _, transfer in sorted(transfers, key=lambda entry: entry[0]) for run in transfer.runs]
