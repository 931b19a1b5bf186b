"""The holes of pysyncobj by the numbers of the audit (A = safety, L = liveness), each as a short story that
must end well."""

from __future__ import annotations

import pytest

from cluster.raft import Committed, Discarded, InvariantBroken, NotLeader, RaftMessage, RaftOptions
from cluster.raft.pysyncobj.core import Core
from cluster.raft.replication.message_encoding import Stamp
from tests.unit.raft.cluster import GROUP, RaftStage, kinds

STAMP = Stamp(GROUP, 1)


def ready_stage(nodes: int = 3, **kwargs: object) -> RaftStage:
    """A cluster led by node 1."""
    stage = RaftStage(nodes, **kwargs)
    stage.elect(1)
    stage.run(0.05)
    return stage


def test_a1_an_acknowledgement_of_an_earlier_term_does_not_count() -> None:
    stage = ready_stage(5)
    term_1 = stage.group(1).term
    for follower in (2, 3, 4):
        stage.cut |= {(1, follower)}
    stage.hold(5, 1)
    stage.propose(1, "a", "b", "c")
    stage.run(0.02)
    assert stage.held[5, 1], "node 5 acknowledged entries of the first term, and the answers are under way"
    stage.isolate(1)
    stage.elect(2)
    stage.run(0.2)
    assert stage.group(5).entry(stage.group(5).last_index)[0] > term_1, "node 5 holds another tail now"
    stage.heal()
    stage.isolate(3)
    stage.isolate(4)
    stage.run(0.3)
    leader = stage.group(2)
    commit = leader.commit_index
    stage.cut |= {(2, 5)}
    late = [m for m in stage.held[5, 1] if m.HasField("append_reply") and m.append_reply.success]
    for message in late:
        stage.inject(5, 2, message)
    stage.propose(2, "x", "y", "z")
    stage.run(0.05)
    assert leader.match_index(5) <= commit, "acknowledgements of the first term moved nothing"


def test_a2_a_resent_prefix_truncates_nothing() -> None:
    stage = ready_stage()
    stage.propose(1, "a", "b", "c", "d")
    stage.run(0.05)
    follower = stage.group(2)
    last = follower.last_index
    first_append = next(m for s, r, m in stage.sent if (s, r) == (1, 2) and m.append.entries)
    stage.inject(1, 2, first_append)
    stage.run(0.002)
    assert follower.last_index == last


def test_a3_a_sign_of_life_without_match_commits_nothing() -> None:
    stage = ready_stage()
    stage.isolate(1)
    stage.propose(1, "never", "acknowledged")
    stage.run(0.01)
    stale = stage.group(1)
    before = stale.commit_index
    stage.inject(2, 1, STAMP.append(stale.term + 1, 1, 1000, None))
    stage.run(0.01)
    assert stale.leader == 2
    assert stale.commit_index == before
    assert stage.machines[1].applied == []


def test_a5_one_voter_is_counted_once() -> None:
    stage = RaftStage(5)
    for voter in (2, 3, 4, 5):
        stage.cut |= {(1, voter)}
    candidate = stage.group(1)
    candidate._election._approved, candidate._election._asked_term = True, candidate.term
    candidate._core.election_deadline = 0.0
    stage.multirafts[1].mark_dirty(candidate)
    stage.run(0.002)
    vote = STAMP.vote_reply(candidate.term, granted=True)
    for _ in range(4):
        stage.inject(2, 1, vote)
    stage.run(0.005)
    assert not candidate.is_leader, "two of five are no majority, however often they say so"
    stage.inject(9, 1, vote)
    stage.run(0.005)
    assert not candidate.is_leader, "strangers do not vote"
    stage.inject(3, 1, vote)
    stage.run(0.005)
    assert candidate.is_leader


