"""The state machine of one partition: `apply(index, entry) -> effects`, the same on every replica.

The problem: replicas must agree on every offset, for ever, whatever was committed. The rules: no clock, no random
number, no disk, no configuration in here: state and the entry decide alone; time comes in the command. An entry that
makes no sense is a recorded rejection with its reason, which takes an index but no offset; nothing is raised out of
`apply`. Offsets count accepted events without gaps; timestamps never go back, though the clocks of leaders do. Of an
idempotent producer's batch only what is new is accepted: see `producer_state.py`.

Rejected: letting the leader assign offsets and write them into the batch (a deposed leader's batches would carry
offsets that another one gave away).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from cluster.raft import UnknownEntry
from cluster.versions import INSTALL, UNSET, Layouts
from holdfast.records.record_batch import Damaged, UnknownBatch
from node.partition.consumer_groups.group_state import (
    Claim,
    Commit,
    ConsumerGroup,
    Delete,
    Denied,
    Done,
    EndClaim,
    GroupCommand,
    GroupTable,
    NoteCheckpoint,
    NoteOwner,
    Ousted,
    Owned,
    OwnerNoted,
)
from node.partition.idempotence.producer_state import (
    Producer,
    ProducerRefusal,
    ProducerTable,
    StoredAt,
    rows_of,
)
from node.partition.partition_commands import Append, Command, OpenProducer, Trim, UnknownCommand, decode
from node.partition.raft_entry import EntryHead
from node.partition.transactions.control_record import Marker
from node.partition.transactions.transaction_commands import Begin, Prepare, StageOffset
from node.partition.transactions.transaction_state import (
    Ended,
    TransactionDone,
    TransactionRefused,
    TransactionsRow,
    TransactionTable,
)

LAYOUT = 7
LAYOUTS = Layouts({14: LAYOUT})

LONGEST_STEP_MS = 60_000
"""Longest step of lived time from one entry to the next. A log that rested for a week looks just like a clock that
leapt by one, so of both only a minute counts. Things are forgotten late in a log that gets less than an entry a minute,
and never by a leap (except a terminus that was to outlive its link by less than that)."""

# ---------------------------------------------------------------- effects and results


@dataclass(frozen=True, slots=True)
class IndexBatch:
    """Put a row into the offset index: `count` events from `base_offset` are in the batch at byte `at` of entry
    `index`, after its first `skip` records, which are stored elsewhere."""

    base_offset: int
    index: int
    at: int
    timestamp_ms: int
    count: int
    bytes_before: int  # of all batches ever accepted before this one
    skip: int = 0
    transaction: tuple[int, int] | None = None  # (producer id, epoch), if the events belong to one


@dataclass(frozen=True, slots=True)
class ForgetBelow:
    """Forget events from `start_offset` up to `offset`, and entries up to `index`."""

    start_offset: int
    offset: int
    index: int


@dataclass(frozen=True, slots=True)
class Fence:
    """Tell that the producer was opened with this epoch, and that lower ones are fenced."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StableOffsetMoved:
    """Tell that a transaction has ended: committed readers may see more."""


Effect = IndexBatch | ForgetBelow | Fence | Ousted | StableOffsetMoved


@dataclass(frozen=True, slots=True)
class AppendAccepted:
    """Acceptance of a batch. Its first records were stored before, at `known`; the other `count` were stored now, at
    `base_offset`."""

    base_offset: int
    timestamp_ms: int
    count: int
    known: tuple[StoredAt, ...] = ()

    @property
    def duplicate(self) -> bool:
        """True if all records were known, and nothing was stored."""
        return self.count == 0

    def place_of(self, position: int) -> tuple[int, int]:
        """(offset or FORGOTTEN, timestamp) of a record of the batch."""
        return _find(self.known, position, self.base_offset, self.timestamp_ms)

    def rows(self, position: int, count: int) -> tuple[tuple[int, int], ...]:
        """(records, offset of the first) of each run among the records [position, position + count)."""
        return _rows((*self.known, StoredAt(self.count, self.base_offset, self.timestamp_ms)), position, count)


@dataclass(frozen=True, slots=True)
class Trimmed:
    start_offset: int


