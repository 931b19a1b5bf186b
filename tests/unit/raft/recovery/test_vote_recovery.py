"""Members that have lost their memory: what they forgot must not count, and they get their vote back."""

from __future__ import annotations

from cluster.raft import Committed, RaftOptions
from cluster.raft.raft_pb2 import RaftMessage
from cluster.raft.replication.message_encoding import Stamp
from tests.unit.raft.cluster import GROUP, RaftStage


def led_by_one(nodes: int = 3, **kwargs: object) -> RaftStage:
    stage = RaftStage(nodes, **kwargs)
    stage.elect(1)
    stage.run(0.05)
    return stage


def test_a_wiped_member_gets_its_log_and_its_vote_back() -> None:
    stage = led_by_one()
    stage.propose(1, "a", "b", "c")
    stage.run(0.05)
    stage.wipe(3)
    assert not stage.group(3).has_vote(3)
    stage.until(lambda: stage.group(3).has_vote(3))
    assert stage.machines[3].applied == [b"a", b"b", b"c"]
    stage.until(lambda: stage.group(1).has_vote(3))
    stage.stop(1)
    stage.until(lambda: stage.leader is not None, seconds=2.0)
    outcomes = stage.propose(stage.leader or 0, "d")
    stage.run(0.1)
    assert [type(outcome) for outcome in outcomes] == [Committed]


def test_a_wiped_member_elects_nobody_before_it_has_caught_up() -> None:
    """Node 2 acknowledges an entry with the leader and loses it with its disk, the leader is cut off: 2 must not elect
    3, which never had it."""
    stage = led_by_one()
    stage.cut = {(1, 3)}
    outcomes = stage.propose(1, "acknowledged")
    stage.run(0.02)
    assert [type(outcome) for outcome in outcomes] == [Committed], "by nodes 1 and 2"
    stage.cut = {(1, 2), (2, 1), (1, 3), (3, 1)}
    stage.wipe(2)
    stage.run(5.0)
    assert stage.leader in (None, 1)
    assert not stage.group(3).is_leader
    assert not stage.group(2).is_leader
    stage.heal()
    stage.until(lambda: stage.group(2).has_vote(2))
    assert stage.machines[2].applied == [b"acknowledged"]


def test_its_acknowledgements_commit_nothing() -> None:
    stage = led_by_one()
    stage.cut = {(1, 3), (3, 1)}
    stage.run(0.1)
    stage.wipe(2)
    outcomes = stage.propose(1, "a")
    stage.run(0.5)
    assert stage.group(2).last_index == stage.group(1).last_index, "it follows"
    assert outcomes == []
    answers: list[int | None] = []
    if stage.group(1).is_leader:
        stage.group(1).read_index(answers.append)
    stage.run(0.1)
    assert answers == [], "nor does it confirm a read"


def test_it_waits_for_every_other_member() -> None:
    """One of five that was not heard of might still be elected with a vote that was forgotten."""
    stage = led_by_one(5)
    stage.isolate(5)
    stage.wipe(3)
    stage.propose(1, "a")
    stage.run(1.0)
    assert stage.machines[3].applied == [b"a"]
    assert not stage.group(3).has_vote(3)
    stage.heal()
    stage.until(lambda: stage.group(3).has_vote(3))


def test_two_of_five_come_back() -> None:
    stage = led_by_one(5)
    stage.propose(1, "a", "b")
    stage.run(0.05)
    stage.wipe(4)
    stage.wipe(5)
    stage.until(lambda: stage.group(4).has_vote(4) and stage.group(5).has_vote(5))
    assert stage.machines[4].applied == stage.machines[5].applied == [b"a", b"b"]


def test_a_release_of_an_earlier_life_is_void() -> None:
    stage = led_by_one()
    stage.propose(1, "a")
    stage.run(0.05)
    stage.wipe(3)
    stage.hold(1, 3)
    stage.until(lambda: not stage.group(1).has_vote(3) or bool(stage.held[1, 3]))
    stage.release_link(1, 3)
    stage.run(0.01)
    stage.hold(1, 3)
    stage.run(0.3)
    releases = [m for m in stage.held[1, 3] if m.append.release_index]
    assert releases, "the leader let it vote, and the word is under way"
    stage.held[1, 3].clear()
    stage.release_link(1, 3)
    for node in (1, 2):
        stage.cut |= {(node, 3), (3, node)}
    stage.wipe(3)
    for message in releases:
        stage.inject(1, 3, message)
    stage.run(0.01)
    assert not stage.group(3).has_vote(3)


def test_the_vote_survives_a_restart_and_so_does_its_lack() -> None:
    stage = led_by_one()
    stage.cut = {(1, 3)}
    stage.wipe(3)
    stage.run(0.1)
    stage.stop(3, power_loss=True)
    stage.start(3)
    assert not stage.group(3).has_vote(3)
    stage.heal()
    stage.until(lambda: stage.group(3).has_vote(3))
    stage.stop(3, power_loss=True)
    stage.start(3)
    assert stage.group(3).has_vote(3)


def test_after_its_return_it_does_not_elect_another_leader_of_the_same_term() -> None:
    stage = led_by_one()
    stage.wipe(3)
    stage.until(lambda: stage.group(3).has_vote(3))
    assert stage.group(3).log_store.vote == 1


def test_leadership_is_not_handed_to_it() -> None:
    stage = led_by_one(options=RaftOptions(transfer_timeout_s=0.3))
    stage.cut = {(2, 1)}
    stage.wipe(3)
    stage.run(0.1)
    stage.group(1).transfer(3)
    stage.run(0.2)
    assert not any(m.HasField("timeout_now") for _, _, m in stage.sent)


