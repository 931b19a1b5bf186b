"""Stories of changes that went wrong for others, or would have here: told with the rule, and noticed without it.

Random schedules meet some of them seldom, or never.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from math import inf
from typing import Any
from unittest import mock

import pytest

from cluster.raft.elections.vote_recovery import VoteRecovery
from cluster.raft.membership.changes import Wish
from cluster.raft.membership.configuration import Replica, final, joint, with_learner
from cluster.raft.membership.membership import Membership
from cluster.raft.proposal_outcomes import ChangeRefused
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.replication.message_encoding import Stamp
from tests.simulation.moving import holes
from tests.unit.raft.cluster import GROUP, kinds
from tests.unit.raft.membership.moving import MovingStage, ignored, led, swap

A, B, C, D = Replica(1, 1), Replica(2, 1), Replica(3, 1), Replica(4, 17)


def change(stage: MovingStage, node: int, step: Callable[[Any], Any]) -> None:
    """Append the next configuration, made of the latest, as soon as that is committed."""
    group = stage.group(node)
    stage.until(lambda: group.ready and group._membership.is_committed)
    group.propose_configuration(step(group.configuration), ignored)


def learned(stage: MovingStage, leader: int, replica: Replica) -> None:
    """The replica is a learner, and has all of the log."""
    stage.open(replica.node, replica.birth)
    change(stage, leader, lambda latest: with_learner(latest, replica, latest.ended + 1))
    stage.until(lambda: stage.group(replica.node).last_index == stage.group(leader).last_index)


def cut_between(stage: MovingStage, *pairs: tuple[int, int]) -> None:
    stage.cut |= {way for a, b in pairs for way in ((a, b), (b, a))}


def the_other_of_two_lost_its_disk_amid_a_change() -> None:
    """H1 of the review. Node 3 joins 1 and 2; node 1 has heard of J and not of F; an entry is committed by 2 and 3, and
    2 loses its disk. It believes that 1 and 2 are all there is, and must not elect 1 for that."""
    stage = led(2, 1, by=2)
    new = Replica(3, 12)
    learned(stage, 2, new)
    change(stage, 2, lambda latest: joint(latest, 1, add=new, remove=None))
    stage.until(lambda: stage.group(2)._membership.is_committed)
    stage.run(0.05)
    cut_between(stage, (1, 2), (1, 3))
    change(stage, 2, final)
    outcomes = stage.propose(2, "by 2 and 3")
    stage.until(lambda: kinds(outcomes) == ["Committed"])
    stage.isolate(3)
    stage.wipe(2)
    stage.cut -= {(1, 2), (2, 1)}
    stage.run(5.0)
    assert not stage.group(1).is_leader, "the entry would be lost"
    stage.heal()
    stage.until(lambda: stage.machines[1].applied == [b"by 2 and 3"])


def one_of_two_lost_its_disk_before_a_third_votes() -> None:
    """Node 3 joins 1 and 2. J is on 1 and 3 when 2 loses its disk: without 2 nobody leads, and nothing is committed.
    It may vote for whom both others vote."""
    stage = led(2, 1, by=1)
    outcomes = stage.propose(1, "by 1 and 2")
    stage.until(lambda: kinds(outcomes) == ["Committed"])
    new = Replica(3, 12)
    learned(stage, 1, new)
    cut_between(stage, (1, 2), (2, 3))
    change(stage, 1, lambda latest: joint(latest, 1, add=new, remove=None))
    stage.until(lambda: stage.configuration(3).is_joint)
    stage.stop(1)
    stage.wipe(2)
    stage.heal()
    stage.start(1)
    stage.until(lambda: stage.leader is not None and stage.group(2).has_vote(2))
    stage.until(lambda: stage.group(2)._membership.is_committed)
    assert stage.configuration(2).is_joint
    assert stage.machines[2].applied == [b"by 1 and 2"]


def the_old_leader_meets_a_new_life_of_a_member() -> None:
    """tikv 1262. Node 2 hears nothing of a move from 3 to 4, nor of one of 3 back: the new replica on node 3 must not
    answer for the old one, whose vote it would be."""
    stage = led(by=1)
    stage.isolate(2)
    stage.move(swap(4, 17, C))
    stage.close(3)
    stage.open(3, 20)
    stage.cut.clear()
    cut_between(stage, (1, 2), (1, 3), (2, 4), (3, 4))
    stage.run(5.0)
    assert stage.group(2).term == 1, "it lacks what 1 and 4 have committed, and is elected by nobody"


def test_the_old_leader_is_not_acknowledged_by_a_new_life_of_a_member() -> None:
    """Node 2 led before it was cut off, so that it needs no vote but only an acknowledgement."""
    stage = led(by=2, quorum_check_s=1e6)
    stage.isolate(2)
    outcomes = stage.propose(2, "by 2 alone")
    stage.until(lambda: stage.leader in (1, 3))
    stage.move(swap(4, 17, C))
    stage.close(3)
    stage.open(3, 20)
    stage.cut.clear()
    cut_between(stage, (1, 2), (1, 3), (2, 4), (3, 4))
    stage.run(1.0)
    assert outcomes == [], "the entry was never committed"


def a_voter_that_becomes_a_learner_is_sent_that_too_soon() -> None:
    """H6, figure 4.6 of the dissertation. Were node 3 sent F before it is committed, it would have a longer log than
    node 1 and might not campaign; and 1 needs its vote."""
    stage = led(by=2)
    learned(stage, 2, D)
    change(stage, 2, lambda latest: joint(latest, 1, add=D, remove=C, demote=True))
    stage.until(lambda: stage.group(2)._membership.is_committed)
    stage.run(0.2)
    cut_between(stage, (1, 2), (2, 4))
    change(stage, 2, final)
    stage.run(0.1)
    stage.stop(2)
    stage.heal()
    stage.until(lambda: stage.leader in (1, 3, 4))


def a_learner_votes_that_has_not_heard_of_its_promotion() -> None:
    """etcd 10998. J reached node 2 only, and its leader is dead: 2 needs node 4 for the new set."""
    stage = led(by=1)
    learned(stage, 1, D)
    cut_between(stage, (1, 3), (1, 4))
    change(stage, 1, lambda latest: joint(latest, 1, add=D, remove=C))
    stage.until(lambda: stage.configuration(2).is_joint)
    stage.stop(1)
    stage.heal()
    stage.until(lambda: stage.leader == 2)


def a_restart_begins_with_the_founding_members() -> None:
    """NATS 7850. All of a group that moved away from its founders start again."""
    stage = led(1, 2)
    stage.move(Wish(1, 1, voter=Replica(2, 12), gone=A))
    stage.run(0.1)
    stage.close(1)
    stage.births[1] = 1
    stage.stop(2)
    stage.start(2)
    stage.until(lambda: stage.leader == 2)


def what_a_leader_knew_of_one_life_it_does_not_know_of_the_next() -> None:
    """H8 of the review. Else a replica that comes back with nothing would be near at once."""
    stage = led()
    stage.propose(1, "a", "b", "c")
    stage.move(swap(4, 17, C))
    stage.close(3)
    change(stage, 1, lambda latest: with_learner(latest, Replica(3, 20), 2))
    assert stage.group(1).match_index(3) == 0


@contextlib.contextmanager
def the_hint_decides() -> Iterator[None]:
    """A member without a memory looks who votes by what it was opened with."""
    with mock.patch.object(Membership, "may_change", False), mock.patch.object(holes.MemberChanges, "require"):
        yield


@contextlib.contextmanager
def a_vote_comes_back_by_commits_alone() -> Iterator[None]:
    with mock.patch.object(VoteRecovery, "_needs_no_commit", return_value=False):
        yield


@contextlib.contextmanager
def members_are_known_by_their_nodes() -> Iterator[None]:
    """What a leader knows of a replica it knows of the next one on that node."""
    begin = Core.begin_member

    def is_the_same(one: RaftMember, other: object) -> bool:
        return isinstance(other, RaftMember) and one.id == other.id

    def once(core: Core, member: RaftMember, now: float) -> None:
        if member not in core.match:
            begin(core, member, now)

    with (
        mock.patch.object(RaftMember, "__eq__", is_the_same),
        mock.patch.object(Core, "begin_member", once),
        mock.patch.object(Core, "forget_member"),
    ):
        yield


@contextlib.contextmanager
def everybody_is_sent_everything() -> Iterator[None]:
    with mock.patch.object(Membership, "sendable_up_to", return_value=inf):
        yield


STORIES: dict[Callable[[], None], Callable[[], contextlib.AbstractContextManager[None]]] = {
    the_other_of_two_lost_its_disk_amid_a_change: the_hint_decides,
    one_of_two_lost_its_disk_before_a_third_votes: a_vote_comes_back_by_commits_alone,
    the_old_leader_meets_a_new_life_of_a_member: holes.births_are_ignored_in_votes,
    a_voter_that_becomes_a_learner_is_sent_that_too_soon: everybody_is_sent_everything,
    a_learner_votes_that_has_not_heard_of_its_promotion: holes.learners_refuse_their_votes,
    a_restart_begins_with_the_founding_members: holes.restarts_begin_with_the_founding_members,
    what_a_leader_knew_of_one_life_it_does_not_know_of_the_next: members_are_known_by_their_nodes,
}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_ends_well(story: Callable[[], None]) -> None:
    story()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_without_its_rule_it_does_not(story: Callable[[], None]) -> None:
    with STORIES[story](), pytest.raises((AssertionError, KeyError, ValueError)):
        story()


# ---- shorter ones


def test_two_changes_of_two_terms_do_not_both_begin() -> None:
    """Ongaro's report of 2015. A new leader changes nothing before an entry of its own term is committed."""
    stage = led(by=1, spare=2)
    cut_between(stage, (1, 2), (1, 3))
    stage.group(1).propose_configuration(with_learner(stage.configuration(1), D, 1), ignored)
    stage.until(lambda: stage.leader in (2, 3))
    leader = stage.leader
    assert leader is not None
    group = stage.group(leader)
    assert not group.ready
    with pytest.raises(ChangeRefused, match="an entry of this leadership, is not committed yet"):
        group.propose_configuration(with_learner(stage.configuration(leader), Replica(5, 18), 2), ignored)


