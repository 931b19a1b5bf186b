"""What was rolled back is passed over, and nothing else, however ranges are merged, forgotten and bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from node.partition.partition_commands import Trim
from node.partition.state_machine import AppendAccepted, LogState, Trimmed
from node.partition.transactions import aborted_transactions
from node.partition.transactions.aborted_transactions import AbortedRange, AbortedRanges
from node.partition.transactions.transaction_state import TransactionDone
from tests.unit.partition.transactions.driving import DrivenPartition, code_of

P, Q = 1 << 60, 1 << 61


@pytest.fixture
def partition() -> DrivenPartition:
    return DrivenPartition()


def one(partition: DrivenPartition, producer: int, epoch: int, contents: str, *, commit: bool) -> None:
    assert partition.begin(producer, epoch) == TransactionDone()
    if contents:
        partition.send(producer, epoch, 0, contents)
    partition.end(producer, epoch, commit=commit)


def passed_over(partition: DrivenPartition, producer: int) -> list[int]:
    """Offsets that would be, if the event there were the producer's."""
    table, state = partition.machine.transactions, partition.machine.state
    return [at for at in range(state.start_offset, state.next_offset) if table.is_aborted((producer, 0), at)]


def rows(partition: DrivenPartition) -> list[tuple[Any, ...]]:
    state = msgspec.msgpack.decode(partition.machine.checkpoint(), type=LogState)
    return [msgspec.structs.astuple(row) for row in state.transactions.aborted]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_producer_that_rolls_back_again_makes_its_range_longer(partition: DrivenPartition, restarted: bool) -> None:
    for epoch in range(4):
        one(partition, P, epoch, "ab", commit=False)
        one(partition, Q, epoch, "c", commit=True)  # another's commit is no end of it
        partition.plain()
        if restarted:
            partition.restart()
    assert rows(partition) == [(P, 0, 14, True)]
    assert passed_over(partition, P) == list(range(14))
    assert passed_over(partition, Q) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_nothing_is_merged_over_a_commit(partition: DrivenPartition, restarted: bool) -> None:
    one(partition, P, 0, "a", commit=False)
    one(partition, P, 1, "b", commit=True)
    if restarted:
        partition.restart()
    one(partition, P, 2, "c", commit=False)
    one(partition, P, 3, "", commit=True)  # it wrote nothing here: there is nothing that could be passed over
    one(partition, P, 4, "d", commit=False)
    assert rows(partition) == [(P, 0, 1, False), (P, 2, 4, True)]
    assert passed_over(partition, P) == [0, 2, 3]


def test_what_overlaps_of_two_producers_stays_apart(partition: DrivenPartition) -> None:
    partition.begin(P, 0)
    partition.send(P, 0, 0, "a")
    partition.begin(Q, 0)
    partition.send(Q, 0, 0, "b")
    partition.send(P, 0, 1, "c")
    partition.end(Q, 0, commit=False)
    partition.end(P, 0, commit=True)
    assert passed_over(partition, Q) == [1, 2]
    assert passed_over(partition, P) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_range_is_forgotten_when_its_last_event_is_gone_and_not_before(
    partition: DrivenPartition, restarted: bool
) -> None:
    one(partition, P, 0, "a", commit=False)  # 0, grows
    one(partition, Q, 0, "b", commit=False)  # 1
    one(partition, Q, 1, "c", commit=True)
    one(partition, Q, 2, "d", commit=False)  # 3
    one(partition, P, 1, "e", commit=False)  # to 4
    assert rows(partition) == [(Q, 1, 2, False), (Q, 3, 4, True), (P, 0, 5, True)]
    for offset, left in ((2, [Q, P]), (4, [P]), (5, [])):
        trimmed = partition.apply(Trim(offset, offset, partition.machine.state.trimmed_bytes).encode())
        assert isinstance(trimmed, Trimmed)
        if restarted:
            partition.restart()
        assert [row[0] for row in rows(partition)] == left
        if left:
            assert partition.machine.transactions.is_aborted((P, 0), 4)
    one(partition, P, 2, "f", commit=False)
    assert rows(partition) == [(P, 5, 6, True)]


