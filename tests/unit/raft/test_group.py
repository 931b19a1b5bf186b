"""Groups as their users see them: proposals and their outcomes, leadership, transfer, trim, restart."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from cluster.raft import ApplyFailed, Committed, InvariantBroken, NotLeader, Overloaded, RaftMessage, RaftOptions
from cluster.raft.heartbeats.node_heartbeats import NODE_MESSAGES
from cluster.raft.log.log_store import LogStore
from cluster.raft.replication.message_encoding import ReceivedAppend
from tests.simulation.world.disk import SimBatch
from tests.unit.raft.cluster import GROUP, ListMachine, RaftStage, kinds


def led_by_one(**kwargs: Any) -> RaftStage:
    stage = RaftStage(**kwargs)
    stage.elect(1)
    stage.run(0.05)
    return stage


def test_a_new_cluster_elects_a_leader_quickly() -> None:
    stage = RaftStage()
    assert stage.until(lambda: stage.leader is not None and stage.group(stage.leader).ready) < 0.5


def test_the_preferred_node_leads_a_new_group() -> None:
    for preferred in (1, 2, 3):
        stage = RaftStage()
        for node in stage.ids:
            stage.stop(node)
            stage.disks[node] = type(stage.disks[node])()
        for node in stage.ids:
            stage.start(node, preferred=preferred)
        stage.until(lambda stage=stage: stage.leader is not None)
        assert stage.leader == preferred


def test_outcomes_come_in_order_with_results() -> None:
    stage = led_by_one()
    outcomes = stage.propose(1, "a", "b", "c")
    stage.run(0.02)
    assert [(outcome.result, outcome.index) for outcome in outcomes if isinstance(outcome, Committed)] == [
        (1, 3),
        (2, 4),
        (3, 5),
    ]
    stage.run(0.02)
    assert [machine.applied for machine in stage.machines.values()] == [[b"a", b"b", b"c"]] * 3


def test_followers_learn_an_idle_commit_within_milliseconds() -> None:
    stage = led_by_one()
    stage.run(0.03)
    stage.propose(1, "a")
    assert stage.until(lambda: all(machine.applied for machine in stage.machines.values())) < 0.02


def test_followers_of_a_patient_group_learn_it_with_the_next_heartbeat() -> None:
    stage = led_by_one(patient=True)
    stage.run(stage.options.heartbeat_s)
    stage.sent.clear()
    stage.until(lambda: stage.sent)  # a heartbeat: the next one is far
    stage.run(0.01)
    stage.sent.clear()
    began_s = stage.clock.now
    stage.propose(1, "a")
    stage.until(lambda: stage.machines[1].applied == [b"a"])
    followers = [stage.machines[node] for node in (2, 3)]
    stage.until(lambda: all(machine.applied == [b"a"] for machine in followers), 2 * stage.options.heartbeat_s)
    assert stage.clock.now - began_s > 2 * stage.options.commit_lag_s
    told = [peer for sender, peer, message in stage.sent if sender == 1 and message.WhichOneof("body") == "append"]
    assert sorted(told) == [2, 2, 3, 3], "the entry, and a heartbeat"


def test_followers_refuse_and_name_the_leader() -> None:
    stage = led_by_one()
    with pytest.raises(NotLeader) as refused:
        stage.propose(2, "a")
    assert refused.value.leader == 1


def test_too_many_bytes_without_outcome_are_refused() -> None:
    stage = led_by_one(options=RaftOptions(max_uncommitted_bytes=1000))
    stage.isolate(1)
    stage.propose(1, "x" * 900)
    with pytest.raises(Overloaded):
        stage.propose(1, "x" * 200)
    stage.heal()
    stage.run(0.4)
    assert stage.group(1).uncommitted_bytes == 0
    stage.propose(1, "x" * 200)


def test_a_deposed_leader_says_unknown_after_a_while() -> None:
    stage = led_by_one()
    stage.isolate(1)
    outcomes = stage.propose(1, "a")
    stage.run(1.0)
    assert not stage.group(1).is_leader, "a leader without a majority steps down"
    assert outcomes == []
    stage.run(stage.options.unknown_after_s)
    assert kinds(outcomes) == ["Unknown"]
    stage.heal()
    stage.run(1.0)
    assert len(outcomes) == 1, "nobody is answered twice"


def test_a_leader_takes_no_proposal_while_one_of_its_earlier_leadership_is_undecided() -> None:
    """The older one may turn out to be discarded; its proposer repeats it, and would repeat it behind the newer one."""
    stage = led_by_one()
    for node in stage.ids:
        stage.isolate(node)
    outcomes = stage.propose(1, "older")
    stage.until(lambda: not stage.group(1).is_leader)
    stage.heal()
    group = stage.elect(1)
    assert not group.ready
    assert outcomes == []
    with pytest.raises(NotLeader):
        stage.propose(1, "newer")
    stage.until(lambda: group.ready)
    assert kinds(outcomes) == ["Committed"], "decided before this leadership takes anything"
    stage.propose(1, "newer")


def test_a_killed_leader_is_replaced_at_once() -> None:
    stage = led_by_one()
    stage.stop(1)
    assert stage.until(lambda: stage.leader is not None and stage.group(stage.leader).ready) < 0.3


def test_a_silent_leader_is_replaced_within_a_second() -> None:
    stage = led_by_one()
    stage.isolate(1)
    stage.multirafts.pop(1)
    assert stage.until(lambda: stage.leader is not None and stage.group(stage.leader).ready) < 1.0


def test_a_restarted_node_catches_up() -> None:
    stage = led_by_one()
    stage.stop(3)
    for number in range(300):
        stage.propose(1, f"{number}")
        stage.run(0.001)
    stage.start(3)
    stage.until(lambda: len(stage.machines[3].applied) == 300, seconds=1.0)
    assert stage.machines[3].applied == stage.machines[1].applied


def test_a_restart_applies_only_what_came_after_the_checkpoint() -> None:
    stage = led_by_one(options=RaftOptions(checkpoint_entries=10))
    for number in range(25):
        stage.propose(1, f"{number}")
        stage.run(0.01)
    stage.stop(2)
    stage.start(2)
    assert stage.machines[2].restored_at > 10
    stage.run(0.2)
    assert stage.machines[2].applied == stage.machines[1].applied


def test_a_clean_close_leaves_nothing_to_apply_again() -> None:
    stage = led_by_one()
    stage.propose(1, "a", "b")
    stage.run(0.05)
    applied = stage.group(2).applied_index
    stage.multirafts[2].close()
    stage.start(2)
    assert stage.machines[2].restored_at == applied


def test_transfer_moves_leadership_under_load() -> None:
    stage = led_by_one()
    outcomes = stage.propose(1, *[f"{n}" for n in range(50)])
    stage.group(1).transfer(2)
    with pytest.raises(NotLeader):
        stage.propose(1, "too late")
    stage.until(lambda: stage.leader == 2, seconds=0.2)
    stage.run(0.1)
    assert kinds(outcomes) == ["Committed"] * 50


def test_a_transfer_that_cannot_happen_is_given_up() -> None:
    stage = led_by_one()
    stage.isolate(2)
    stage.propose(1, "a")
    stage.group(1).transfer(2)
    stage.run(stage.options.transfer_timeout_s + 0.1)
    assert stage.leader == 1
    assert kinds(stage.propose(1, "b")) == []


def test_leadership_returns_to_the_preferred_node() -> None:
    stage = RaftStage()
    for node in stage.ids:
        stage.stop(node)
        stage.start(node, preferred=2)
    stage.elect(3)
    stage.until(lambda: stage.leader == 2, seconds=stage.options.prefer_after_s + 1.0)


def test_trim_waits_for_the_slowest_member() -> None:
    stage = led_by_one()
    stage.propose(1, "a", "b", "c")
    stage.run(0.05)
    stage.isolate(3)
    stage.propose(1, "d", "e", "f")
    stage.run(0.05)
    leader = stage.group(1)
    held = leader.match_index(3)
    leader.trim(leader.applied_index)
    stage.run(0.02)
    assert leader.first_index == held + 1
    with pytest.raises(KeyError):
        leader.entry(held)
    stage.heal()
    stage.until(lambda: len(stage.machines[3].applied) == 6)


def test_a_trimmed_log_survives_restart_and_still_replicates() -> None:
    stage = led_by_one()
    stage.propose(1, *[f"{n}" for n in range(20)])
    stage.run(0.1)
    for node in stage.ids:
        stage.group(node).trim(stage.group(node).applied_index - 3)
    stage.run(0.1)
    for node in stage.ids:
        stage.stop(node)
    for node in stage.ids:
        assert stage.start(node).first_index > 15
    stage.until(lambda: stage.leader is not None and stage.group(stage.leader).ready)
    stage.propose(stage.leader, "after")
    stage.run(0.1)
    assert {tuple(machine.applied) for machine in stage.machines.values()} == {
        tuple(b"%d" % n for n in range(20)) + (b"after",)
    }


def lengths(stage: RaftStage) -> list[int]:
    return [stage.group(node).last_index - stage.group(node).first_index + 1 for node in stage.ids]


def test_a_group_whose_state_is_all_that_matters_keeps_its_newest_entries() -> None:
    keep = 20
    stage = led_by_one(keep_entries=keep)
    longest = 0
    for number in range(30):
        stage.propose(1, *[f"{number}.{n}" for n in range(7)])
        stage.run(0.05)
        longest = max(longest, *lengths(stage))
    assert longest <= 2 * keep + 7
    assert min(lengths(stage)) >= keep
    for node in stage.ids:
        stage.stop(node)
    for node in stage.ids:
        stage.start(node)
    stage.until(lambda: stage.leader is not None and stage.group(stage.leader).ready)
    stage.run(0.1)
    assert {len(machine.applied) for machine in stage.machines.values()} == {210}


def test_it_waits_for_a_member_that_was_silent_for_a_moment_and_gives_others_the_state() -> None:
    keep = 5
    stage = led_by_one(keep_entries=keep, options=RaftOptions(trim_wait_s=1.0))
    stage.isolate(3)
    for number in range(60):
        stage.propose(1, f"{number}")
        stage.run(0.01)
    assert stage.group(1).first_index <= stage.group(1).match_index(3) + 1
    stage.run(1.0)
    stage.propose(1, "and now")
    stage.run(0.1)
    assert lengths(stage)[0] <= 2 * keep
    assert stage.group(1).first_index > stage.group(3).last_index + 1
    stage.heal()
    stage.until(lambda: len(stage.machines[3].applied) == 61)


def test_what_it_keeps_is_not_written_out_with_every_entry() -> None:
    """A checkpoint is the whole state: it is worth writing when many entries can go."""
    keep, entries = 10, 100
    stage = led_by_one(keep_entries=keep)
    written = []
    put = LogStore.put_checkpoint

    def noted(journal: LogStore, index: int, state: bytes) -> None:
        written.append(index)
        put(journal, index, state)

    with mock.patch.object(LogStore, "put_checkpoint", noted):
        for number in range(entries):
            stage.propose(1, f"{number}")
            stage.run(0.01)
    assert len(stage.ids) * (entries // keep - 2) <= len(written) <= len(stage.ids) * (entries // keep)


def test_trim_inside_apply_is_done_after_it() -> None:
    class Trimming(ListMachine):
        group: Any

        def apply(self, index: int, term: int, data: bytes, batch: SimBatch) -> object:
            self.group.trim(index)
            return super().apply(index, term, data, batch)

    stage = RaftStage(machine=Trimming)
    for node in stage.ids:
        stage.machines[node].group = stage.group(node)
    stage.elect(1)
    outcomes = stage.propose(1, "a", "b")
    stage.run(0.3)
    assert kinds(outcomes) == ["Committed"] * 2
    assert stage.group(1).first_index > 2


def test_a_machine_that_raises_rejects_the_entry_on_every_replica() -> None:
    class Fragile(ListMachine):
        def apply(self, index: int, term: int, data: bytes, batch: SimBatch) -> object:
            if data == b"\0bad":
                raise ValueError("impossible")
            return super().apply(index, term, data, batch)

    stage = led_by_one(machine=Fragile)
    outcomes = stage.propose(1, "a", "bad", "b")
    stage.run(0.05)
    assert [outcome.result for outcome in outcomes if isinstance(outcome, Committed)] == [
        1,
        ApplyFailed("ValueError: impossible"),
        2,
    ]
    assert [machine.applied for machine in stage.machines.values()] == [[b"a", b"b"]] * 3


def test_a_node_that_cannot_apply_stops() -> None:
    class Broken(ListMachine):
        def apply(self, index: int, term: int, data: bytes, batch: SimBatch) -> object:
            raise OSError("input/output error")

    stage = led_by_one(machine=Broken)
    stage.propose(1, "a")
    with pytest.raises(InvariantBroken, match="input/output error"):
        stage.run(0.05)


def test_a_failing_callback_harms_nobody_else() -> None:
    stage = led_by_one()

    def fail(outcome: object) -> None:
        raise RuntimeError("a link's defect")

    stage.group(1).propose(b"\0a", fail)
    outcomes = stage.propose(1, "b")
    stage.run(0.05)
    assert kinds(outcomes) == ["Committed"]


def test_a_callback_may_propose() -> None:
    stage = led_by_one()
    more: list[Any] = []
    stage.group(1).propose(b"\0a", lambda outcome: more.extend(stage.propose(1, "b") or [outcome]))
    stage.run(0.05)
    assert stage.machines[2].applied == [b"a", b"b"]


def test_role_changes_are_told() -> None:
    stage = led_by_one()
    assert stage.roles[1][-1] == (True, 1)
    assert stage.roles[2][-1] == (False, 1)
    stage.stop(1)
    stage.until(lambda: stage.leader is not None)
    stage.run(0.05)
    assert stage.roles[stage.leader or 0][-1] == (True, stage.leader)


def test_a_slow_follower_gets_a_window_not_everything() -> None:
    stage = led_by_one(options=RaftOptions(window_bytes=1000, max_append_bytes=200))
    stage.hold(2, 1)
    stage.sent.clear()
    stage.propose(1, *["x" * 100 for _ in range(100)])
    stage.run(0.02)
    unanswered = sum(len(e) for s, r, m in stage.sent if (s, r) == (1, 2) for e in m.append.entries)
    assert unanswered <= 1000 + 200
    stage.release_link(2, 1)
    stage.until(lambda: len(stage.machines[2].applied) == 100, seconds=1.0)


def test_an_erased_group_leaves_nothing_behind() -> None:
    stage = led_by_one()
    stage.propose(1, "a")
    stage.run(0.05)
    stage.multirafts[3].close_group(GROUP, erase=True)
    left = [key for key, _ in stage.disks[3].scan(b"", b"\xff" * 20) if not key.startswith(b"o")]
    assert left == []


def test_a_trim_that_must_wait_is_remembered_with_its_state() -> None:
    """The machine forgot something in the batch of that turn; after a kill it must not come back from before it.
    (Found by the simulation: index rows were gone, and the state that did not know it was restored.)"""
    stage = led_by_one()
    stage.propose(1, "a", "b", "c")
    stage.run(0.05)
    stage.isolate(3)
    leader = stage.group(1)
    leader.trim(leader.applied_index)
    stage.propose(1, "d")
    stage.run(0.05)
    first = leader.first_index
    leader.trim(leader.applied_index)
    stage.run(0.01)
    assert leader.first_index == first, "node 3 lacks the last entry"
    stage.stop(1)
    assert leader.applied_index == first, "the entry that node 3 lacks is the first that is kept"
    stage.start(1)
    assert stage.machines[1].restored_at == leader.applied_index


def test_leadership_is_not_offered_to_a_preferred_node_that_is_not_heard() -> None:
    """Its connection stands, but nothing comes back: each offer would stop proposals for a second. (Found by the
    simulation: with a short pause between offers nothing was ever taken.)"""
    stage = RaftStage(options=RaftOptions(prefer_after_s=0.3, prefer_retry_s=1.0))
    for node in stage.ids:
        stage.stop(node)
    for node in stage.ids:
        stage.start(node, preferred=2)
    stage.elect(1)
    stage.run(0.05)
    stage.cut = {(1, 2), (2, 1), (2, 3), (3, 2)}
    stage.run(2.0)  # an offer made before the silence was noticed has ended
    assert stage.leader == 1
    for _ in range(20):
        assert not stage.group(1)._leadership_transfer.is_active
        stage.run(0.1)


def test_only_who_leads_keeps_in_memory_what_is_applied() -> None:
    stage = led_by_one()
    stage.propose(1, *map(str, range(20)))
    stage.run(1.0)
    last = stage.group(1).last_index
    for node in stage.ids:
        group = stage.group(node)
        assert group.applied_index == last
        assert sorted(group.log_store._cached)[-20:] == (list(range(last - 19, last + 1)) if node == 1 else [])
        assert [group.entry(last - 19 + number)[1] for number in range(20)] == [b"\0%d" % n for n in range(20)]


@pytest.mark.parametrize(("given", "taken"), [(2, True), (1, False), (3, False), (0, False)])
def test_entries_beside_an_append_are_its_entries_if_they_are_as_many_as_its_terms(given: int, taken: bool) -> None:
    stage = led_by_one()
    leader, follower = stage.group(1), stage.group(2)
    last, term = follower.last_index, leader.term
    append = RaftMessage(
        group=GROUP, version=1, term=term,
        append={
            "sequence": 1000, "commit_index": last, "has_previous": True, "previous_index": last,
            "previous_term": term, "entry_terms": [term, term], "entries_beside": True,
        },
    )  # fmt: skip
    entries = [b"\0large", b"\0larger", b"\0largest"][:given]
    stage.multirafts[2].deliver(1, [ReceivedAppend(append, entries)])
    stage.step()
    assert follower.last_index == (last + 2 if taken else last)
    assert not taken or [follower.entry(last + 1)[1], follower.entry(last + 2)[1]] == entries


def test_entries_beside_what_nodes_say_to_each_other_mean_nothing() -> None:
    stage = led_by_one()
    heartbeat = RaftMessage(group=NODE_MESSAGES, node_heartbeat={"life": 1, "sequence": 1})
    stage.multirafts[2].deliver(1, [ReceivedAppend(heartbeat, [b"\0large"])])
    stage.step()
    assert stage.leader == 1
