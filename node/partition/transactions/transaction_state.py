"""The transactions of one partition: which writes are allowed under them, and which of their events may be read.

The problem: events of a transaction are in the log before anybody knows whether they count; late arrivals (a begin, an
event, a marker, each delayed on a path of its own) must not find their way into the next transaction; and a consumer
that was replaced must not move its group's position by a commit that was already under way. The rule never broken:
applied entries alone decide what a committed reader sees, and it never changes afterwards.

A transaction is (producer id, epoch): its coordinator raises the epoch at each end, so the pair names one transaction
for ever. A partition takes part from `Begin` on, which is before its first event, most often right before it.

| arrives for (producer, epoch) | while                             | and is                                          |
| --------------------------- | --------------------------------- | ----------------------------------------------- |
| Begin                       | that epoch, or a later one, ended | refused, `ended`: it comes too late             |
|                             | it is open already                | done: it came again                             |
|                             | an earlier epoch is open          | refused, `undecided`: its marker is missing     |
|                             | too many are open                 | refused, `too-many`                             |
|                             | else                              | open from now on                                |
| events                      | its first ones, and too much was  |                                                 |
|                             | rolled back (MAX_RANGES)          | refused, `too-many`                             |
|                             | it is open                        | stored once each, by their numbers              |
|                             | else                              | refused, `ended`                                |
| StageOffset                 | open, and the claim is in force   | kept, invisible, until the end                  |
| Prepare                     | open, each staged claim in force  | done: these claims stay as they are until the end |
|                             | a staged claim was taken over     | refused, `doomed`: it can only abort            |
| marker                      | it is open                        | ended; staged offsets count, or are gone        |
|                             | that epoch, or a later one, ended | done: it came again                             |
|                             | it never began here               | done, and remembered: a late Begin is refused   |

A claim for a consumer group that is granted dooms every transaction that has staged an offset of the group and is not
prepared: the new owner starts at the group's present position, so what was staged must never count (KIP-447's hole).
While one is prepared, the claim is refused for the moment.

Committed readers see nothing from the last stable offset on (`last_stable_offset.py`), and below it nothing that was
aborted.

Rejected: Kafka's implicit begin by any event (one that is delayed until after its marker opens a transaction that
nobody ever ends; a begin that is delayed is known to be over, or asked about); and comparing coordinator epochs of
markers (decisions are replicated before any marker leaves).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from node.partition.idempotence.producer_state import (
    ALL_NEW,
    LEAST_EVENTS,
    MAX_EPOCH,
    MAX_PRODUCER_ID,
    NOTHING,
    Known,
    Producer,
    ProducerRefusal,
    StoredAt,
    compare,
    remember,
)
from node.partition.raft_entry import EntryHead
from node.partition.transactions.aborted_transactions import AbortedRange, AbortedRanges
from node.partition.transactions.control_record import Marker
from node.partition.transactions.last_stable_offset import LastStableOffset
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset

MAX_OPEN = 1000
"""Transactions open in one partition: each costs up to 20 KiB of every checkpoint, for the numbers it remembers."""

MAX_STAGED = 100
"""Consumer groups whose offsets one transaction moves in one partition. A program commits for the one it reads for."""

MAX_ENDED = 10_000
"""Producers whose last end is remembered. One that is forgotten may begin again by a delayed message: then the
partition asks the coordinator for its outcome, and aborts."""

MAX_TIMEOUT_MS = 4 * 3600 * 1000
"""Longest timeout of a transaction: committed readers may have to wait so long. It is for members of groups;
coordinators give others 15 minutes at most, as Kafka."""

Code = Literal["ended", "undecided", "doomed", "unknown", "too-many", "invalid", "not-owner", "out-of-order"]

# ---------------------------------------------------------------- results


class TransactionDone(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Success of a command, now or by the same one before."""


