"""Configurations: what a group can have, and which may follow which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.raft.membership.configuration import (
    Configuration,
    Replica,
    ended,
    fault,
    final,
    founding,
    is_legal,
    joint,
    learner_of_move,
    with_learner,
    with_standing_learner,
)

A, B, C, D, E = Replica(1, 1), Replica(2, 1), Replica(3, 1), Replica(4, 17), Replica(5, 18)
V1 = founding([1, 2, 3])
L = with_learner(V1, D, 9)
J = joint(L, 9, add=D, remove=C)
F = final(J)
DEMOTING = joint(V1, 9, add=None, remove=C, demote=True)
STANDING = with_standing_learner(V1, D, 9)


def test_one_move_goes_by_a_learner_through_two_majorities_to_the_new_set() -> None:
    assert str(V1) == "v1 voters 1/1 2/1 3/1"
    assert str(L) == "v2 voters 1/1 2/1 3/1, learners 4/17, move 9"
    assert str(J) == "v3 voters 1/1 2/1 4/17, outgoing 1/1 2/1 3/1, move 9"
    assert str(F) == "v4 voters 1/1 2/1 4/17, ended 9"
    assert str(final(DEMOTING)) == "v3 voters 1/1 2/1, learners 3/1, ended 9"
    assert learner_of_move(L) == D
    assert learner_of_move(J) is None


LEGAL = {
    "a learner for a move": (V1, L),
    "its promotion for another voter": (L, J),
    "its promotion": (L, joint(L, 9, add=D, remove=None)),
    "the end of the old set": (J, F),
    "a voter leaves": (V1, joint(V1, 9, add=None, remove=C)),
    "a voter becomes a learner": (V1, DEMOTING),
    "and is one": (DEMOTING, final(DEMOTING)),
    "a cancel after L": (L, ended(L, 9, without=D)),
    "a cancel before anything": (V1, ended(V1, 9)),
    "a learner for good": (V1, STANDING),
    "which leaves": (STANDING, ended(STANDING, 10, without=D)),
    "or votes": (STANDING, joint(STANDING, 10, add=D, remove=None)),
    "or goes on beside a move": (STANDING, with_learner(STANDING, E, 10)),
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_step_that_is_one_is_legal(name: str) -> None:
    assert is_legal(*LEGAL[name])


ILLEGAL = {
    "the same version": (V1, replace(L, version=1)),
    "a version left out": (V1, replace(L, version=3)),
    "two voters at once": (V1, replace(V1, version=2, voters=V1.voters | {D, E}, outgoing=V1.voters, move=9)),
    "voters without a joint phase": (V1, replace(V1, version=2, voters=V1.voters - {C}, ended=9)),
    "a voter that was no learner": (V1, joint(V1, 9, add=D, remove=None)),
    "two leave": (V1, replace(V1, version=2, voters=frozenset({A}), outgoing=V1.voters, move=9)),
    "another old set": (L, replace(J, outgoing=frozenset({A, B}))),
    "joint out of joint": (J, replace(J, version=4, voters=V1.voters)),
    "back out of joint": (J, replace(F, voters=V1.voters)),
    "an end that forgets who was demoted": (DEMOTING, replace(final(DEMOTING), learners=frozenset())),
    "an end that does not say so": (J, replace(F, ended=0)),
    "a learner beside the learner of a move": (L, replace(L, version=3, learners=L.learners | {E})),
    "a move that ended": (replace(V1, ended=9), with_learner(replace(V1, ended=9), D, 9)),
    "another move than that of its learner": (L, joint(L, 10, add=D, remove=C)),
    "an end of another move than that of its learner": (L, ended(L, 10, without=D)),
    "a cancel that keeps the learner": (L, ended(L, 9)),
    "an end that is no news": (replace(V1, ended=9), replace(V1, version=2, ended=9)),
    "a birth that is not new": (with_standing_learner(V1, E, 9), with_learner(with_standing_learner(V1, E, 9), D, 10)),
    "a second birth of a node": (V1, with_learner(V1, Replica(3, 17), 9)),
    "J without the learner of the move": (L, joint(L, 9, add=None, remove=C)),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_anything_else_is_not(name: str) -> None:
    assert not is_legal(*ILLEGAL[name])


FAULTS: dict[str, dict[str, Any]] = {
    "nobody votes": {"voters": frozenset()},
    "a node has two births": {"learners": frozenset({Replica(3, 2)})},
    "a learner votes": {"learners": frozenset({C})},
    "somebody is demoted that does not leave the voters": {"demoted": frozenset({C})},
    "both sets of voters are the same": {"outgoing": V1.voters, "move": 9},
    "it is joint without a move": {"outgoing": frozenset({A, B})},
    "move 3 is under way, and move 3 has ended": {"move": 3, "ended": 3},
    "a version, a node or a birth is below 1": {"version": 0},
}


@pytest.mark.parametrize("why", FAULTS)
def test_a_configuration_that_cannot_be_says_why(why: str) -> None:
    assert fault(replace(V1, **FAULTS[why])) == why


def test_every_step_of_a_move_can_be() -> None:
    steps: list[Configuration] = [one for pair in LEGAL.values() for one in pair]
    assert [fault(one) for one in steps] == [None] * len(steps)
