"""The turn and its barrier: nothing leaves, and nothing is decided, on what a crash could forget."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cluster.raft import InvariantBroken, MultiRaft, RaftMessage, RaftOptions
from cluster.raft.multiraft import WRITE_LAG_S
from tests.simulation.world.disk import SimBatch, SimDisk
from tests.unit.raft.cluster import GROUP, STEP_S, HandClock, ListMachine, RaftStage


class Recorder:
    def __init__(self, options: RaftOptions | None = None, disk: SimDisk | None = None) -> None:
        self.clock = HandClock()
        self.disk = disk or SimDisk()
        self.sent: list[tuple[int, RaftMessage]] = []
        self.wakes = 0
        self.multiraft = MultiRaft(
            1, self.disk, self.clock, random.Random(1), lambda p, ms: self.sent.extend((p, m) for m in ms), options
        )
        self.multiraft.on_wake = self._wake
        self.group = self.multiraft.open_group(GROUP, [1, 2, 3], ListMachine())
        self.multiraft.peer_up(2)
        self.multiraft.peer_up(3)

    def _wake(self) -> None:
        self.wakes += 1

    def finish(self) -> bool:
        """One turn with its sync; whether it needed one."""
        turn = self.multiraft.turn()
        assert turn is not None
        if turn.needs_sync:
            self.disk.sync()
        self.multiraft.release(turn)
        return turn.needs_sync


def test_the_first_turn_of_a_process_syncs_what_the_last_one_wrote() -> None:
    recorder = Recorder()
    assert recorder.finish()
    recorder.clock.now = recorder.multiraft.next_deadline()
    assert not recorder.finish(), "asking for pre-votes promises nothing"


def _lead_alone(multiraft: MultiRaft, disk: SimDisk) -> None:
    for _ in range(5):
        turn = multiraft.turn()
        if turn is None:
            return
        disk.sync()
        multiraft.release(turn)


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_member_without_others_leads_once_another_node_let_this_process_in(opened: str) -> None:
    """Until then the process may be an older copy of its node, and could acknowledge what ends with it."""
    disk, clock = SimDisk(), HandClock()
    multiraft = MultiRaft(1, disk, clock, random.Random(1), lambda *_: None, alone=False)
    if opened == "before":
        group = multiraft.open_group(GROUP, [1], ListMachine())
        for _ in range(3):
            _lead_alone(multiraft, disk)
            clock.now += 100.0
        assert not group.is_leader
        multiraft.peer_up(2)
    else:
        multiraft.peer_up(2)
        group = multiraft.open_group(GROUP, [1], ListMachine())
    _lead_alone(multiraft, disk)
    assert group.is_leader


def test_the_only_node_of_a_cluster_leads_at_once() -> None:
    disk = SimDisk()
    multiraft = MultiRaft(1, disk, HandClock(), random.Random(1), lambda *_: None)
    group = multiraft.open_group(GROUP, [1], ListMachine())
    _lead_alone(multiraft, disk)
    assert group.is_leader


def test_messages_leave_with_the_release() -> None:
    recorder = Recorder()
    recorder.finish()
    recorder.clock.now = recorder.multiraft.next_deadline()
    turn = recorder.multiraft.turn()
    assert turn is not None
    assert recorder.sent == []
    recorder.multiraft.release(turn)
    assert {message.WhichOneof("body") for _, message in recorder.sent} == {"vote_request"}


def test_there_is_no_turn_before_the_release() -> None:
    recorder = Recorder()
    turn = recorder.multiraft.turn()
    with pytest.raises(AssertionError, match="release"):
        recorder.multiraft.turn()
    assert turn is not None
    recorder.multiraft.release(turn)


def test_nothing_due_is_no_turn() -> None:
    recorder = Recorder()
    recorder.finish()
    assert recorder.multiraft.turn() is None
    assert recorder.multiraft.next_deadline() > recorder.clock.now


@pytest.mark.parametrize("durability", ["fsync", "replicated"])
def test_what_needs_a_sync(durability: str) -> None:
    stage = RaftStage(options=RaftOptions(durability=durability))  # type: ignore[arg-type]
    stage.elect(1)
    stage.run(0.2)
    leader, follower = stage.multirafts[1], stage.multirafts[2]
    stage.propose(1, "a")
    turn = leader.turn()
    assert turn is not None
    assert turn.needs_sync == (durability == "fsync")
    leader.release(turn)
    stage.run(0.002)
    before = stage.group(2).term
    follower.deliver(3, [RaftMessage(group=GROUP, version=1, term=before + 5, stale_term={})])
    turn = follower.turn()
    assert turn is not None
    assert turn.needs_sync, "a new term must survive in both modes"
    follower.release(turn)


def test_a_commit_alone_needs_no_sync() -> None:
    stage = RaftStage()
    stage.elect(1)
    stage.run(0.2)
    stage.propose(1, "a")
    for _ in range(3):
        stage.step()
    syncs = stage.disks[1].syncs
    stage.until(lambda: stage.machines[1].applied == [b"a"])
    assert stage.disks[1].syncs == syncs


def test_a_follower_answers_before_it_applies_and_writes_that_a_little_later() -> None:
    """Who waits for its answer does not wait for what it applies, nor the disk for a turn of its own."""
    stage = RaftStage()
    stage.elect(1)
    stage.run(0.2)
    stage.propose(1, "a")
    stage.until(lambda: stage.group(1).commit_index == stage.group(1).last_index)
    follower, machine, disk = stage.multirafts[2], stage.machines[2], stage.disks[2]
    stage.hold(1, 2)
    stage.propose(1, "b")  # its append tells of the commit of "a"
    stage.run(STEP_S)
    follower.deliver(1, stage.held[1, 2])
    turn = follower.turn()
    assert turn is not None
    assert machine.applied == []
    told, apply = len(stage.sent), machine.apply

    def apply_once_told(*entry: Any) -> object:
        assert len(stage.sent) > told, "it applies before it answers"
        return apply(*entry)

    machine.apply = apply_once_told
    follower.release(turn)
    assert machine.applied == [b"a"]
    row = b"o" + (stage.group(2).last_index - 1).to_bytes(8)
    assert disk.get(row) is None
    assert not follower.has_work
    stage.clock.now += WRITE_LAG_S
    assert follower.next_deadline() <= stage.clock.now
    turn = follower.turn()
    assert turn is not None
    assert not turn.needs_sync
    assert disk.get(row) == b"\0a"
    assert follower.next_deadline() > stage.clock.now


def test_a_write_that_a_quarantine_has_dropped_calls_for_no_turn() -> None:
    stage = RaftStage()
    stage.may_quarantine = True
    stage.elect(1)
    stage.run(0.2)
    stage.propose(1, "a")
    stage.until(lambda: stage.group(1).commit_index == stage.group(1).last_index)
    follower = stage.multirafts[2]
    stage.hold(1, 2)
    stage.propose(1, "b")  # its append tells of the commit of "a"
    stage.run(STEP_S)
    follower.deliver(1, stage.held[1, 2])
    turn = follower.turn()
    assert turn is not None
    follower.release(turn)
    follower.quarantine(GROUP, "for a test")
    stage.clock.now += WRITE_LAG_S
    assert follower.turn() is None
    assert follower.next_deadline() > stage.clock.now, "a host would ask for turns without end"


def test_the_leaders_own_sync_calls_for_a_turn_only_if_a_quorum_waits_for_it() -> None:
    stage = RaftStage(options=RaftOptions(eager_appends=True))
    stage.elect(1)
    stage.run(0.2)
    stage.hold(1, 2)
    stage.hold(1, 3)
    stage.propose(1, "a")
    leader = stage.multirafts[1]
    turn = leader.turn()
    assert turn is not None
    stage.disks[1].sync()
    leader.release(turn)
    assert not leader.has_work


def test_what_callers_were_told_leaves_before_a_write_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = RaftStage()
    stage.elect(1)
    stage.run(0.2)
    outcomes = stage.propose(1, "a")
    told: list[int] = []
    leader, disk = stage.multirafts[1], stage.disks[1]
    write = disk.write
    leader.on_answers = lambda: told.append(len(outcomes))

    def writing(batch: SimBatch) -> None:
        assert not outcomes or told[-1] == 1
        write(batch)

    monkeypatch.setattr(disk, "write", writing)
    turn = leader.turn()
    assert turn is not None
    assert told == [], "the followers' work waits for this write"
    leader.release(turn)
    stage.until(lambda: len(outcomes) == 1)
    assert told[-1] == 1


def test_voters_are_sent_nothing_at_a_pace_and_ask_for_no_rest() -> None:
    """Also as in version 14, which knows neither."""
    stage = RaftStage(options=RaftOptions(fetch_bytes_per_s=1))
    stage.elect(1)
    stage.isolate(3)
    stage.propose(1, *["x" * 100 for _ in range(500)])
    stage.run(0.5)
    stage.heal()
    stage.until(lambda: stage.machines[3].applied == stage.machines[1].applied != [])
    messages = [message for _, _, message in stage.sent]
    assert not any(message.append.paced for message in messages if message.HasField("append"))
    replies = [message.append_reply for message in messages if message.HasField("append_reply")]
    assert replies
    assert not any(reply.rest_ms for reply in replies)


def test_the_loop_is_woken_once_per_batch_of_input() -> None:
    recorder = Recorder()
    recorder.finish()
    recorder.wakes = 0
    recorder.multiraft.deliver(2, [])
    recorder.multiraft.deliver(2, [])
    assert recorder.wakes == 1
    assert recorder.multiraft.has_work


def test_work_that_came_during_the_sync_is_announced() -> None:
    recorder = Recorder()
    turn = recorder.multiraft.turn()
    assert turn is not None
    recorder.wakes = 0
    recorder.multiraft.deliver(2, [RaftMessage(group=GROUP, version=1, term=1, stale_term={})])
    recorder.multiraft.release(turn)
    assert recorder.wakes >= 1
    assert recorder.finish()


def test_a_failed_write_stops_the_multiraft_for_good() -> None:
    class FullDisk(SimDisk):
        def write(self, batch: SimBatch) -> None:
            raise OSError("no space left on device")

    stage = RaftStage()
    stage.elect(1)
    stage.run(0.05)
    stage.propose(1, "a")
    stage.multirafts[1]._disk = FullDisk()
    with pytest.raises(OSError, match="no space"):
        stage.multirafts[1].turn()
    with pytest.raises(Exception, match="stopped: no space"):
        stage.multirafts[1].turn()


def test_what_a_callback_proposes_elsewhere_is_written_whole() -> None:
    """Group 8 was ticked already when a callback of group 7 proposes to it: entry and hard state go together."""
    clock, disk = HandClock(), SimDisk()

    def start() -> MultiRaft:
        multiraft = MultiRaft(1, disk, clock, random.Random(1), lambda peer, messages: None)
        for group in (8, GROUP):
            multiraft.open_group(group, [1], ListMachine())
        return multiraft

    def turn(multiraft: MultiRaft) -> None:
        opened = multiraft.turn()
        if opened is not None:
            disk.sync()
            multiraft.release(opened)

    multiraft = start()
    for _ in range(5):
        turn(multiraft)
    multiraft.groups[8].propose(b"\0first", lambda outcome: None)
    turn(multiraft)
    multiraft.groups[GROUP].propose(
        b"\0a", lambda outcome: multiraft.groups[8].propose(b"\0from the callback", lambda outcome: None)
    )
    turn(multiraft)
    last = multiraft.groups[8].last_index
    while multiraft.groups[8].last_index == last:
        turn(multiraft)
    assert start().groups[8].last_index == last + 1


@pytest.mark.parametrize("erase", [False, True])
def test_a_group_that_is_closed_takes_no_memory(erase: bool) -> None:
    stage = RaftStage()
    stage.elect(1)
    stage.propose(1, *map(str, range(20)))
    stage.run(0.5)
    leader = stage.multirafts[1]
    assert leader._cache.held_bytes > 0
    leader.close_group(GROUP, erase=erase)
    assert leader._cache.held_bytes == 0


def test_members_are_checked() -> None:
    multiraft = Recorder().multiraft
    with pytest.raises(ValueError, match="open already"):
        multiraft.open_group(GROUP, [1, 2, 3], ListMachine())
    with pytest.raises(ValueError, match="members"):
        multiraft.open_group(8, [2, 3], ListMachine())
    with pytest.raises(ValueError, match="members"):
        multiraft.open_group(8, [1, 2, 2], ListMachine())


def test_many_groups_share_one_write_and_their_heartbeats() -> None:
    clock, disks = HandClock(), {n: SimDisk() for n in (1, 2)}
    frames: list[int] = []
    multirafts: dict[int, MultiRaft] = {}
    options = RaftOptions(quiesce_after_s=3.0)

    def sender(node: int) -> object:
        def send(peer: int, messages: list[RaftMessage]) -> None:
            frames.append(len(messages))
            multirafts[peer].deliver(node, [RaftMessage.FromString(m.SerializeToString()) for m in messages])

        return send

    for node in multirafts.keys() | {1, 2}:
        multirafts[node] = MultiRaft(node, disks[node], clock, random.Random(node), sender(node), options)
    for node, multiraft in sorted(multirafts.items()):
        for group in range(50):
            multiraft.open_group(group, [1, 2], ListMachine(), preferred=1)
        multiraft.peer_up(3 - node)

    def run_a_step() -> None:
        for multiraft in multirafts.values():
            turn = multiraft.turn() if multiraft.has_work or multiraft.next_deadline() <= clock.now else None
            if turn is not None:
                multiraft.release(turn)
        clock.now += 0.001

    for _ in range(1500):
        run_a_step()
    assert all(group.ready for group in multirafts[1].groups.values())
    frames.clear()
    for _ in range(1000):
        run_a_step()
    assert len(frames) <= 24, "ten beats a second, one frame each way"
    assert sum(frames) >= 50 * 2 * 9

    for _ in range(1000):
        run_a_step()
    frames.clear()
    for _ in range(1000):
        run_a_step()
    assert len(frames) <= 24, "one message a beat, and its answer"
    assert sum(frames) == len(frames), "all groups are quiet"


class FullDisk(SimDisk):
    full = False

    def write(self, batch: SimBatch) -> None:
        if self.full:
            raise OSError("no space left")
        super().write(batch)


def test_a_write_that_fails_outside_of_a_turn_stops_the_multiraft_too() -> None:
    """The batch that was lost may hold proposals of other groups; the next turn would call them durable."""
    disk = FullDisk()
    recorder = Recorder(disk=disk)
    recorder.finish()
    recorder.multiraft.open_group(GROUP + 1, [1], ListMachine())
    disk.full = True
    with pytest.raises(OSError, match="no space"):
        recorder.multiraft.close_group(GROUP + 1, erase=True)
    disk.full = False
    with pytest.raises(InvariantBroken, match="no space"):
        recorder.multiraft.turn()