@dataclass(frozen=True, slots=True)
class Opened:
    """Numbers granted to a producer: its first number is the one after `last_sequence`."""

    producer_id: int
    epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class AppendRejected:
    """Rejection of a batch: nothing was stored. `known`: records at its front that were stored before."""

    code: str
    detail: str
    known: tuple[StoredAt, ...] = ()

    def place_of(self, position: int) -> tuple[int, int] | None:
        """(offset or FORGOTTEN, timestamp) of a record of the batch; None: it is refused."""
        if position >= sum(place.events for place in self.known):
            return None
        return _find(self.known, position, 0, 0)

    def rows(self, position: int, count: int) -> tuple[tuple[int, int], ...]:
        """(records, offset of the first) of each run among known records."""
        return _rows(self.known, position, count)


def _find(places: tuple[StoredAt, ...], position: int, base_offset: int, timestamp_ms: int) -> tuple[int, int]:
    for place in places:
        if position < place.events:
            return place.offset(position), place.timestamp_ms
        position -= place.events
    return base_offset + position, timestamp_ms


def _rows(places: tuple[StoredAt, ...], position: int, count: int) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for place in places:
        here = max(0, min(count, place.events - position))
        found.append((here, place.offset(position)))
        count -= here
        position = max(0, position - place.events)
    return rows_of(found)


Stored = AppendAccepted | AppendRejected
Result = (
    tuple[Stored, ...]
    | Trimmed
    | Opened
    | Owned
    | Done
    | OwnerNoted
    | Denied
    | TransactionDone
    | TransactionRefused
    | AppendRejected
)
Applied = tuple[Result, tuple[Effect, ...]]

# ---------------------------------------------------------------- state


class LogState(msgspec.Struct, array_like=True):
    """State of a partition in a checkpoint. Fields are only ever added at the end; `layout` says how to read them."""

    layout: int = LAYOUT
    applied_index: int = 0
    start_offset: int = 0
    next_offset: int = 0
    last_timestamp_ms: int = 0
    total_bytes: int = 0  # of all batches ever accepted
    trimmed_bytes: int = 0
    trimmed_index: int = 0  # entries up to here are not needed
    last_batch_index: int = 0
    rejections: int = 0
    last_rejection_index: int = 0
    clock_ms: int = 0  # the highest time in any entry; `last_timestamp_ms` is that of the last event
    duplicates: int = 0  # records that came again and were not stored
    producers: list[Producer] = []  # the longest silent one first; filled for a checkpoint only
    groups: list[ConsumerGroup] = []  # by key; filled for a checkpoint only
    stamped_ms: int = 0  # the time in the last entry that had one
    lived_ms: int = 0  # time that passed from entry to entry; forgetting goes by it
    transactions: TransactionsRow = msgspec.field(default_factory=TransactionsRow)  # filled for a checkpoint only


class WrongCheckpoint(ValueError):
    """Raised for a checkpoint that this program cannot read; it verified, so another version wrote it."""


