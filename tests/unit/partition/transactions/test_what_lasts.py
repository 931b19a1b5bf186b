"""Memories of transactions that are over: the last end, aborted ranges, positions of consumer groups."""

from __future__ import annotations

import pytest

from node.partition.partition_commands import Trim
from node.partition.state_machine import Trimmed
from node.partition.transactions.transaction_state import TransactionDone
from tests.unit.partition.transactions.driving import DrivenPartition, code_of

P, Q = 1 << 40, 5


@pytest.fixture
def partition() -> DrivenPartition:
    return DrivenPartition()


def test_a_marker_of_an_older_epoch_leaves_the_last_end_as_it_is(partition: DrivenPartition) -> None:
    partition.begin(P, 5)
    partition.end(P, 5, commit=True)
    assert partition.end(P, 3, commit=False) == TransactionDone()
    partition.restart()
    assert code_of(partition.begin(P, 4)) == "ended"
    assert code_of(partition.begin(P, 5)) == "ended"


def test_an_aborted_range_is_remembered_until_its_last_event_is_trimmed(partition: DrivenPartition) -> None:
    partition.begin(P, 0)
    partition.send(P, 0, 0, "abc")
    partition.plain(2)
    partition.send(P, 0, 3, "d")
    partition.end(P, 0, commit=False)
    partition.plain()
    assert partition.apply(Trim(4, 2, 0).encode()) == Trimmed(4)
    assert partition.machine.transactions.is_aborted((P, 0), 5)
    partition.restart()
    assert partition.machine.transactions.is_aborted((P, 0), 5)


@pytest.mark.parametrize("first", [P, Q])
def test_a_group_never_goes_back_in_whatever_order_its_transactions_commit(
    partition: DrivenPartition, first: int
) -> None:
    partition.plain(10)
    claim = partition.claimed("g").claim
    for producer, position in ((P, 8), (Q, 3)):
        partition.begin(producer, 0)
        partition.stage(producer, 0, "g", claim, position)
        partition.prepare(producer, 0)
    for producer in (first, P + Q - first):
        partition.end(producer, 0, commit=True)
    assert partition.position("g") == 8