def test_an_answer_adds_nobody() -> None:
    """NATS 8258. A node that was removed, and answers on, stays so."""
    stage = led()
    before = dict(stage.group(1)._peers)
    stranger = Stamp(GROUP, 9)
    for message in (
        stranger.append_reply(stage.group(1).term, 99, 99, success=True, reset=False),
        stranger.vote_reply(stage.group(1).term, granted=True),
        stranger.stale_term(stage.group(1).term + 5),
    ):
        stage.inject(5, 1, message)
    stage.run(0.1)
    assert stage.group(1)._peers == before
    assert stage.group(1).is_leader


def test_who_hears_that_it_left_minds_its_own_birth_and_newer_configurations_only() -> None:
    """H8 of the review: a late word to one life must not silence the next."""
    stage = led()
    stage.move(swap(4, 17, C))
    group = stage.group(4)
    for birth, version in ((1, 99), (17, 4), (17, 2)):
        message = Stamp(GROUP, 1).not_member(group.term, version)
        message.to = birth
        stage.inject(1, 4, message)
        stage.run(0.01)
        assert group._membership.may_campaign, (birth, version)
    message = Stamp(GROUP, 1).not_member(group.term, 99)
    message.to = 17
    stage.inject(1, 4, message)
    stage.run(0.01)
    assert not group._membership.may_campaign


