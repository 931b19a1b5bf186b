"""Replicas that come and go while a group works: with the real groups, on simulated disks."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.raft import Committed, InvariantBroken, NotLeader, forget_group
from cluster.raft.log.key_layout import births_over, group_prefix
from cluster.raft.membership.changes import AwaitCondition, Wish
from cluster.raft.membership.configuration import Replica, joint, with_learner
from cluster.raft.proposal_outcomes import ChangeRefused, OtherBirth
from cluster.raft.replication.append_sender import FAR_ENTRIES
from cluster.raft.replication.message_encoding import Stamp
from node.startup.bootstrap import Bootstrap
from tests.unit.raft.cluster import GROUP, kinds
from tests.unit.raft.membership.moving import MovingStage, ignored, led, swap

A, B, C, D = Replica(1, 1), Replica(2, 1), Replica(3, 1), Replica(4, 17)


def append(stage: MovingStage, node: int, wish: Wish) -> None:
    """The next step of that leader, once it may be taken."""
    group = stage.group(node)
    stage.until(lambda: not isinstance(group.next_step(wish), AwaitCondition))
    stage.take(group, group.next_step(wish))


def test_a_replica_is_exchanged_while_events_come() -> None:
    stage = led()
    outcomes = stage.propose(1, "a", "b")
    stage.move(swap(4, 17, C))
    later = stage.propose(1, "c")
    stage.run(0.2)
    assert kinds(outcomes + later) == ["Committed"] * 3
    assert [stage.voters(node) for node in (1, 2, 4)] == [["1/1", "2/1", "4/17"]] * 3
    assert stage.machines[4].applied == [b"a", b"b", b"c"]
    assert (stage.ended_in, stage.configuration(1).ended) == (4, 1)
    assert not any(str(stage.configuration(3)).startswith(f"v{version}") for version in (4, 5)), "it is not sent F"
    stage.close(3)
    assert births_over(GROUP, stage.disks[3]) == 1
    stage.stop(1)
    stage.until(lambda: stage.leader in (2, 4))


def test_the_new_voter_is_needed_and_enough_with_one_other() -> None:
    stage = led()
    stage.move(swap(4, 17, C))
    stage.stop(2)
    stage.stop(3)
    outcomes = stage.propose(1, "by 1 and 4")
    stage.run(0.1)
    assert kinds(outcomes) == ["Committed"]
    stage.isolate(4)
    outcomes = stage.propose(1, "by 1 alone")
    stage.run(0.3)
    assert outcomes == []


def test_while_both_sets_decide_both_are_needed() -> None:
    stage = led()
    stage.open(4, 17)
    wish = swap(4, 17, C)
    append(stage, 1, wish)
    stage.until(lambda: stage.group(4).last_index == stage.group(1).last_index)
    stage.run(0.05)
    stage.isolate(2)
    stage.isolate(4)
    group = stage.group(1)
    group.propose_configuration(joint(stage.configuration(1), 1, add=D, remove=C), ignored)
    outcomes = stage.propose(1, "by 1 and 3, a majority of the old ones")
    stage.run(0.2)
    assert outcomes == []
    stage.heal()
    stage.until(lambda: kinds(outcomes) == ["Committed"])


def test_a_learner_follows_and_does_not_count() -> None:
    stage = led()
    stage.open(4, 17)
    append(stage, 1, swap(4, 17, C))
    stage.until(lambda: stage.group(4).last_index == stage.group(1).last_index)
    stage.isolate(2)
    stage.isolate(3)
    outcomes = stage.propose(1, "a")
    stage.run(0.2)
    assert stage.group(4).last_index == stage.group(1).last_index
    assert outcomes == []
    assert stage.group(1).has_vote(4) is False
    stage.run(3.0)
    assert stage.leader != 4
    assert not stage.group(4).is_leader


def test_a_leader_that_is_to_leave_hands_over_first() -> None:
    stage = led()
    stage.move(swap(4, 17, A))
    assert stage.leader in (2, 3)
    assert stage.voters(stage.leader) == ["2/1", "3/1", "4/17"]
    stage.run(0.2)
    assert not stage.group(1).is_leader


def test_a_group_of_one_moves_to_another_node() -> None:
    stage = led(1, 1)
    outcomes = stage.propose(1, "a")
    stage.move(swap(2, 17, A))
    stage.run(0.1)
    assert (stage.leader, kinds(outcomes)) == (2, ["Committed"])
    assert stage.machines[2].applied == [b"a"]
    stage.close(1)
    outcomes = stage.propose(2, "b")
    stage.run(0.05)
    assert kinds(outcomes) == ["Committed"]


def test_a_group_grows_and_shrinks() -> None:
    stage = led(1, 4)
    for node in (2, 3):
        version = stage.configuration(1).version
        stage.move(Wish(node, version, voter=Replica(node, 10 + node)))
    assert stage.voters(1) == ["1/1", "2/12", "3/13"]
    stage.stop(3)
    assert kinds(run(stage, "two of three")) == ["Committed"]
    stage.start(3)
    stage.until(lambda: stage.group(3).applied_index == stage.group(1).applied_index)
    stage.move(Wish(9, stage.configuration(1).version, gone=Replica(2, 12)))
    stage.stop(2)
    assert kinds(run(stage, "two of two")) == ["Committed"]


def run(stage: MovingStage, text: str) -> list[object]:
    assert stage.leader is not None
    outcomes = stage.propose(stage.leader, text)
    stage.run(0.1)
    return list(outcomes)


def test_a_cancel_takes_the_learner_out_and_the_move_never_begins_again() -> None:
    stage = led()
    stage.open(4, 17)
    append(stage, 1, swap(4, 17, C))
    stage.run(0.1)
    stage.wish = Wish(1, 1, voter=D, gone=C, is_cancelled=True)
    stage.until(lambda: stage.wish is None)
    assert str(stage.configuration(1)) == "v3 voters 1/1 2/1 3/1, ended 1"
    stage.wish = swap(4, 17, C)  # of metadata that have not heard of the cancel
    stage.until(lambda: stage.wish is None)
    assert stage.configuration(1).version == 3
    stage.run(1.0)
    assert not stage.group(4).is_leader


def test_a_voter_becomes_a_learner_with_its_log() -> None:
    stage = led(3, 0)
    stage.move(Wish(1, 1, learner=C))
    outcomes = stage.propose(1, "a")
    stage.run(0.2)
    assert kinds(outcomes) == ["Committed"]
    assert str(stage.configuration(3)) == "v3 voters 1/1 2/1, learners 3/1, ended 1"
    assert stage.machines[3].applied == [b"a"]
    stage.stop(2)
    outcomes = stage.propose(1, "b")
    stage.run(0.3)
    assert outcomes == []
    assert not stage.group(3).is_leader


def test_a_restart_amid_a_move_knows_who_votes() -> None:
    """Of the group's own rows: whoever opens it names the founding members, or none (NATS 7850)."""
    stage = led()
    stage.move(swap(4, 17, C))
    for node in (1, 2, 4):
        stage.stop(node, power_loss=True)
    for node in (1, 2, 4):
        stage.start(node)
    assert [stage.voters(node) for node in (1, 2, 4)] == [["1/1", "2/1", "4/17"]] * 3
    stage.until(lambda: stage.leader in (1, 2, 4))
    assert kinds(run(stage, "again")) == ["Committed"]