@pytest.mark.parametrize("restarted", [False, True])
def test_ranges_are_bounded_and_retention_makes_room(
    partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Nobody's events are forgotten to make room: what could add a range does not begin."""
    monkeypatch.setattr(aborted_transactions, "MAX_RANGES", 3)
    for epoch in range(0, 4, 2):
        one(partition, P, epoch, "a", commit=False)
        one(partition, P, epoch + 1, "b", commit=True)
    one(partition, Q, 0, "c", commit=False)
    if restarted:
        partition.restart()
    for producer, epoch in ((P, 4), (3, 0)):
        assert partition.begin(producer, epoch) == TransactionDone()
        assert code_of(partition.send(producer, epoch, 0, "x")) == "transaction-too-many"
    one(partition, Q, 1, "d", commit=False)  # this makes one longer
    assert len(rows(partition)) == partition.machine.transactions.aborted == 3
    assert passed_over(partition, P) == [0, 2]
    assert passed_over(partition, Q) == [4, 5]
    assert isinstance(partition.apply(Trim(1, 1, 0).encode()), Trimmed)
    partition.send(P, 4, 0, "e")
    partition.end(P, 4, commit=False)
    assert passed_over(partition, P) == [2, 6]
    one(partition, Q, 2, "f", commit=True)
    partition.begin(Q, 3)
    assert code_of(partition.send(Q, 3, 0, "x")) == "transaction-too-many", "its last range is at its end"


@pytest.mark.parametrize("commit", [True, False])
def test_who_only_moves_positions_needs_no_room(
    partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    """A pipeline reads on, and writes elsewhere, where others have rolled back a lot."""
    monkeypatch.setattr(aborted_transactions, "MAX_RANGES", 1)
    one(partition, P, 0, "ab", commit=False)
    claim = partition.claimed("g").claim
    assert partition.begin(Q, 0) == TransactionDone()
    partition.stage(Q, 0, "g", claim, 2)
    partition.prepare(Q, 0)
    partition.end(Q, 0, commit=commit)
    assert (partition.position("g") == 2) == commit
    assert rows(partition) == [(P, 0, 2, True)]


def test_who_has_written_in_time_goes_on_writing(partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_transactions, "MAX_RANGES", 1)
    partition.begin(Q, 0)
    partition.send(Q, 0, 0, "a")
    one(partition, P, 0, "b", commit=False)
    assert isinstance(partition.send(Q, 0, 1, "c"), AppendAccepted)
    partition.end(Q, 0, commit=True)
    assert passed_over(partition, Q) == []


def test_what_was_begun_in_time_may_roll_back(partition: DrivenPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_transactions, "MAX_RANGES", 1)
    for producer in (P, Q):
        partition.begin(producer, 0)
        partition.send(producer, 0, 0, "a")
    for producer in (P, Q):
        partition.end(producer, 0, commit=False)
    assert (passed_over(partition, P), passed_over(partition, Q)) == ([0, 1], [1])


def test_as_many_as_there_may_be_are_forgotten_at_once() -> None:
    """Of one producer as well: each of its steps would move all that stand behind."""
    ranges = AbortedRanges(AbortedRange(P, 2 * at, 2 * at + 1, False) for at in range(aborted_transactions.MAX_RANGES))
    assert not ranges.has_room_for(P)
    ranges.forget_below(2 * aborted_transactions.MAX_RANGES - 20)
    assert [row.first for row in ranges.rows()] == list(
        range(2 * aborted_transactions.MAX_RANGES - 20, 2 * aborted_transactions.MAX_RANGES, 2)
    )
    assert ranges.has_room_for(Q)
