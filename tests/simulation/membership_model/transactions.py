"""The begin of a transaction, while the replicas of its partitions change.

A partition is what its group has agreed on, which the rest of the model is about: here its leader changes at once, to a
replica that has everything, or to one that came anew, by a checkpoint. What was sent to a partition or to the
coordinator stays under way, and arrives at any time and again. What decides is the production code: `TransactionTable`
in each partition, `CoordinatorMachine` at the coordinator. A transaction writes one event to a partition.

Left out: staged offsets, transaction groups, checks of numbers, what is forgotten after a week, and time. Whatever may
be overdue is so at any moment, and a node counts as gone at any moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import msgspec

from node.partition.idempotence.producer_state import NOTHING
from node.partition.transactions.control_record import ControlType, Marker
from node.partition.transactions.transaction_commands import Begin
from node.partition.transactions.transaction_state import TransactionDone, TransactionsRow, TransactionTable
from node.transaction_coordinator.coordinator_commands import (
    AddPartitions,
    Command,
    Complete,
    Decided,
    EndTransaction,
    Expire,
    FenceTransaction,
    NodeStart,
    Register,
    Registered,
    Result,
    encode,
)
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transitions import TransactionState
from tests.simulation.membership_model.model import Broken

Pair = tuple[int, int]

COORDINATOR = 3
NAME = "t"
AT = NodeStart(1, 1, 1)


class Write(NamedTuple):
    """A begin and an event behind it, on their way to a partition."""

    pair: Pair
    partition: int


class Told(NamedTuple):
    """A marker, or an answer about a transaction, on its way to a partition."""

    pair: Pair
    partition: int
    committed: bool


class LateNote(NamedTuple):
    pair: Pair
    groups: tuple[int, ...]
    name: str = "a note"

    @property
    def command(self) -> Command:
        return AddPartitions(NAME, *self.pair, list(self.groups))


class LateEnd(NamedTuple):
    pair: Pair
    commit: bool
    name: str = "an end"

    @property
    def command(self) -> Command:
        return EndTransaction(NAME, *self.pair, self.commit)


class ModelPartition(NamedTuple):
    row: bytes
    """What its leader has applied."""
    left: bytes | None = None
    """What a replica had that left: its node may come back under another birth."""
    changes: int = 0


class TransactionsState(NamedTuple):
    pair: Pair
    """The producer's."""
    ended: bool
    """Whether its producer has asked for the end."""
    coordinator: bytes
    partitions: tuple[ModelPartition, ...]
    writes: frozenset[Write]
    acked: frozenset[Write]
    commands: frozenset[LateNote | LateEnd]
    """On their way to the coordinator, for good."""
    told: frozenset[Told]
    confirmed: frozenset[Told]
    over: frozenset[Told]
    """How transactions with an event ended, in each partition."""
    decided: frozenset[tuple[Pair, bool]]
    registrations: int


@dataclass(frozen=True)
class TransactionScope:
    partitions: int = 1
    transactions: int = 1
    """Epochs under which the producer writes."""
    changes: int = 1
    """Changes of the leader of each partition."""
    registrations: int = 0
    """Of another holder."""
    without: str = ""

    def lacks(self, rule: str) -> bool:
        return self.without == rule

    def begun(self) -> tuple[TransactionsModel, TransactionsState]:
        machine = CoordinatorMachine(COORDINATOR)
        registered = machine.apply(1, encode(Register(NAME, "holder", 60_000, at=AT)))
        assert isinstance(registered, Registered)
        machine.state.applied_index = 0
        state, empty = machine.checkpoint(), msgspec.msgpack.encode(TransactionsRow())
        nothing: frozenset[Told] = frozenset()
        return TransactionsModel(self), TransactionsState(
            (registered.producer_id, registered.epoch), False, state, (ModelPartition(empty),) * self.partitions,
            frozenset(), frozenset(), frozenset(), nothing, nothing, nothing, frozenset(), self.registrations,
        )  # fmt: skip


@cache
def applied(state: bytes, entry: bytes) -> tuple[bytes, Result]:
    machine = restored(state)
    result = machine.apply(1, entry)
    machine.state.applied_index = 0
    return machine.checkpoint(), result


def restored(state: bytes) -> CoordinatorMachine:
    machine = CoordinatorMachine(COORDINATOR)
    machine.restore(state)
    return machine


@cache
def the_id(state: bytes) -> tuple[Pair, TransactionState, tuple[int, ...]]:
    one = restored(state).get(NAME)
    assert one is not None
    return one.pair, one.state, tuple(one.groups)