def test_what_left_and_comes_back_is_another_replica() -> None:
    stage = led()
    stage.move(swap(4, 17, C))
    stage.close(3)
    stage.run(0.05)
    with pytest.raises(OtherBirth, match="births up to 1 are over"):
        stage.open(3, 1)
    stage.births.pop(3, None)
    stage.move(swap(3, 20, B, move=2, version=4))
    assert stage.voters(1) == ["1/1", "3/20", "4/17"]
    stage.run(0.1)
    assert stage.group(3).birth == 20


def test_a_replica_of_an_earlier_birth_is_begun_anew() -> None:
    stage = led()
    stage.move(swap(4, 17, C))
    stage.multirafts[3].close_group(GROUP, erase=False)
    stage.open(3, 20)
    assert stage.group(3).remembers_nothing
    assert stage.group(3).birth == 20
    stage.multirafts[3].close_group(GROUP, erase=False)
    with pytest.raises(OtherBirth, match="its metadata are behind"):
        stage.multirafts[3].open_group(GROUP, [], stage.machines[3], birth=19)


def test_a_replica_without_a_configuration_leads_nothing_and_votes_when_asked() -> None:
    """NATS 8489, and etcd's learner that must vote."""
    stage = led()
    stage.open(4, 17, members=[])
    stage.run(3.0)
    assert (stage.group(4).term, stage.group(4).last_index) == (0, 1)
    with pytest.raises(InvariantBroken, match="does not vote campaigns"):
        stage.group(4)._core._SyncObj__setState(1)
    assert stage.group(4).configuration is None