class PartitionMachine:
    def __init__(self) -> None:
        self.state = LogState()
        self.producers = ProducerTable()
        self.ownership = GroupTable()
        self.transactions = TransactionTable()
        self._handlers: dict[type[Any], Callable[[int, Any], Applied]] = {
            Append: self._append,
            Marker: self._end_transaction,
            Trim: self._trim,
            OpenProducer: self._open,
            **dict.fromkeys((Claim, EndClaim, Commit, Delete, NoteOwner, NoteCheckpoint), self._group),
            Begin: self._begin,
            StageOffset: self._stage,
            Prepare: self._prepare,
        }

    @property
    def stable_offset(self) -> int:
        """The last stable offset: all events below are decided."""
        return self.transactions.stable_offset(self.state.next_offset)

    @property
    def counts_time(self) -> bool:
        """True while there are owners or open transactions, which end when nothing is heard of them."""
        return bool(self.ownership.active) or self.transactions.is_any_open

    # ------------------------------------------------------------ apply

    def apply(self, index: int, entry: bytes) -> Applied:
        state = self.state
        assert index > state.applied_index, f"entry {index} came after entry {state.applied_index}"
        state.applied_index = index
        try:
            command: Command = decode(entry)
        except (UnknownCommand, UnknownBatch) as error:
            raise UnknownEntry(f"entry {index}: {error}, which this program does not know: {INSTALL}") from error
        except Damaged as error:
            return self._reject(index, "damaged", str(error))
        return self._handlers[type(command)](index, command)

    def _append(self, index: int, command: Append) -> Applied:
        results: list[Stored] = []
        effects: list[Effect] = []
        for batch in command.batches:
            self._advance(batch.head.time_ms)
            result, effect = self._append_batch(index, batch)
            results.append(result)
            effects += effect
        return tuple(results), tuple(effects)

    def _append_batch(self, index: int, batch: EntryHead) -> tuple[Stored, tuple[Effect, ...]]:
        numbering = batch.head.numbering
        if numbering is None:
            return self._store(index, batch, ())
        if min(numbering) < 0:
            detail = f"producer {numbering.producer_id}, epoch {numbering.epoch}, number {numbering.base_sequence}"
            return self._refuse(index, "invalid-record", detail)
        state, transactional = self.state, batch.head.transaction is not None
        verdict = self.transactions.judge(batch) if transactional else self.producers.judge(batch)
        if isinstance(verdict, TransactionRefused):
            return self._refuse(index, f"transaction-{verdict.code}", verdict.detail)
        if isinstance(verdict, ProducerRefusal):
            state.duplicates += verdict.known.count
            return self._refuse(index, verdict.code, verdict.detail, verdict.known.places)
        skip = verdict.count
        state.duplicates += skip
        effects: tuple[Effect, ...] = ()
        if skip == batch.head.record_count:
            first, stored = verdict.places[0], StoredAt(0, 0, 0)
            result = AppendAccepted(first.base_offset, first.timestamp_ms, 0, verdict.places)
        else:
            result, effects = self._store(index, batch, verdict.places, skip)
            stored = StoredAt(result.count, result.base_offset, result.timestamp_ms)
        if not transactional:
            self.producers.accept(batch, stored, state.clock_ms)
        elif stored.events:
            self.transactions.accept(batch, stored)
        return result, effects

    def _store(
        self, index: int, batch: EntryHead, known: tuple[StoredAt, ...], skip: int = 0
    ) -> tuple[AppendAccepted, tuple[Effect, ...]]:
        """Give the records after the first `skip` their offsets."""
        state = self.state
        head, base, bytes_before = batch.head, state.next_offset, state.total_bytes
        count = head.record_count - skip
        timestamp_ms = max(state.last_timestamp_ms, head.time_ms)
        state.next_offset = base + count
        state.total_bytes = bytes_before + batch.size
        state.last_timestamp_ms = timestamp_ms
        state.last_batch_index = index
        effect = IndexBatch(base, index, batch.at, timestamp_ms, count, bytes_before, skip, head.transaction)
        return AppendAccepted(base, timestamp_ms, count, known), (effect,)

    def _open(self, index: int, command: OpenProducer) -> Applied:
        self._advance(command.timestamp_ms)
        opening = self.producers.open(command, index, self.state.clock_ms)
        if isinstance(opening, ProducerRefusal):
            return self._reject(index, opening.code, opening.detail)
        effects = (Fence(opening.producer_id, opening.epoch),) if opening.fenced else ()
        return Opened(opening.producer_id, opening.epoch, opening.last_sequence), effects

    def _group(self, index: int, command: GroupCommand) -> Applied:
        """Apply a command of a consumer group. A denial is no rejection: it tells one of two competing receivers which
        has the partition."""
        state = self.state
        self._advance(command.timestamp_ms)
        if takes := _takes_over(command):
            deciding = self.transactions.prepared_for(command.key)
            if deciding is not None:
                detail = f"a transaction of producer {deciding.producer.producer_id} that moves it is being decided"
                return Denied("deciding", f"{detail}; try again"), ()
        result, ousted = self.ownership.apply(command, index, state.clock_ms, state.next_offset)
        if takes and not isinstance(result, Denied):
            why = f"the offset that it staged for {command.key!r} came too late: another took over at entry {index}"
            self.transactions.doom(command.key, why)
        return result, () if ousted is None else (ousted,)

    # ------------------------------------------------------------ transactions

    def _begin(self, index: int, command: Begin) -> Applied:
        self._advance(command.timestamp_ms)
        return self.transactions.begin(command, index, self.state.clock_ms), ()

    def _stage(self, _: int, command: StageOffset) -> Applied:
        state = self.state
        self._advance(command.timestamp_ms)
        if not 0 <= command.position <= state.next_offset:
            detail = f"the position {command.position} does not lie in this log, which ends at {state.next_offset}"
            return TransactionRefused("invalid", detail), ()
        row = self.ownership.get(command.key)
        if row is None or row.claim != command.claim or not command.claim:  # 0: an operator's commit left none in force
            detail = f"claim {command.claim} for {command.key!r} was succeeded by another, or let go for good"
            return TransactionRefused("not-owner", detail), ()
        return self.transactions.stage(command), ()

    def _prepare(self, _: int, command: Prepare) -> Applied:
        self._advance(command.timestamp_ms)
        return self.transactions.prepare(command), ()

    def _end_transaction(self, _: int, marker: Marker) -> Applied:
        state = self.state
        self._advance(marker.timestamp_ms)
        ended = self.transactions.end(marker, state.next_offset)
        if not isinstance(ended, Ended):
            return ended, ()
        for staged in ended.offsets:
            self.ownership.commit_staged(staged.key, staged.claim, staged.position, state.clock_ms)
        return TransactionDone(), (StableOffsetMoved(),)

    def _advance(self, time_ms: int) -> None:
        """Advance the time by what an entry says; it never goes back. Clocks of leaders leap; lived time does not."""
        state = self.state
        state.clock_ms = max(state.clock_ms, time_ms)
        step_ms = min(time_ms - state.stamped_ms, LONGEST_STEP_MS)
        state.stamped_ms = time_ms
        if step_ms > 0:
            state.lived_ms += step_ms
            self.producers.expire(state.lived_ms)
            self.ownership.expire(state.lived_ms)

    def _trim(self, index: int, command: Trim) -> Applied:
        state = self.state
        if command.offset <= state.start_offset:
            return self._reject(index, "already-trimmed", f"events begin at {state.start_offset}")
        if not (
            command.offset <= self.stable_offset
            and state.trimmed_index < command.index < index
            and state.trimmed_bytes <= command.bytes_before <= state.total_bytes
        ):
            return self._reject(index, "invalid-trim", f"{command} does not fit {state}")
        effect = ForgetBelow(state.start_offset, command.offset, command.index)
        state.start_offset = command.offset
        state.trimmed_index = command.index
        state.trimmed_bytes = command.bytes_before
        self.transactions.forget_below(command.offset)
        return Trimmed(command.offset), (effect,)

    def _reject(self, index: int, code: str, detail: str) -> Applied:
        return self._refuse(index, code, detail)

    def _refuse(
        self, index: int, code: str, detail: str, known: tuple[StoredAt, ...] = ()
    ) -> tuple[AppendRejected, tuple[Effect, ...]]:
        self.state.rejections += 1
        self.state.last_rejection_index = index
        return AppendRejected(code, f"entry {index}: {detail}", known), ()

    # ------------------------------------------------------------ checkpoint

    def checkpoint(self, version: int = UNSET) -> bytes:
        """Encode the state in the layout of a version. Equal bytes mean equal replicas."""
        full = msgspec.structs.replace(
            self.state,
            layout=LAYOUTS.at(version),
            producers=self.producers.rows(),
            groups=self.ownership.rows(),
            transactions=self.transactions.row(),
        )
        return msgspec.msgpack.encode(full)

    def restore(self, data: bytes | None) -> None:
        if data is None:
            self.state, self.producers, self.ownership = LogState(), ProducerTable(), GroupTable()
            self.transactions = TransactionTable()
            return
        try:
            state = msgspec.msgpack.decode(data, type=LogState)
        except msgspec.DecodeError as error:
            raise WrongCheckpoint(f"the checkpoint of a partition cannot be read: {error}") from error
        if state.layout not in LAYOUTS:
            raise WrongCheckpoint(f"checkpoint layout {state.layout}; this program reads {LAYOUTS}")
        self.producers = ProducerTable(state.producers, state.lived_ms)
        self.ownership = GroupTable(state.groups, state.lived_ms)
        self.transactions = TransactionTable(state.transactions)
        self.state = msgspec.structs.replace(state, producers=[], groups=[], transactions=TransactionsRow())


def _takes_over(command: GroupCommand) -> bool:
    """Tell whether the command's sender goes on from the group's present position."""
    return isinstance(command, Claim | Delete | NoteCheckpoint) or (isinstance(command, Commit) and not command.claim)
