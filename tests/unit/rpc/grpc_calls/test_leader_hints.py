"""Leader hints: the newest term wins, whatever the order in which they arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.rpc.raft_transport.leader_hints import LeaderHintTable
from cluster.rpc.rpc_pb2 import LeaderHints


def hint(group: int, term: int, leader: int) -> LeaderHints:
    return LeaderHints(groups=[group], terms=[term], leaders=[leader])


def test_an_older_term_and_a_loss_in_the_same_term_change_nothing() -> None:
    table = LeaderHintTable()
    table.merge(hint(7, 5, 2))
    table.merge(hint(7, 4, 1))
    table.merge(hint(7, 5, 0))
    assert table.leader_of(7) == 2
    table.merge(hint(7, 6, 0))
    assert table.leader_of(7) is None, "an election of a newer term is under way"
    table.merge(hint(7, 6, 3))
    assert table.leader_of(7) == 3


@given(st.lists(st.sampled_from([(1, 1), (2, 0), (2, 3), (3, 2), (4, 0), (4, 1)]), min_size=1))
def test_the_highest_term_decides_in_whatever_order_hints_come(order: list[tuple[int, int]]) -> None:
    table = LeaderHintTable()
    for term, leader in order:
        table.merge(hint(7, term, leader))
    assert table.leader_of(7) == (max(order)[1] or None)


def test_own_groups_are_told_on_change_and_others_never() -> None:
    table = LeaderHintTable()
    table.merge(hint(9, 1, 1))
    assert table.all_own() is None
    table.set_own(7, 3, 1)
    changed = table.take_changed()
    assert changed is not None
    assert list(changed.groups) == [7]
    table.set_own(7, 3, 1)
    assert table.take_changed() is None
    table.set_own(7, 4, None)
    assert table.take_changed() == LeaderHints(groups=[7], terms=[4], leaders=[0])
    assert table.all_own() == LeaderHints(groups=[7], terms=[4], leaders=[0])
    table.forget(7)
    assert table.all_own() is None
    assert table.leader_of(7) is None


def test_changes_are_told_once() -> None:
    told: list[int] = []
    table = LeaderHintTable(told.append)
    table.merge(hint(7, 1, 1))
    table.merge(hint(7, 1, 1))
    table.merge(hint(7, 2, 1))  # the same leader again: nobody has to move
    table.merge(hint(7, 3, 2))
    assert told == [7, 7]


def test_columns_of_unequal_length_are_ignored() -> None:
    table = LeaderHintTable()
    table.merge(LeaderHints(groups=[1, 2], terms=[1], leaders=[1, 1]))
    assert table.leader_of(1) is None


def test_strangers_groups_are_bounded_and_own_ones_are_not() -> None:
    table = LeaderHintTable(limit=2)
    table.merge(LeaderHints(groups=[1, 2, 3], terms=[1, 1, 1], leaders=[1, 1, 1]))
    assert table.leader_of(3) is None
    table.set_own(4, 1, 1)
    assert table.leader_of(4) == 1