def test_a_single_founder_that_lost_its_disk_after_its_group_grew_leads_nothing() -> None:
    """Neither at once nor after a restart, when there is something stored of it again (seed 2073 of `moving`)."""
    stage = led(1, 2)
    stage.move(Wish(1, 1, voter=Replica(2, 12)))
    run(stage, "a")
    stage.stop(1)
    stage.disks[1] = type(stage.disks[1])()
    del stage.births[1]
    stage.cut = {(1, 2), (2, 1)}
    stage.start(1)
    for _ in range(2):
        group = stage.open(1, 1, mute=True)
        stage.run(1.0)
        assert (group.is_leader, group.term, group.last_index) == (False, 0, 1)
        stage.multirafts[1].close_group(GROUP, erase=False)
    stage.open(1, 1, mute=True)
    stage.heal()
    stage.until(lambda: stage.leader == 2)
    stage.propose(2, "b")
    stage.until(lambda: stage.group(1).has_vote(1))
    stage.until(lambda: stage.machines[1].applied == [b"a", b"b"])


def test_who_has_left_a_group_of_one_gets_no_vote_of_its_successor_that_forgot_the_end() -> None:
    """The successor ended the move alone, and others came since (seed 610350 of `moving`)."""
    stage = led(1, 2)
    stage.open(2, 12)
    stage.wish = Wish(1, 1, voter=Replica(2, 12), gone=A)
    stage.until(lambda: stage.leader == 2 and not stage.configuration(2).is_joint)
    assert stage.configuration(1).is_joint
    stage.stop(1)
    stage.until(lambda: stage.wish is None)
    stage.move(Wish(2, stage.ended_in, voter=Replica(3, 13)))
    run(stage, "a")
    stage.wipe(2)
    stage.isolate(3)
    stage.start(1)
    stage.run(3.0)
    assert not stage.group(1).is_leader
    stage.stop(1)
    stage.heal()
    stage.until(lambda: stage.leader is not None and stage.machines[2].applied == [b"a"])


def test_a_founder_that_got_its_vote_back_in_a_group_that_never_changed_can_lead_it() -> None:
    """No log tells it who the members are (seed 504878 of `moving`)."""
    stage = led(2, 0)
    run(stage, "a")
    stage.wipe(2)
    stage.until(lambda: not stage.group(2).log_store.mute)
    stage.group(1).transfer(2)
    stage.until(lambda: stage.leader == 2)
    stage.wipe(1)
    stage.until(lambda: not stage.group(1).log_store.mute)
    run(stage, "b")
    assert stage.machines[1].applied == [b"a", b"b"]


@pytest.mark.parametrize("founders", [1, 2])
def test_founders_that_were_given_up_after_their_group_grew_begin_no_other_one(founders: int) -> None:
    """Nobody tells a founder that stood alone that it is not new. Two that meet would tell each other that they are."""
    stage = led(founders, 4 - founders)
    for node in range(founders + 1, 5):
        stage.move(Wish(node, stage.ended_in or 1, voter=Replica(node, 10 + node)))
    run(stage, "a")
    for node in stage.founders:
        stage.stop(node)
        batch: Any = stage.disks[node].batch()
        forget_group(GROUP, batch, 15)
        stage.disks[node].write(batch)
        stage.cut |= {way for other in range(founders + 1, 5) for way in ((node, other), (other, node))}
    for node in stage.founders:
        stage.start(node)
    for node in stage.founders:
        others = set(stage.founders) - {node}
        meeting = Bootstrap(stage.group(node), others)
        for other in others:
            meeting.heard(other, is_new=stage.group(other).remembers_nothing)
    stage.run(3.0)
    for node in stage.founders:
        assert (stage.group(node).is_leader, stage.group(node).has_vote(node)) == (False, False)


@pytest.mark.parametrize("founders", [1, 3])
def test_a_move_that_is_wished_before_its_group_was_opened_anywhere_comes_about(founders: int) -> None:
    """The metadata of every founder speak of the move when it opens the group for the first time."""
    stage, members = MovingStage(0, founders + 1), list(range(1, founders + 1))
    for node in members:
        stage.open(node, 1, members=members)
    stage.until(lambda: stage.leader is not None and stage.group(stage.leader).ready)
    stage.move(swap(founders + 1, 17, A))
    assert f"{founders + 1}/17" in stage.voters(stage.leader or 0)