def test_a_member_of_the_metadata_group_hears_its_birth_from_the_leader() -> None:
    """H7: the metadata are what it lacks, so nobody else can tell it."""
    stage = led()
    change(stage, 1, lambda latest: with_learner(latest, D, 1))
    stage.machines[4] = stage._machine()
    stage.multirafts[4].open_group(GROUP, [], stage.machines[4], birth=None, mute=True)
    stage.births[4] = 17
    assert stage.group(4).birth == 0
    stage.until(lambda: stage.group(4).birth == 17)
    stage.until(lambda: stage.group(4).last_index == stage.group(1).last_index)
    stage.stop(4)
    stage.start(4)
    assert stage.group(4).birth == 17, "it is on disk"


def test_a_mute_member_is_waited_for_anew_when_members_change() -> None:
    """H16: who is mute stays so, and counts only when the voters of the new configuration have answered."""
    stage = led(5, 1)
    stage.wipe(5)
    cut_between(stage, (1, 4))
    stage.until(lambda: stage.group(1)._step.vote_recovery.is_mute(5))
    stage.run(0.5)
    assert not stage.group(1).has_vote(5), "node 4 has not answered"
    change(stage, 1, lambda latest: with_learner(latest, Replica(6, 17), 1))
    assert stage.group(1)._step.vote_recovery.is_mute(5)
    stage.heal()
    stage.until(lambda: stage.group(1).has_vote(5))