def test_a9_a_lone_leader_commits_only_what_its_disk_has() -> None:
    stage = RaftStage(1)
    stage.run(0.01)
    multiraft, group = stage.multirafts[1], stage.group(1)
    outcomes = stage.propose(1, "a")
    turn = multiraft.turn()
    assert turn is not None
    assert turn.needs_sync
    assert outcomes == [], "nothing is promised before the sync"
    stage.disks[1].sync()
    multiraft.release(turn)
    stage.run(0.01)
    assert kinds(outcomes) == ["Committed"]
    assert group.commit_index == group.last_index


def test_a12_commands_are_never_forwarded() -> None:
    stage = ready_stage()
    core = stage.group(2)._core
    with pytest.raises(InvariantBroken, match="propose"):
        core._applyCommand(b"\0x", None, None)
    with pytest.raises(InvariantBroken, match="apply_command"):
        stage.group(2)._step.send(stage.group(2)._peers[1], {"type": "apply_command", "command": b"\0x"})


def test_a13_a_proposal_belongs_to_the_term_it_was_made_in() -> None:
    stage = ready_stage()
    stage.isolate(1)
    outcomes = stage.propose(1, "lost")
    stage.run(0.01)
    stage.elect(2)
    theirs = stage.propose(2, "kept")
    stage.run(0.05)
    stage.heal()
    stage.until(lambda: outcomes != [])
    assert kinds(outcomes) == ["Discarded"]
    assert isinstance(theirs[0], Committed)
    stage.run(0.5)
    assert [machine.applied for machine in stage.machines.values()] == [[b"kept"]] * 3
    with pytest.raises(NotLeader) as refused:
        stage.propose(1, "x")
    assert refused.value.leader == 2


def test_a13_leading_twice_keeps_both_proposals_apart() -> None:
    """Led, lost the tail, led again: two proposals of one node wait at one index, and only one of them is
    there."""
    stage = ready_stage()
    stage.isolate(1)
    old = stage.propose(1, "old 1", "old 2", "old 3")
    stage.run(0.01)
    stage.elect(2)
    stage.run(0.05)
    stage.heal()
    stage.until(lambda: stage.group(1).last_index == stage.group(2).last_index)
    stage.run(0.1)
    stage.elect(1)
    new = stage.propose(1, "new 1", "new 2")
    stage.run(0.1)
    assert all(isinstance(outcome, Discarded) for outcome in old)
    assert all(isinstance(outcome, Committed) for outcome in new)
    assert len(old) == 3
    assert len(new) == 2


def test_a15_no_crash_leaves_a_commit_index_beyond_the_log() -> None:
    stage = ready_stage()
    for number in range(20):
        stage.propose(1, f"entry {number}")
        stage.run(0.003)
        for node in (2, 3):
            stage.stop(node, power_loss=True)
            group = stage.start(node)
            assert group.first_index - 1 <= group.commit_index <= group.last_index
        stage.run(0.15)


def test_l3_loyal_followers_do_not_vote_but_obey_a_transfer() -> None:
    stage = ready_stage()
    follower = stage.group(2)
    term, last = follower.term, (follower.last_index, follower.term)
    stage.inject(3, 2, STAMP.vote_request(term + 1, last))
    stage.run(0.005)
    assert follower.term == term
    stage.inject(3, 2, STAMP.vote_request(term + 1, last, transfer=True))
    stage.run(0.005)
    assert follower.term == term + 1


def test_l3_an_isolated_node_comes_back_without_an_election() -> None:
    stage = ready_stage()
    term = stage.group(1).term
    stage.isolate(3)
    stage.run(5.0)
    assert stage.group(3).term == term, "asking is not campaigning"
    stage.heal()
    stage.run(1.0)
    assert stage.leader == 1
    assert stage.group(1).term == term


def test_l4_a_node_with_a_higher_term_is_not_locked_out() -> None:
    stage = ready_stage()
    stage.isolate(3)
    stage.inject(2, 3, STAMP.stale_term(50))
    stage.run(0.01)
    assert stage.group(3).term == 50
    stage.heal()
    outcomes: list[object] = []
    stage.until(lambda: stage.leader is not None and stage.group(stage.leader).term > 50, seconds=3.0)
    stage.until(lambda: stage.group(stage.leader).ready)
    outcomes = stage.propose(stage.leader, "all together")
    stage.until(lambda: all(machine.applied == [b"all together"] for machine in stage.machines.values()))
    assert kinds(outcomes) == ["Committed"]