def test_a_change_is_refused_that_may_not_be_made_now() -> None:
    stage = led()
    group = stage.group(1)
    learner = with_learner(stage.configuration(1), D, 1)
    with pytest.raises(NotLeader):
        stage.group(2).propose_configuration(learner, ignored)
    with pytest.raises(ChangeRefused, match="may not follow"):
        group.propose_configuration(joint(stage.configuration(1), 1, add=D, remove=C), ignored)
    with pytest.raises(ChangeRefused, match="hand the leadership over"):
        group.propose_configuration(joint(stage.configuration(1), 1, add=None, remove=A), ignored)
    with pytest.raises(ValueError, match="propose_configuration"):
        group.propose(b"\x02", ignored)
    group.propose_configuration(learner, ignored)
    with pytest.raises(ChangeRefused, match="is not committed yet"):
        group.propose_configuration(joint(stage.configuration(1), 1, add=D, remove=C), ignored)
    stage.version = 14
    with pytest.raises(ChangeRefused, match="finalize its upgrade"):
        group.propose_configuration(learner, ignored)


def test_a_group_that_never_moved_says_and_stores_what_it_did_in_version_14() -> None:
    told = []
    for version in (14, 15):
        stage = MovingStage(3, 0)
        stage.version = version
        stage.elect(1)
        stage.propose(1, "a")
        stage.run(0.5)
        stored = [stage.disks[node].get(group_prefix(b"h", GROUP)) for node in stage.ids]
        told.append((stored, [(a, b, message.SerializeToString(deterministic=True)) for a, b, message in stage.sent]))
    assert told[0] == told[1]


def test_a_group_moves_while_a_voter_with_data_of_version_14_is_away() -> None:
    """Its data hold no row of a configuration, and nothing has rewritten them."""
    stage = MovingStage()
    stage.version = 14
    stage.elect(1)
    stage.propose(1, "a")
    stage.run(0.5)
    stage.stop(3)
    stage.version = 15
    stage.move(swap(4, 17, B))
    stage.close(2)
    stage.start(3)
    stage.until(lambda: stage.group(3).configuration == stage.configuration(1) and stage.group(3).is_settled)
    stage.stop(1)
    stage.until(lambda: stage.leader in (3, 4))
    assert stage.machines[3].applied == [b"a"]


def test_a_snapshot_brings_the_configuration() -> None:
    stage = led(max_append_entries=8, trim_wait_s=0.2)
    stage.move(swap(4, 17, C))
    stage.close(3)
    stage.stop(2)
    stage.propose(1, *(str(number) for number in range(40)))
    stage.run(1.0)
    stage.group(1).trim(stage.group(1).applied_index)
    stage.until(lambda: stage.group(1).first_index > 20)
    stage.move(Wish(2, stage.configuration(1).version, learner=Replica(5, 30)))
    stage.open(5, 30)
    stage.until(lambda: stage.group(5).applied_index == stage.group(1).applied_index)
    assert stage.configuration(5) == stage.configuration(1)
    assert len(stage.machines[5].applied) == 40
    stage.run(1.0)
    assert not stage.group(5).is_leader


def test_a_truncated_change_is_in_force_no_more() -> None:
    stage = led()
    stage.isolate(1)
    group = stage.group(1)
    group.propose_configuration(with_learner(stage.configuration(1), D, 1), ignored)
    assert stage.configuration(1).version == 2
    stage.until(lambda: stage.leader in (2, 3))
    stage.heal()
    stage.until(lambda: stage.configuration(1).version == 1)
    assert 4 not in stage.group(1)._peers


def test_nobody_rests_while_a_change_is_open() -> None:
    stage = led(quiesce_after_s=0.05)
    stage.until(lambda: stage.group(1).is_quiet)
    stage.open(4, 17)
    append(stage, 1, swap(4, 17, C))
    stage.run(1.0)
    assert not any(stage.group(node).is_quiet for node in (1, 2, 3, 4))
    stage.move(swap(4, 17, C))
    stage.close(3)
    stage.until(lambda: stage.group(1).is_quiet)


def test_a_question_of_a_replica_that_left_wakes_nobody() -> None:
    """A question of a member does."""
    stage = led(quiesce_after_s=0.05)
    stage.move(swap(4, 17, C))
    stage.until(lambda: stage.group(1).is_quiet)
    stage.close(3)
    group = stage.group(1)
    for sender, is_quiet in ((3, True), (2, False)):
        question = Stamp(GROUP, 1).vote_request(group.term + 1, (group.last_index, group.term), pre=True)
        stage.inject(sender, 1, question)
        stage.run(0.02)
        assert group.is_quiet == is_quiet, f"asked by {sender}"


