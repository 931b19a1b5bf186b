"""Quorums: simple and joint ones, for nodes and for what they hold."""

from __future__ import annotations

from itertools import combinations

import pytest

from cluster.raft.membership.configuration import Configuration, Replica, founding, joint, with_learner
from cluster.raft.membership.quorum import Quorum

LEARNING = with_learner(founding([1, 2, 3]), Replica(4, 17), 1)
SWAP = joint(LEARNING, 1, add=Replica(4, 17), remove=Replica(3, 1))
GROWING = joint(with_learner(founding([1]), Replica(2, 2), 1), 1, add=Replica(2, 2), remove=None)

SMALLEST: dict[str, tuple[Configuration | None, list[set[int]]]] = {
    "nothing known": (None, []),
    "one": (founding([1]), [{1}]),
    "two": (founding([1, 2]), [{1, 2}]),
    "three": (founding([1, 2, 3]), [{1, 2}, {1, 3}, {2, 3}]),
    "three and a learner": (LEARNING, [{1, 2}, {1, 3}, {2, 3}]),
    "a swap": (SWAP, [{1, 2}, {1, 3, 4}, {2, 3, 4}]),
    "one and two": (GROWING, [{1, 2}]),
}


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_quorums(name: str) -> None:
    configuration, smallest = SMALLEST[name]
    quorum = Quorum(configuration)
    for size in range(5):
        for nodes in combinations(range(1, 5), size):
            assert quorum.is_reached(set(nodes)) == any(one <= set(nodes) for one in smallest), nodes


def test_an_index_counts_that_all_of_one_quorum_hold() -> None:
    """The rule for commits and the rule for votes are one rule, said of values."""
    for configuration, _ in SMALLEST.values():
        quorum = Quorum(configuration)
        for held in ({1: 5, 2: 7, 3: 9, 4: 0}, {1: 9, 2: 1, 3: 5, 4: 6}, {1: 3, 2: 3, 3: 3, 4: 3}):
            best = [index for index in range(10) if quorum.is_reached({n for n in held if held[n] >= index})]
            if configuration is not None:
                assert quorum.held_by_all_of_one(held.__getitem__) == max(best)


def test_who_is_asked_alone_or_with_one_other() -> None:
    assert Quorum(founding([1])).is_alone(1)
    assert not Quorum(founding([1, 2])).is_alone(1)
    assert not Quorum(None).is_alone(1)
    assert Quorum(GROWING).is_pair(), "old and new voters are two in all"
    assert Quorum(founding([1, 2])).is_pair()
    assert not Quorum(SWAP).is_pair()
    assert Quorum(SWAP).nodes == {1, 2, 3, 4}


def test_a_node_is_needed_that_is_in_every_quorum() -> None:
    for configuration, smallest in SMALLEST.values():
        for node in range(1, 5):
            assert Quorum(configuration).is_needed(node) == all(node in nodes for nodes in smallest or [set()])
