"""The models notice what they are there for: each fault, put in on purpose, is found by random lives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from node.partition.transactions.transaction_state import (
    EndedProducer,
    OpenTransaction,
    TransactionTable,
)
from node.transaction_coordinator import state_machine
from node.transaction_coordinator.coordinator_commands import Decided, Declined
from node.transaction_coordinator.state_machine import CoordinatorMachine
from node.transaction_coordinator.transitions import DECIDED, TransactionState
from tests.unit.partition.transactions import test_transaction_model as partition
from tests.unit.transaction_coordinator import test_atomicity_model as atomicity

LIVES = 3000
"""Most faults are found within a hundred."""


def found_by_partition_model(lives: int = LIVES) -> bool:
    for seed in range(lives):
        chance = random.Random(seed)
        steps = [
            (chance.choice(partition.WORDS), chance.randrange(3), chance.randrange(31), chance.randrange(2))
            for _ in range(40)
        ]
        try:
            partition.play(steps)
        except AssertionError:
            return True
    return False


def found_by_atomicity_model(lives: int = LIVES) -> bool:
    for seed in range(lives):
        chance = random.Random(seed)
        try:
            atomicity.play([(chance.choice(atomicity.WORDS), chance.randrange(41)) for _ in range(50)])
        except AssertionError:
            return True
    return False


# ---------------------------------------------------------------- of a partition


def a_late_begin_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TransactionTable.begin

    def begin(self: TransactionTable, *arguments: Any) -> Any:
        ended, self._ended = self._ended, {}
        result = whole(self, *arguments)
        self._ended = ended
        return result

    monkeypatch.setattr(TransactionTable, "begin", begin)


def an_event_finds_its_way_into_the_next_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(self: TransactionTable, producer_id: int, epoch: int) -> OpenTransaction | None:
        return self._open.get(producer_id)

    monkeypatch.setattr(TransactionTable, "get", get)


def a_marker_ends_whatever_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TransactionTable.end

    def end(self: TransactionTable, marker: Any, next_offset: int) -> Any:
        found = self._open.get(marker.producer_id)
        if found is not None and found.producer.epoch > marker.epoch:
            del self._open[marker.producer_id]
            self._last_stable.ended(found.key)
        return whole(self, marker, next_offset)

    monkeypatch.setattr(TransactionTable, "end", end)


def what_is_open_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionTable, "stable_offset", lambda self, next_offset: next_offset)


def the_newest_open_transaction_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def stable_offset(self: TransactionTable, next_offset: int) -> int:
        return max(self._last_stable.first_offsets, default=next_offset)

    monkeypatch.setattr(TransactionTable, "stable_offset", stable_offset)


def what_was_aborted_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionTable, "is_aborted", lambda self, transaction, offset: False)


def a_checkpoint_forgets_what_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    _forgetting(monkeypatch, aborted=[])


def a_checkpoint_forgets_who_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    _forgetting(monkeypatch, ended=[])


def a_checkpoint_forgets_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    _forgetting(monkeypatch, open=[])


def _forgetting(monkeypatch: pytest.MonkeyPatch, **lost: Any) -> None:
    whole = TransactionTable.row
    monkeypatch.setattr(TransactionTable, "row", lambda self: msgspec.structs.replace(whole(self), **lost))


def an_end_without_a_begin_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def remember(self: TransactionTable, ended: EndedProducer) -> None:
        if ended.producer_id in self._open:
            self._ended[ended.producer_id] = ended

    monkeypatch.setattr(TransactionTable, "_remember_end", remember)


# ---------------------------------------------------------------- of a coordinator


def an_empty_end_keeps_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_empty(self: CoordinatorMachine, one: Any, *, commit: bool, how: Any) -> Decided:
        return Decided(commit, True, how, *one.pair)

    monkeypatch.setattr(CoordinatorMachine, "_end_empty", end_empty)


def the_epoch_stays_after_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CoordinatorMachine._complete

    def complete(self: CoordinatorMachine, command: Any) -> Any:
        one = self._ids.get(command.transactional_id)
        pair = None if one is None else one.pair
        result = whole(self, command)
        if one is not None and pair is not None and isinstance(result, Decided):
            one.producer_id, one.epoch = pair
        return result

    monkeypatch.setattr(CoordinatorMachine, "_complete", complete)


def a_decision_is_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CoordinatorMachine._end

    def end(self: CoordinatorMachine, command: Any) -> Any:
        one = self._ids.get(command.transactional_id)
        if one is not None and one.pair == (command.producer_id, command.epoch) and one.state in DECIDED:
            one.state = TransactionState.ONGOING
        return whole(self, command)

    monkeypatch.setattr(CoordinatorMachine, "_end", end)


def a_new_holder_does_not_wait_for_the_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CoordinatorMachine._register

    def register(self: CoordinatorMachine, command: Any) -> Any:
        one = self._ids.get(command.transactional_id)
        if one is not None and one.state in DECIDED:
            one.state, one.groups = TransactionState.EMPTY, []
        return whole(self, command)

    monkeypatch.setattr(CoordinatorMachine, "_register", register)


def a_new_holder_gets_the_epoch_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoordinatorMachine, "_next_epoch", lambda self, one: None)


def partitions_are_told_to_abort_what_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = atomicity.World.step

    def step(self: atomicity.World, what: str, number: int) -> None:
        whole(self, what, number)
        if what == "time":  # participants that have waited long enough ask, and take "not decided" for "aborted"
            for group in self.partitions.values():
                for one in group.machine.transactions.open():
                    group.end(*one.key, commit=bool(self.coordinator.machine.outcome(*one.key)))

    monkeypatch.setattr(atomicity.World, "step", step)


def what_has_not_begun_at_its_coordinator_is_aborted_and_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CoordinatorMachine.outcome

    def outcome(self: CoordinatorMachine, producer_id: int, epoch: int) -> bool | None:
        return False if self.next_of(producer_id, epoch) is not None else whole(self, producer_id, epoch)

    monkeypatch.setattr(CoordinatorMachine, "outcome", outcome)
    monkeypatch.setattr(CoordinatorMachine, "_fence", lambda self, command: Declined("ended", "it is let be"))


def a_commit_does_not_wait_for_the_notes_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = atomicity.World.end

    def end(self: atomicity.World, commit: bool, *, at_once: bool) -> None:
        self.unnoted = set()
        whole(self, commit, at_once=at_once)

    monkeypatch.setattr(atomicity.World, "end", end)


def who_was_succeeded_is_told_that_it_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_machine, "was_passed_over", lambda one, pair: True)


PARTITION_FAULTS = [
    a_late_begin_opens, an_event_finds_its_way_into_the_next_transaction, a_marker_ends_whatever_is_open,
    what_is_open_is_read, the_newest_open_transaction_counts, what_was_aborted_is_read,
    a_checkpoint_forgets_what_was_aborted, a_checkpoint_forgets_who_has_ended, a_checkpoint_forgets_what_is_open,
    an_end_without_a_begin_is_not_remembered,
]  # fmt: skip
COORDINATOR_FAULTS = [
    an_empty_end_keeps_its_epoch, the_epoch_stays_after_an_end,
    a_decision_is_overruled, a_new_holder_does_not_wait_for_the_markers, a_new_holder_gets_the_epoch_of_the_old_one,
    partitions_are_told_to_abort_what_is_not_decided, what_has_not_begun_at_its_coordinator_is_aborted_and_may_begin,
    a_commit_does_not_wait_for_the_notes_of_partitions, who_was_succeeded_is_told_that_it_was_aborted,
]  # fmt: skip

Fault = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("fault", PARTITION_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_partition_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert found_by_partition_model()


@pytest.mark.parametrize("fault", COORDINATOR_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_coordinator_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert found_by_atomicity_model()


def test_without_a_fault_nothing_is_found() -> None:
    assert not found_by_partition_model(500)
    assert not found_by_atomicity_model(500)