def test_members_of_a_new_group_that_nobody_remembers_may_vote() -> None:
    stage = RaftStage()
    for node in stage.ids:
        stage.wipe(node)
    stage.run(2.0)
    assert stage.leader is None
    for node in stage.ids:
        stage.group(node).vote_from_the_beginning()
    stage.until(lambda: stage.leader is not None)
    stage.group(stage.leader or 1).vote_from_the_beginning()
    for node in stage.ids:
        assert stage.group(node).has_vote(node)


def test_a_member_with_a_memory_is_never_opened_mute() -> None:
    stage = led_by_one()
    stage.stop(3)
    stage.start(3, mute=True)
    assert stage.group(3).has_vote(3)


def test_of_two_the_one_without_a_memory_elects_the_other() -> None:
    stage = led_by_one(2)
    outcomes = stage.propose(1, "a", "b")
    stage.run(0.05)
    assert [type(outcome) for outcome in outcomes] == [Committed] * 2
    stage.wipe(1)  # it led, and node 2 may not have heard that all of it is committed
    stage.until(lambda: stage.leader == 2, seconds=3.0)
    stage.until(lambda: stage.group(1).has_vote(1))
    assert stage.machines[1].applied == [b"a", b"b"]
    outcomes = stage.propose(2, "c")
    stage.run(0.1)
    assert [type(outcome) for outcome in outcomes] == [Committed]
    stage.wipe(2)  # what the first one got back is as good as what it had
    stage.until(lambda: stage.leader == 1, seconds=3.0)
    stage.until(lambda: stage.group(2).has_vote(2))
    assert stage.machines[2].applied == [b"a", b"b", b"c"]


def test_of_two_without_a_memory_nobody_leads() -> None:
    stage = led_by_one(2)
    stage.propose(1, "a")
    stage.run(0.05)
    stage.wipe(1)
    stage.wipe(2)
    stage.run(10.0)
    assert stage.leader is None
    assert not stage.group(1).has_vote(1)
    assert not stage.group(2).has_vote(2)


def test_of_four_without_a_memory_none_votes() -> None:
    """Three of four are a majority, also without the member that has what was committed: all others must vote."""
    stage = led_by_one(4)
    stage.cut = {(1, 4), (4, 1)}
    outcomes = stage.propose(1, "a")
    stage.run(0.05)
    assert [type(outcome) for outcome in outcomes] == [Committed], "by nodes 1, 2 and 3"
    stage.isolate(1)
    stage.wipe(2)
    stage.wipe(3)
    stage.run(10.0)
    assert not stage.group(4).is_leader


def test_a_request_of_an_earlier_life_elects_no_later_one() -> None:
    """Node 3 asks for votes of the next term, and loses its disk. It is released with less than it had. Its old request
    arrives at node 2, which has more than node 3 by now, and it campaigns in that very term."""
    stage = RaftStage(3)
    stage.version = 15
    leader = stage.elect(1)
    stage.run(0.05)
    term, commit, stamp = leader.term, leader.commit_index, Stamp(GROUP, 1)
    stage.hold(1, 2)
    stage.cut = {(3, 1)}
    outcomes = stage.propose(1, "a")
    stage.run(0.01)
    assert (stage.group(3).last_index, leader.commit_index) == (commit + 1, commit)
    old = stamp.vote_request(term + 1, (commit + 1, term), transfer=True)
    stage.wipe(3)
    stage.cut = set()
    stage.hold(1, 3)
    for _ in range(200):
        if leader._step.release_for(3) is not None:
            break
        stage.run(0.005)
        for node in (2, 3):  # what brings entries is late
            for message in stage.held[1, node]:
                if not message.append.entry_terms:
                    stage.inject(1, node, message)
            stage.held[1, node].clear()
    release = leader._step.release_for(3)
    assert release is not None
    assert release[0] == commit
    first = stamp.append_entries(term, 90, commit, (commit - 1, 0), [leader.log_store.data_at(commit)], [term])
    stage.inject(1, 3, RaftMessage.FromString(first.SerializeToString()))
    stage.inject(1, 3, stamp.append(term, 91, commit, (commit, term), release=release))
    stage.run(0.005)
    assert stage.group(3).has_vote(3)
    assert stage.group(3).last_index == commit
    stage.run(0.005)
    stage.stop(3)
    stage.start(3)  # it knows after a restart, too, that it had an earlier life
    stage.hold(3, 2)
    stage.release_link(1, 2)
    stage.until(lambda: len(outcomes) == 1)
    assert [type(outcome) for outcome in outcomes] == [Committed], "by nodes 1 and 2"
    stage.isolate(1)
    stage.inject(3, 2, old)
    stage.run(0.005)
    assert stage.group(2).log_store.vote == 3
    again = stage.group(3)
    again._core._SyncObj__transferInProgress = True
    again._core.election_deadline = 0.0
    stage.multirafts[3].mark_dirty(again)
    stage.cut = {(1, 2), (2, 1), (1, 3), (3, 1), (2, 3)}
    stage.run(0.01)
    assert again.term == term + 1
    votes = [message for _, to, message in stage.sent if to == 3 and message.HasField("vote_reply")]
    assert votes
    stage.inject(2, 3, votes[-1])
    stage.run(0.005)
    assert not again.is_leader, "a vote for another life"
    stage.cut.discard((2, 3))
    stage.release_link(3, 2)
    stage.run(0.01)
    assert not again.is_leader, "nor is that vote given again: it lacks what was committed"