class TransactionRefused(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Refusal of a command: nothing was done."""

    code: Code
    detail: str


# ---------------------------------------------------------------- state


class StagedOffset(msgspec.Struct, array_like=True):
    key: str
    claim: int
    position: int


class OpenTransaction(msgspec.Struct, array_like=True):
    """Row of an open transaction. Fields are only ever added at the end."""

    producer: Producer  # its numbers, and which of them were stored
    coordinator: int
    timeout_ms: int
    begun_index: int
    begun_ms: int  # by the log's clock
    first_offset: int = NOTHING  # NOTHING: no event yet
    staged: list[StagedOffset] = []
    prepared: bool = False
    doomed: str = ""  # why it can only abort

    @property
    def key(self) -> tuple[int, int]:
        return self.producer.producer_id, self.producer.epoch


class EndedProducer(msgspec.Struct, array_like=True):
    """The last transaction of a producer that ended here."""

    producer_id: int
    epoch: int
    committed: bool


class TransactionsRow(msgspec.Struct, array_like=True):
    """Transactions of a partition in a checkpoint. Fields are only ever added at the end."""

    open: list[OpenTransaction] = []  # by the index of their begin
    ended: list[EndedProducer] = []  # the one that ended last comes last
    aborted: list[AbortedRange] = []  # in the order of their ends


@dataclass(frozen=True, slots=True)
class Ended:
    """Effect of a marker. `offsets`: those of consumer groups that count from now on."""

    offsets: tuple[StagedOffset, ...] = ()


class TransactionTable:
    def __init__(self, row: TransactionsRow | None = None) -> None:
        row = row or TransactionsRow()
        self._open = {one.producer.producer_id: one for one in row.open}
        self._last_stable = LastStableOffset(
            {one.key: one.first_offset for one in row.open if one.first_offset != NOTHING}
        )
        self._ended = {one.producer_id: one for one in row.ended}
        self._aborted = AbortedRanges(row.aborted)

    def row(self) -> TransactionsRow:
        """The row for a checkpoint; equal on equal replicas."""
        return TransactionsRow(list(self._open.values()), list(self._ended.values()), self._aborted.rows())

    # ------------------------------------------------------------ what may be read

    def stable_offset(self, next_offset: int) -> int:
        """The last stable offset of a log that ends at `next_offset`."""
        return self._last_stable.offset(next_offset)

    def is_aborted(self, transaction: tuple[int, int], offset: int) -> bool:
        """Tell whether the event of the transaction at `offset` was rolled back."""
        return self._aborted.contains(transaction[0], offset)

    @property
    def aborted(self) -> int:
        """Number of ranges in which aborted transactions still have events in the log."""
        return len(self._aborted)

    @property
    def is_any_open(self) -> bool:
        return bool(self._open)

    def open(self) -> list[OpenTransaction]:
        """Open transactions, the oldest first."""
        return list(self._open.values())

    def get(self, producer_id: int, epoch: int) -> OpenTransaction | None:
        found = self._open.get(producer_id)
        return found if found is not None and found.producer.epoch == epoch else None

    # ------------------------------------------------------------ begin

    def begin(self, command: Begin, index: int, clock_ms: int) -> TransactionDone | TransactionRefused:
        wrong = _nonsense(command.producer_id, command.epoch)
        if wrong is None and not 0 < command.timeout_ms <= MAX_TIMEOUT_MS:
            wrong = f"a transaction is given 1 to {MAX_TIMEOUT_MS} ms, not {command.timeout_ms}"
        if wrong is not None:
            return TransactionRefused("invalid", wrong)
        what = _name(command.producer_id, command.epoch)
        ended = self._ended.get(command.producer_id)
        if ended is not None and ended.epoch >= command.epoch:
            return TransactionRefused("ended", f"{what} has ended here: epoch {ended.epoch} was the last")
        found = self._open.get(command.producer_id)
        if found is not None:
            if found.producer.epoch == command.epoch:
                return TransactionDone()
            code: Code = "undecided" if found.producer.epoch < command.epoch else "ended"
            return TransactionRefused(code, f"{what} cannot begin while epoch {found.producer.epoch} is open here")
        if len(self._open) >= MAX_OPEN:
            return TransactionRefused("too-many", f"{MAX_OPEN} transactions are open in this partition; try later")
        producer = Producer(command.producer_id, command.epoch, 0, touched_ms=clock_ms)
        self._open[command.producer_id] = OpenTransaction(
            producer, command.coordinator, command.timeout_ms, index, clock_ms
        )
        return TransactionDone()

    # ------------------------------------------------------------ events

    def judge(self, batch: EntryHead) -> Known | TransactionRefused | ProducerRefusal:
        """Judge a batch of a transaction, without changing anything."""
        head = batch.head
        found = self.get(head.producer_id, head.producer_epoch)
        if found is None:
            detail = f"{_name(head.producer_id, head.producer_epoch)} is not open here: it has ended, or never began"
            return TransactionRefused("ended", detail)
        producer = found.producer
        if head.base_sequence == (0 if producer.last == NOTHING else producer.last + 1):
            return self._no_room(found) or ALL_NEW
        if producer.last == NOTHING:
            detail = f"{_name(*found.key)} begins with number 0, not {head.base_sequence}"
            return ProducerRefusal("out-of-order", detail)
        return compare(producer, batch)

    def _no_room(self, found: OpenTransaction) -> TransactionRefused | None:
        """The refusal of first events when a rollback would find no range for them. A transaction that only moves
        positions here needs none."""
        if found.first_offset != NOTHING or self._aborted.has_room_for(found.producer.producer_id):
            return None
        return TransactionRefused(
            "too-many",
            f"this partition holds {len(self._aborted)} ranges of events that were rolled back, and can pass over"
            " no more until retention has removed some; roll back less, or keep the log for a shorter time",
        )

    def accept(self, batch: EntryHead, stored: StoredAt) -> None:
        """Note a batch that was judged Known, and whose last records, at least one, are stored there now."""
        found = self._open[batch.head.producer_id]
        remember(found.producer, batch, stored, LEAST_EVENTS)
        if found.first_offset == NOTHING:
            found.first_offset = stored.base_offset
            self._last_stable.began(found.key, found.first_offset)

    # ------------------------------------------------------------ offsets of consumer groups

    def stage(self, command: StageOffset) -> TransactionDone | TransactionRefused:
        """Stage an offset. The caller has checked that the claim is in force and the position lies in the log."""
        found = self.get(command.producer_id, command.epoch)
        if found is None:
            what = _name(command.producer_id, command.epoch)
            return TransactionRefused("ended", f"{what} is not open here: it has ended, or never began")
        if found.doomed:
            return TransactionRefused("doomed", found.doomed)
        known = next((staged for staged in found.staged if staged.key == command.key), None)
        if found.prepared:
            if known is not None and known.claim == command.claim and known.position >= command.position:
                return TransactionDone()  # it came again
            return TransactionRefused("invalid", f"{_name(*found.key)} is about to be committed")
        if known is not None:
            known.claim, known.position = command.claim, max(known.position, command.position)
        elif len(found.staged) >= MAX_STAGED:
            return TransactionRefused("too-many", f"a transaction moves at most {MAX_STAGED} groups of a partition")
        else:
            found.staged.append(StagedOffset(command.key, command.claim, command.position))
        found.prepared = command.prepare
        return TransactionDone()

    def prepare(self, command: Prepare) -> TransactionDone | TransactionRefused:
        found = self.get(command.producer_id, command.epoch)
        if found is None:
            what = _name(command.producer_id, command.epoch)
            return TransactionRefused("unknown", f"{what} is not open here: it has ended, or never began")
        if found.doomed:
            return TransactionRefused("doomed", found.doomed)
        found.prepared = True
        return TransactionDone()

    def prepared_for(self, key: str) -> OpenTransaction | None:
        """A transaction that is about to be decided, with an offset of this consumer group."""
        return next((one for one in self._staging(key) if one.prepared), None)

    def doom(self, key: str, why: str) -> None:
        """Doom the transactions that have staged an offset of the group and are not prepared: it must never count."""
        for one in self._staging(key):
            if not one.prepared:
                one.doomed, one.staged = why, []

    def _staging(self, key: str) -> list[OpenTransaction]:
        return [one for one in self._open.values() if any(staged.key == key for staged in one.staged)]

    # ------------------------------------------------------------ the end

    def end(self, marker: Marker, next_offset: int) -> Ended | TransactionRefused:
        producer_id, epoch = marker.producer_id, marker.epoch
        wrong = _nonsense(producer_id, epoch)
        if wrong is not None:
            return TransactionRefused("invalid", wrong)
        found = self._open.get(producer_id)
        if found is not None and found.producer.epoch < epoch:
            detail = f"the end of {_name(producer_id, epoch)}, while epoch {found.producer.epoch} is open here"
            return TransactionRefused("undecided", detail)
        ended = self._ended.get(producer_id)
        if (ended is not None and ended.epoch >= epoch) or (found is not None and found.producer.epoch > epoch):
            return Ended()
        self._remember_end(EndedProducer(producer_id, epoch, marker.committed))
        if found is None:
            return Ended()
        del self._open[producer_id]
        self._last_stable.ended(found.key)
        wrote = found.first_offset != NOTHING
        if marker.committed:
            if wrote:
                self._aborted.committed(producer_id)
            return Ended(tuple(found.staged))
        if wrote:
            self._aborted.add(producer_id, found.first_offset, next_offset)
        return Ended()

    def _remember_end(self, ended: EndedProducer) -> None:
        self._ended.pop(ended.producer_id, None)
        self._ended[ended.producer_id] = ended
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    # ------------------------------------------------------------ forgetting

    def forget_below(self, start_offset: int) -> None:
        """Drop the ranges of events that are not stored any more."""
        self._aborted.forget_below(start_offset)


def _nonsense(producer_id: int, epoch: int) -> str | None:
    if not 0 <= producer_id <= MAX_PRODUCER_ID or not 0 <= epoch <= MAX_EPOCH:
        return f"there is no producer {producer_id} with epoch {epoch}"
    return None


def _name(producer_id: int, epoch: int) -> str:
    return f"the transaction of producer {producer_id}, epoch {epoch},"