def test_a_group_comes_to_rest_though_a_replica_that_left_goes_on_asking() -> None:
    """H16 of the review. Else one that does not hear that it left would keep the group from its rest for ever."""
    stage = led(quiesce_after_s=0.2)
    stage.move(swap(4, 17, C))
    stage.close(3)
    group = stage.group(1)

    def asked() -> bool:
        question = Stamp(GROUP, 1).vote_request(group.term + 1, (group.last_index, group.term), pre=True)
        stage.inject(3, 1, question)
        stage.run(0.05)
        return group.is_quiet

    assert not group.is_quiet
    assert any(asked() for _ in range(60))


def test_a_wish_wakes_a_group_that_rests() -> None:
    """Its followers are heard by the heartbeats of their nodes (seed 3118 of `moving`)."""
    stage = led(quiesce_after_s=0.05)
    stage.until(lambda: stage.group(1).is_quiet)
    stage.run(3.0)
    assert stage.group(1).is_quiet
    stage.move(Wish(1, 1, gone=C), seconds=1.0)
    assert stage.voters(1) == ["1/1", "2/1"]


def test_the_replica_that_left_hears_so_and_asks_no_more() -> None:
    stage = led()
    stage.move(swap(4, 17, C))
    stage.run(0.1)
    before = len(stage.sent)
    stage.run(5.0)
    asked = [message for sender, _, message in stage.sent[before:] if sender == 3]
    assert [message.WhichOneof("body") for message in asked] == []
    assert Committed in {type(outcome) for outcome in run(stage, "a")}


def test_a_learner_that_has_not_answered_is_not_near_however_short_the_log_is() -> None:
    stage = led()
    stage.open(4, 17)
    stage.run(0.1)
    append(stage, 1, swap(4, 17, C))
    group = stage.group(1)
    assert group.near == {1, 2, 3}, "its connection alone says nothing"
    stage.until(lambda: group.near == {1, 2, 3, 4})
    assert stage.group(2).near == frozenset(), "who does not lead knows nothing of it"
    assert group.voters == {1, 2, 3}


def test_a_learner_that_falls_behind_again_is_copied_at_a_pace() -> None:
    """What came while it was near does not count as growth of its next copy."""
    stage = led()
    stage.open(4, 17)
    append(stage, 1, swap(4, 17, C))
    for _ in range(20):
        stage.propose(1, *["near"] * 30)
        stage.run(0.05)
    stage.until(lambda: 4 in stage.group(1).near)
    assert not any(message.append.paced for *_, message in stage.sent)
    stage.isolate(4)
    stage.propose(1, *["away"] * 400)
    stage.run(0.5)
    before = len(stage.sent)
    stage.heal()
    stage.until(lambda: stage.group(4).last_index == stage.group(1).last_index)
    sent = [message.append for *_, message in stage.sent[before:] if message.HasField("append")]
    assert sum(len(append.entries) for append in sent if append.paced) >= 400 - FAR_ENTRIES


def copying_slowly() -> MovingStage:
    """Node 4 is a learner, is heard, and has a small part of what it lacks."""
    stage = led(fetch_bytes_per_s=1 << 20)
    stage.propose(1, *[f"{number}" for number in range(600)])
    stage.run(0.5)
    stage.open(4, 17)
    append(stage, 1, swap(4, 17, C))
    stage.until(lambda: 0 < stage.group(1).match_index(4) < 300)
    return stage


def test_a_log_waits_for_a_learner_that_is_copied_unless_the_disk_is_full() -> None:
    stage = copying_slowly()
    leader = stage.group(1)
    leader.trim(leader.applied_index - 10)
    stage.run(0.05)
    assert leader.first_index <= leader.match_index(4) + 1
    stage.multirafts[1].is_disk_full = True
    leader.trim(leader.applied_index - 10)
    stage.run(0.05)
    assert leader.first_index > leader.applied_index - 20 > leader.match_index(4)
    stage.move(swap(4, 17, C), seconds=20.0)
    assert stage.voters(1) == ["1/1", "2/1", "4/17"]
    assert stage.group(4).first_index > 300, "it began anew, by a snapshot"


def test_a_log_waits_for_voters_on_a_full_disk_too() -> None:
    stage = led()
    stage.multirafts[1].is_disk_full = True
    stage.isolate(3)
    stage.propose(1, "a", "b", "c")
    stage.run(0.05)
    leader = stage.group(1)
    leader.trim(leader.applied_index)
    stage.run(0.05)
    assert leader.first_index <= leader.match_index(3) + 1