@cache
def outcome(state: bytes, pair: Pair) -> bool | None:
    return restored(state).outcome(*pair)


@cache
def is_next(state: bytes, pair: Pair) -> bool:
    return restored(state).next_of(*pair) is not None


def table_of(row: bytes) -> TransactionTable:
    return TransactionTable(msgspec.msgpack.decode(row, type=TransactionsRow))


@cache
def written(row: bytes, pair: Pair, implicit: bool) -> tuple[bytes, bool]:
    """The partition after a begin and its event, and whether it took them. `implicit`: any event begins."""
    table = table_of(row)
    if implicit:
        table._ended.pop(pair[0], None)
    if not isinstance(table.begin(Begin(*pair, COORDINATOR, 60_000), 1, 0), TransactionDone):
        return row, False
    found = table.get(*pair)
    assert found is not None
    if found.first_offset == NOTHING:
        found.first_offset, found.producer.last = 0, 0
    return msgspec.msgpack.encode(table.row()), True


@cache
def marked(row: bytes, told: Told) -> tuple[bytes, bool]:
    """The partition after a marker, and whether that ended an open transaction with an event."""
    table = table_of(row)
    found = table.get(*told.pair)
    end = ControlType.COMMIT if told.committed else ControlType.ABORT
    table.end(Marker(*told.pair, end, 1, 0), 1)
    ended = found is not None and found.first_offset != NOTHING and table.get(*told.pair) is None
    return msgspec.msgpack.encode(table.row()), ended


