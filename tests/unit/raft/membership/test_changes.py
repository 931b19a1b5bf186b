"""Steps of a leader towards a wish: a table of them, and ten thousand random chains."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from cluster.raft.membership.changes import (
    AppendConfiguration,
    AwaitCondition,
    HandLeadershipOver,
    LeaderView,
    MoveEnded,
    NextStep,
    Wish,
    next_step,
)
from cluster.raft.membership.configuration import (
    Configuration,
    Replica,
    ended,
    final,
    founding,
    is_legal,
    joint,
    with_learner,
    with_standing_learner,
)
from cluster.raft.membership.quorum import Quorum

C, D = Replica(3, 1), Replica(4, 17)
V1 = founding([1, 2, 3])
L = with_learner(V1, D, 9)
J = joint(L, 9, add=D, remove=C)
SWAP = Wish(9, 1, voter=D, gone=C)
CANCELLED = Wish(9, 1, voter=D, gone=C, is_cancelled=True)
OF_ONE = founding([1])
L_OF_ONE = with_learner(OF_ONE, D, 9)
MOVE_OF_ONE = Wish(9, 1, voter=D, gone=Replica(1, 1))
J_OF_ONE = joint(L_OF_ONE, 9, add=D, remove=Replica(1, 1))
ALL = {1, 2, 3, 4}

STEPS: dict[str, tuple[Wish | None, Configuration, LeaderView, NextStep]] = {
    "a learner first": (SWAP, V1, LeaderView(1, True, {1, 2}), AppendConfiguration(L)),
    "both sets when it is near": (SWAP, L, LeaderView(1, True, ALL), AppendConfiguration(J)),
    "then the new set": (SWAP, J, LeaderView(1, True, {1}), AppendConfiguration(final(J))),
    "without a wish, too": (None, J, LeaderView(1, True, {1}), AppendConfiguration(final(J))),
    "and it is over": (SWAP, final(J), LeaderView(1, True, ALL), MoveEnded(4)),
    "a cancel is an entry": (CANCELLED, V1, LeaderView(1, True, ALL), AppendConfiguration(ended(V1, 9))),
    "takes the learner out": (CANCELLED, L, LeaderView(1, True, ALL), AppendConfiguration(ended(L, 9, without=D))),
    "is too late when both decide": (CANCELLED, J, LeaderView(1, True, ALL), AppendConfiguration(final(J))),
    "and is told so": (CANCELLED, final(J), LeaderView(1, True, ALL), MoveEnded(4)),
    "a wish that was cancelled begins nothing": (SWAP, ended(L, 9, without=D), LeaderView(1, True, ALL), MoveEnded(3)),
    "a leader that is to leave hands over": (SWAP, L, LeaderView(3, True, ALL), HandLeadershipOver(frozenset({1, 2}))),
    "when both decide, too": (SWAP, J, LeaderView(3, True, {2, 3, 4}), HandLeadershipOver(frozenset({2, 4}))),
    "where nobody stays the joint phase comes first": (
        MOVE_OF_ONE, L_OF_ONE, LeaderView(1, True, {1, 4}), AppendConfiguration(J_OF_ONE),
    ),
    "and the new one ends it": (MOVE_OF_ONE, J_OF_ONE, LeaderView(1, True, {1, 4}), HandLeadershipOver(frozenset({4}))),
    "a voter becomes a learner": (
        Wish(9, 1, learner=C), V1, LeaderView(1, True, ALL),
        AppendConfiguration(joint(V1, 9, add=None, remove=C, demote=True)),
    ),
    "a learner for good": (
        Wish(9, 1, learner=D), V1, LeaderView(1, True, ALL), AppendConfiguration(with_standing_learner(V1, D, 9)),
    ),
    "and out again": (
        Wish(10, 2, gone=D), with_standing_learner(V1, D, 9), LeaderView(1, True, ALL),
        AppendConfiguration(ended(with_standing_learner(V1, D, 9), 10, without=D)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_the_next_step(name: str) -> None:
    wish, latest, view, step = STEPS[name]
    assert next_step(wish, latest, view) == step


WAITS = {
    "nothing is wished": (None, V1, LeaderView(1, True, ALL)),
    "is not committed yet": (SWAP, V1, LeaderView(1, False, ALL)),
    "4/17 is not near": (SWAP, L, LeaderView(1, True, {1, 2, 3})),
    "without node 2": (SWAP, L, LeaderView(1, True, {1, 4})),
    "planned for version 7": (Wish(9, 7, voter=D), V1, LeaderView(1, True, ALL)),
    "move 9 is under way": (Wish(8, 1, voter=D), L, LeaderView(1, True, ALL)),
    "no voter that stays": (SWAP, L, LeaderView(3, True, {3, 4})),
}


@pytest.mark.parametrize("why", WAITS)
def test_a_leader_that_waits_says_for_what(why: str) -> None:
    step = next_step(*WAITS[why])
    assert isinstance(step, AwaitCondition)
    assert why in step.why


def quorums(configuration: Configuration) -> list[frozenset[int]]:
    nodes = sorted({replica.node for replica in configuration.replicas})
    quorum = Quorum(configuration)
    parts = (frozenset(part) for size in range(len(nodes) + 1) for part in combinations(nodes, size))
    return [part for part in parts if quorum.is_reached(part)]


def test_ten_thousand_random_chains_are_legal_and_each_quorum_meets_the_next() -> None:
    """Every leader that is asked, and any cancel, lead to the old set or to the wished one; whichever quorums decide
    before and after an entry have a node in common."""
    ends = {"done": 0, "cancelled": 0, "handed over": 0, "demoted": 0}
    for seed in range(10_000):
        chance = random.Random(seed)
        latest = founding(range(1, chance.randint(1, 4) + 1))
        before = latest.voters
        birth, moves = 100 + chance.randint(0, 5), chance.randint(1, 3)
        for move in range(1, moves + 1):
            birth += 1
            wish = random_wish(chance, latest, move, birth)
            if wish is None:
                continue
            before = latest.voters
            leader = chance.choice(sorted(latest.voters)).node
            for _ in range(12):
                if chance.random() < 0.1:
                    wish = Wish(wish.move, wish.version, wish.voter, wish.learner, wish.gone, is_cancelled=True)
                everybody = {replica.node for replica in latest.replicas}
                step = next_step(wish, latest, LeaderView(leader, True, everybody))
                if isinstance(step, MoveEnded):
                    break
                if isinstance(step, HandLeadershipOver):
                    ends["handed over"] += 1
                    leader = chance.choice(sorted(step.candidates))
                    continue
                assert isinstance(step, AppendConfiguration), step
                assert is_legal(latest, step.configuration), (latest, step.configuration)
                if seed < 500:
                    for old in quorums(latest):
                        assert all(old & new for new in quorums(step.configuration)), (latest, step.configuration)
                latest = step.configuration
            assert latest.ended == move, "it ends"
            assert not latest.is_joint
            wished = (before | ({wish.voter} if wish.voter else set())) - ({wish.leaving} if wish.leaving else set())
            assert latest.voters in (before, wished) if wish.is_cancelled else latest.voters == wished
            ends["cancelled" if latest.voters == before else "done"] += 1
            ends["demoted"] += wish.learner is not None and wish.learner in before and latest.voters != before
    assert min(ends.values()) > 1000, ends


def random_wish(chance: random.Random, latest: Configuration, move: int, birth: int) -> Wish | None:
    voters, learners = sorted(latest.voters), sorted(latest.learners)
    free = [node for node in range(1, 8) if node not in {replica.node for replica in latest.replicas}]
    new = chance.choice(learners) if learners and chance.random() < 0.4 else Replica(chance.choice(free), birth)
    leaving = chance.choice(voters)
    kinds = ["swap", "add", "learner", "demoting swap"]
    kinds += ["remove", "demote"] if len(voters) > 1 else []
    kinds += ["drop"] if learners else []
    kind = chance.choice(kinds)
    if kind == "drop":
        return Wish(move, latest.version, gone=chance.choice(learners))
    if kind == "learner":
        return None if new in learners else Wish(move, latest.version, learner=new)
    add = new if kind in ("swap", "add", "demoting swap") else None
    return Wish(
        move, latest.version, voter=add,
        learner=leaving if kind in ("demote", "demoting swap") else None,
        gone=leaving if kind in ("swap", "remove") else None,
    )  # fmt: skip
