"""Stories of changes about who is enough: figures of the dissertation on Raft (chapter 4), what others met, and numbers
that were right before a change. Each is told with its rule, and noticed without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from math import inf
from typing import Any
from unittest import mock

import pytest

from cluster.raft import RaftError
from cluster.raft.elections.leadership_transfer import LeadershipTransfer
from cluster.raft.elections.vote_recovery import VoteRecovery
from cluster.raft.membership.changes import AppendConfiguration, HandLeadershipOver, LeaderView
from cluster.raft.membership.configuration import Replica, joint, with_learner
from cluster.raft.membership.member_changes import MemberChanges
from cluster.raft.membership.membership import Membership
from cluster.raft.membership.quorum import Quorum
from cluster.raft.proposal_outcomes import ChangeRefused
from cluster.raft.pysyncobj.commit_quorum import LastResponse
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.read_index import ReadIndex
from tests.simulation.moving import holes
from tests.unit.raft.cluster import kinds
from tests.unit.raft.membership.moving import MovingStage, ignored, led
from tests.unit.raft.membership.test_stories import A, C, D, change, cut_between, learned

NEW = Replica(5, 18)


def committed(stage: MovingStage, node: int) -> None:
    stage.until(lambda: stage.group(node)._membership.is_committed)


def grown_from_one(**options: Any) -> MovingStage:
    """Node 1 was alone, leads, and has 2 and 3 beside it."""
    stage = led(1, 2, **options)
    for node, birth in ((2, 12), (3, 13)):
        learned(stage, 1, Replica(node, birth))
        stage.move(stage_wish(stage, Replica(node, birth)))
    return stage


def stage_wish(stage: MovingStage, voter: Replica) -> Any:
    latest = stage.configuration(1)
    return holes.Wish(latest.move, latest.version, voter=voter)


# ---- the dissertation


def two_sets_do_not_decide_side_by_side() -> None:
    """Figure 4.2. J is on 2 and 4 only: they are a majority of the new voters, and 1 and 3 are one of the old."""
    stage = led(by=2)
    learned(stage, 2, D)
    cut_between(stage, (2, 1), (2, 3), (4, 1), (4, 3))
    change(stage, 2, lambda latest: joint(latest, 1, add=D, remove=C))
    outcomes = stage.propose(2, "by the new ones alone")
    stage.until(lambda: stage.leader in (1, 3))
    assert outcomes == [], "the old ones decide without it"


def an_empty_server_costs_nothing_when_one_fails() -> None:
    """Figure 4.4. Node 4 comes with nothing, and 3 fails before 4 has anything: the others go on."""
    stage = led(by=1)
    change(stage, 1, lambda latest: with_learner(latest, D, 1))
    stage.stop(3)
    outcomes = stage.propose(1, "by 1 and 2")
    stage.until(lambda: kinds(outcomes) == ["Committed"])


def who_leaves_is_not_sent_that_before_it_is_committed() -> None:
    """Figure 4.6. F reaches node 3 alone, which leaves, and the leader dies. The longest log would be one that may not
    campaign, and node 1 needs its vote."""
    stage = led(by=2)
    learned(stage, 2, D)
    change(stage, 2, lambda latest: joint(latest, 1, add=D, remove=C))
    committed(stage, 2)
    stage.run(0.2)
    cut_between(stage, (1, 2), (2, 4))
    change(stage, 2, holes.final)
    stage.run(0.1)
    stage.stop(2)
    stage.heal()
    stage.until(lambda: stage.leader in (1, 3, 4))


# ---- what others met


def a_rack_fails_that_has_who_comes_and_who_goes() -> None:
    """CockroachDB's four peers. Nodes 3 and 4 are in one rack, and 4 comes for 3: with single steps four would vote,
    and that rack would be half of them."""
    stage = led(by=1)
    learned(stage, 1, D)
    change(stage, 1, lambda latest: joint(latest, 1, add=D, remove=C))
    committed(stage, 1)
    for node in (3, 4):
        stage.stop(node)
    outcomes = stage.propose(1, "by 1 and 2")
    stage.until(lambda: kinds(outcomes) == ["Committed"])
    change(stage, 1, holes.final)
    committed(stage, 1)


def the_joint_phase_ends_under_load_when_its_leader_is_to_leave() -> None:
    """H9 of the review. Node 3 restarts with J in its log, wins, and is to leave; events never cease."""
    stage = led(by=1)
    learned(stage, 1, D)
    change(stage, 1, lambda latest: joint(latest, 1, add=D, remove=C))
    committed(stage, 1)
    stage.run(0.1)
    stage.elect(3)
    wish = holes.Wish(1, 1, voter=D, gone=C)

    def ends() -> bool:
        leader = stage.leader
        if leader is None:
            return False
        group = stage.group(leader)
        with contextlib.suppress(RaftError):
            stage.propose(leader, "x" * 1000)
        step = group.next_step(wish)
        if isinstance(step, HandLeadershipOver | AppendConfiguration):
            stage.take(group, step)
        return not stage.configuration(leader).is_joint and leader != 3

    stage.until(ends, 10.0)


def a_change_waits_for_an_entry_of_its_leader() -> None:
    """Ongaro's report of 2015, in which two changes of two terms both begin. Here the old voters are asked by both, so
    this rule is the second one that forbids it."""
    stage = led(by=1, spare=2)
    cut_between(stage, (1, 2), (1, 3))
    stage.group(1).propose_configuration(with_learner(stage.configuration(1), D, 1), ignored)
    stage.until(lambda: stage.leader in (2, 3))
    leader = stage.leader or 0
    cut_between(stage, (2, 3))
    with contextlib.suppress(ChangeRefused):
        stage.group(leader).propose_configuration(with_learner(stage.configuration(leader), NEW, 2), ignored)
    assert stage.configuration(leader).version == 1, "nothing of its term is committed"


# ---- numbers that were right before


def a_read_is_confirmed_by_those_that_vote_now() -> None:
    """Node 1 was alone, and is one of three: cut off it answers no read, since the others may have another leader."""
    stage = grown_from_one(quorum_check_s=1e6)
    stage.isolate(1)
    answers: list[int | None] = []
    stage.group(1).read_index(answers.append)
    stage.until(lambda: any(stage.group(node).is_leader for node in (2, 3)))
    assert answers == []


def a_leader_steps_down_that_does_not_hear_those_that_vote_now() -> None:
    stage = grown_from_one()
    stage.isolate(1)
    stage.until(lambda: not stage.group(1).is_leader)


def a_vote_that_comes_back_is_waited_for_anew() -> None:
    """H16. Node 4 has lost its memory, and node 2 has answered since; in the new configuration that says nothing."""
    stage = led(4, 1)
    stage.wipe(4)
    cut_between(stage, (1, 3))
    stage.until(lambda: stage.group(1)._step.vote_recovery.is_mute(4))
    recovery = stage.group(1)._step.vote_recovery
    stage.until(lambda: recovery._mute[4].missing == {3})
    change(stage, 1, lambda latest: with_learner(latest, NEW, 1))
    assert recovery._mute[4].missing == {2, 3}


# ---- without the rules


@contextlib.contextmanager
def who_leaves_is_sent_everything() -> Iterator[None]:
    """A replica stays a peer when the configuration that removes it is appended."""
    update = Membership.update

    def keeping(membership: Membership) -> tuple[list[RaftMember], list[RaftMember]]:
        gone, come = update(membership)
        membership.peers.update((one.id, one) for one in gone)
        return [], come

    with (
        mock.patch.object(Membership, "update", keeping),
        mock.patch.object(Membership, "sendable_up_to", return_value=inf),
    ):
        yield


@contextlib.contextmanager
def changes_begin_before_an_own_entry() -> Iterator[None]:
    view, require = MemberChanges.view, MemberChanges.require

    def early(changes: MemberChanges, *values: Any, is_ready: bool) -> LeaderView:
        return view(changes, *values, is_ready=True)

    def lenient(changes: MemberChanges, new: Any, *, is_ready: bool) -> None:
        require(changes, new, is_ready=True)

    with mock.patch.object(MemberChanges, "view", early), mock.patch.object(MemberChanges, "require", lenient):
        yield


@contextlib.contextmanager
def leaders_that_are_to_leave_stay() -> Iterator[None]:
    """The leadership is not handed over while anything is under way."""
    with mock.patch.object(LeadershipTransfer, "start"):
        yield


def _first_quorum(membership: Membership) -> Quorum:
    """That of the founding configuration, as if a number had been noted."""
    return Quorum(holes.Configuration(1, frozenset({A})))


@contextlib.contextmanager
def reads_are_confirmed_by_an_old_number() -> Iterator[None]:
    begin = ReadIndex.begin_round

    def by_the_first(reads: ReadIndex, sequence: int, commit_index: int) -> None:
        now = reads._membership.quorum
        reads._membership.quorum = _first_quorum(reads._membership)
        try:
            begin(reads, sequence, commit_index)
        finally:
            reads._membership.quorum = now

    with mock.patch.object(ReadIndex, "begin_round", by_the_first):
        yield


@contextlib.contextmanager
def leaders_hear_an_old_number() -> Iterator[None]:
    count = LastResponse.count

    def by_the_first(heard: LastResponse, membership: Membership) -> None:
        now = membership.quorum
        membership.quorum = _first_quorum(membership)
        try:
            count(heard, membership)
        finally:
            membership.quorum = now

    with mock.patch.object(LastResponse, "count", by_the_first):
        yield


@contextlib.contextmanager
def votes_come_back_by_old_answers() -> Iterator[None]:
    with mock.patch.object(VoteRecovery, "members_changed"):
        yield


STORIES: dict[Callable[[], None], Callable[[], contextlib.AbstractContextManager[None]]] = {
    two_sets_do_not_decide_side_by_side: holes.the_new_set_alone_is_enough,
    an_empty_server_costs_nothing_when_one_fails: holes.learners_count,
    who_leaves_is_not_sent_that_before_it_is_committed: who_leaves_is_sent_everything,
    a_rack_fails_that_has_who_comes_and_who_goes: holes.a_majority_of_the_union_is_enough,
    the_joint_phase_ends_under_load_when_its_leader_is_to_leave: leaders_that_are_to_leave_stay,
    a_change_waits_for_an_entry_of_its_leader: changes_begin_before_an_own_entry,
    a_read_is_confirmed_by_those_that_vote_now: reads_are_confirmed_by_an_old_number,
    a_leader_steps_down_that_does_not_hear_those_that_vote_now: leaders_hear_an_old_number,
    a_vote_that_comes_back_is_waited_for_anew: votes_come_back_by_old_answers,
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_ends_well(story: Callable[[], None]) -> None:
    story()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_without_its_rule_it_does_not(story: Callable[[], None]) -> None:
    with STORIES[story](), pytest.raises((AssertionError, KeyError, ValueError)):
        story()