class TransactionsModel:
    def __init__(self, scope: TransactionScope) -> None:
        self.scope = scope

    def successors(self, state: TransactionsState) -> Iterator[tuple[str, TransactionsState]]:
        yield from self._produce(state)
        yield from self._command(state)
        yield from self._complete(state)
        for number in range(self.scope.partitions):
            yield from self._write(state, number)
            yield from self._tell(state, number)
            yield from self._ask(state, number)
            yield from self._change(state, number)

    # ---- the producer

    def _produce(self, state: TransactionsState) -> Iterator[tuple[str, TransactionsState]]:
        if state.ended or state.pair[1] >= self.scope.transactions:
            return
        mine = frozenset(write for write in state.writes if write.pair == state.pair)
        for number in range(self.scope.partitions):
            write = Write(state.pair, number)
            if write not in mine:
                yield f"writes {state.pair[1]} to {number}", state._replace(writes=state.writes | {write})
        if not mine:
            return
        groups = sorted(write.partition + 1 for write in mine)
        commands = state.commands
        if not self.scope.lacks("noted before its commit"):
            commands |= {LateNote(state.pair, tuple(groups))}
            yield f"notes {groups}", state._replace(commands=commands)
        if mine <= state.acked or self.scope.lacks("what is unknown rolls back"):
            yield from self._ends(state, groups, commit=True)
        yield from self._ends(state, groups, commit=False)

    def _ends(
        self, state: TransactionsState, groups: list[int], *, commit: bool
    ) -> Iterator[tuple[str, TransactionsState]]:
        """The note goes with the end, in front of it."""
        noted = groups[:1] if self.scope.lacks("noted before its commit") else groups
        after, _ = self._apply(state, AddPartitions(NAME, *state.pair, noted))
        end = EndTransaction(NAME, *state.pair, commit)
        after, result = self._apply(after, end)
        after = after._replace(ended=True, commands=after.commands | {LateEnd(state.pair, commit)})
        yield f"asks for the end of {state.pair[1]}, {commit}", after
        if isinstance(result, Decided):
            following = (result.producer_id, result.epoch) if result.complete else (state.pair[0], state.pair[1] + 1)
            yield f"hears the end of {state.pair[1]}, {commit}", after._replace(ended=False, pair=following)

    # ---- the coordinator

    def _apply(self, state: TransactionsState, command: Command) -> tuple[TransactionsState, Result]:
        after, result = applied(state.coordinator, encode(command))
        changed = state._replace(coordinator=after)
        pair, now, groups = the_id(after)
        if now in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
            committed = now is TransactionState.PREPARE_COMMIT
            if (pair, not committed) in state.decided:
                raise Broken(f"{pair} is decided twice")
            told = changed.told | {Told(pair, group - 1, committed) for group in groups}
            changed = changed._replace(told=told, decided=changed.decided | {(pair, committed)})
            self._check(changed)
        return changed, result

    def _command(self, state: TransactionsState) -> Iterator[tuple[str, TransactionsState]]:
        for late in state.commands:
            yield f"the coordinator hears {late.name} of {late.pair[1]}", self._apply(state, late.command)[0]
        if state.registrations:
            taken, _ = self._apply(state, Register(NAME, "another", 60_000, at=AT))
            yield "another holder registers", taken._replace(registrations=state.registrations - 1)
        pair, now, _ = the_id(state.coordinator)
        if now is TransactionState.ONGOING:
            yield f"{pair[1]} is overdue", self._apply(state, Expire(NAME, *pair, gone=AT))[0]

    def _complete(self, state: TransactionsState) -> Iterator[tuple[str, TransactionsState]]:
        pair, now, groups = the_id(state.coordinator)
        if now not in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
            return
        wanted = {Told(pair, group - 1, now is TransactionState.PREPARE_COMMIT) for group in groups}
        if wanted <= state.confirmed:
            yield f"{pair[1]} is complete", self._apply(state, Complete(NAME, *pair))[0]

    # ---- a partition

    def _with(self, state: TransactionsState, number: int, row: bytes) -> TransactionsState:
        changed = list(state.partitions)
        changed[number] = changed[number]._replace(row=row)
        return state._replace(partitions=tuple(changed))

    def _write(self, state: TransactionsState, number: int) -> Iterator[tuple[str, TransactionsState]]:
        partition = state.partitions[number]
        for write in state.writes:
            if write.partition != number:
                continue
            implicit = self.scope.lacks("an event begins nothing") and partition.changes > 0
            row, taken = written(partition.row, write.pair, implicit)
            if not taken:
                continue
            if any((told.pair, told.partition) == write for told in state.over):
                raise Broken(f"{write.pair} begins again in partition {number}, where it has ended")
            yield f"{number} has {write.pair[1]}", self._with(state, number, row)
            heard = self._with(state, number, row)._replace(acked=state.acked | {write})
            yield f"{number} confirms {write.pair[1]}", heard

    def _tell(self, state: TransactionsState, number: int) -> Iterator[tuple[str, TransactionsState]]:
        for told in state.told:
            if told.partition != number:
                continue
            row, ended = marked(state.partitions[number].row, told)
            changed = self._with(state, number, row)
            over = changed.over | {told} if ended else changed.over
            if told.committed and told not in over and Write(told.pair, number) in state.writes:
                raise Broken(f"{told.pair} is committed without its event in partition {number}")
            changed = changed._replace(over=over, confirmed=changed.confirmed | {told})
            self._check(changed)
            yield f"{number} is told that {told.pair[1]} ended, {told.committed}", changed

    def _check(self, state: TransactionsState) -> None:
        for told in state.over:
            if (told.pair, not told.committed) in state.decided:
                raise Broken(f"{told.pair} ended in partition {told.partition} as it was not decided")

    def _ask(self, state: TransactionsState, number: int) -> Iterator[tuple[str, TransactionsState]]:
        """A partition asks about what is open. What has not begun at its coordinator is fenced before the answer."""
        for one in table_of(state.partitions[number].row).open():
            asked = state
            if is_next(state.coordinator, one.key):
                if self.scope.lacks("fenced before it is said to be over"):
                    told = Told(one.key, number, False)
                    yield f"{number} hears of {one.key[1]}, {False}", state._replace(told=state.told | {told})
                    continue
                asked, _ = self._apply(state, FenceTransaction(NAME, *one.key, gone=AT))
            known = {asked.coordinator}
            if self.scope.lacks("a majority confirms who answers"):
                known.add(CoordinatorMachine(COORDINATOR).checkpoint())  # of one that is cut off, and heard of nothing
            for each in known:
                answer = outcome(each, one.key)
                if answer is not None:
                    told = asked.told | {Told(one.key, number, answer)}
                    yield f"{number} hears of {one.key[1]}, {answer}", asked._replace(told=told)

    def _change(self, state: TransactionsState, number: int) -> Iterator[tuple[str, TransactionsState]]:
        """Another replica leads. All that was agreed on is there, in a checkpoint or in the log."""
        partition = state.partitions[number]
        if partition.changes >= self.scope.changes:
            return
        row = partition.row
        if self.scope.lacks("ends are in the checkpoint"):
            row = msgspec.msgpack.encode(msgspec.structs.replace(table_of(row).row(), ended=[]))
        elif self.scope.lacks("state is of one birth"):
            row = partition.left or row
        changed = list(state.partitions)
        changed[number] = ModelPartition(row, partition.left, partition.changes + 1)
        yield f"another replica leads {number}", state._replace(partitions=tuple(changed))
        if partition.left is None and self.scope.lacks("state is of one birth"):
            changed[number] = partition._replace(left=partition.row)
            yield f"a replica leaves {number}", state._replace(partitions=tuple(changed))