def test_l5_a_stalled_loop_looks_at_its_input_before_it_doubts_the_leader() -> None:
    stage = ready_stage()
    term = stage.group(1).term
    stage.clock.now += 3.0
    stage.run(1.0)
    assert stage.leader == 1
    assert stage.group(1).term == term


def test_l6_a_follower_with_a_foreign_tail_is_found_in_few_round_trips() -> None:
    stage = ready_stage()
    stage.isolate(1)
    stage.propose(1, *[f"foreign {n}" for n in range(200)])
    stage.run(0.01)
    stage.elect(2)
    stage.propose(2, *[f"true {n}" for n in range(150)])
    stage.run(0.05)
    stage.sent.clear()
    stage.heal()
    stage.until(lambda: len(stage.machines[1].applied) == 150)
    rejections = [m for s, r, m in stage.sent if (s, r) == (1, 2) and m.append_reply.reset]
    assert len(rejections) <= 3


def test_a_conflict_below_the_commit_index_stops_the_group() -> None:
    stage = ready_stage()
    stage.may_quarantine = True
    stage.propose(1, "a", "b")
    stage.run(0.05)
    victim = stage.group(2)
    commit, term = victim.commit_index, victim.term
    forged = RaftMessage.FromString(
        STAMP.append_entries(term + 1, 1, commit, (commit - 1, term), [b"\0other"], [term + 1]).SerializeToString()
    )
    stage.multirafts[2].deliver(3, [forged])
    stage.multirafts[2].turn()
    assert "committed here" in str(victim.quarantined)


def test_two_leaders_of_one_term_stop_the_group() -> None:
    stage = ready_stage()
    stage.may_quarantine = True
    leader = stage.group(1)
    stage.multirafts[1].deliver(2, [STAMP.append(leader.term, 1, 1, (1, 0))])
    stage.multirafts[1].turn()
    assert "both lead" in str(leader.quarantined)
    assert not leader.is_leader


def test_other_configuration_versions_are_not_heard() -> None:
    stage = ready_stage()
    before = stage.group(2).status()
    stage.inject(1, 2, Stamp(GROUP, 2).stale_term(99))
    stage.inject(1, 2, RaftMessage(group=GROUP, version=1, term=99))
    stage.inject(1, 2, RaftMessage(group=GROUP + 1, version=1, term=99))
    stage.run(0.005)
    assert stage.group(2).status() == before


def test_a_success_never_makes_the_leader_repeat_what_is_in_flight() -> None:
    stage = ready_stage()
    stage.hold(2, 1)
    for number in range(10):
        stage.propose(1, f"entry {number}")
        stage.run(0.002)
    stage.sent.clear()
    stage.release_link(2, 1)
    stage.run(0.05)
    repeated = [m for s, r, m in stage.sent if (s, r) == (1, 2) and m.append.entries]
    assert repeated == []


def test_late_rejections_are_void() -> None:
    stage = ready_stage(options=RaftOptions(max_append_entries=1))
    stage.cut |= {(1, 2)}
    stage.propose(1, "a", "b", "c")
    stage.run(0.05)
    stage.heal()
    stage.until(lambda: stage.group(2).last_index == stage.group(1).last_index)
    stage.run(0.05)
    rejection = next(m for s, r, m in stage.sent if (s, r) == (2, 1) and m.append_reply.reset)
    stage.sent.clear()
    stage.inject(2, 1, rejection)
    stage.run(0.03)
    assert not [m for s, r, m in stage.sent if (s, r) == (1, 2) and m.append.entries]


def test_the_library_finds_no_method_to_replicate_and_looks_through_none() -> None:
    """A12; and each group that is opened would look through some two hundred names, twice."""
    assert dir(object.__new__(Core)) == []
