"""What is wrong with one group of a node stops that group there: the node, and all its other groups, go on."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest

from cluster.raft import Committed, MultiRaft, NotLeader, Outcome, RaftOptions, Unknown, forget_group
from cluster.raft.log.key_layout import CHECK, HARD, LAYOUT, group_prefix
from cluster.raft.replication.message_encoding import Stamp
from cluster.raft.replication.message_validation import MAX_TERM
from cluster.versions import UNSET
from tests.simulation.world.disk import SimBatch, SimDisk
from tests.unit.raft.cluster import GROUP, HandClock, ListMachine, RaftStage

OTHER = GROUP + 1


class TwoGroups:
    """One node with two groups of which it is the only member."""

    def __init__(self, disk: SimDisk | None = None, *, mute: bool = False) -> None:
        self.clock = HandClock()
        self.disk = disk or SimDisk()
        self.told: list[int] = []
        self.multiraft = MultiRaft(
            1, self.disk, self.clock, random.Random(1), lambda peer, messages: None, RaftOptions()
        )
        self.multiraft.on_quarantined = lambda group: self.told.append(group.group_id)
        self.machines = {number: ListMachine() for number in (GROUP, OTHER)}
        for number, machine in self.machines.items():
            self.multiraft.open_group(number, [1], machine, mute=mute)

    def run(self) -> None:
        for _ in range(20):
            self.clock.now += 0.2
            turn = self.multiraft.turn()
            if turn is not None:
                self.disk.sync()
                self.multiraft.release(turn)

    def propose(self, number: int, text: bytes) -> list[Outcome]:
        outcomes: list[Outcome] = []
        self.multiraft.groups[number].propose(b"\0" + text, outcomes.append)
        return outcomes


def poison(disk: SimDisk, number: int, term: int) -> None:
    """A hard state as it was persisted before terms had a range: whole, and impossible."""
    body = HARD.pack(LAYOUT, 0, term, 0, 1, 1, 0, 1)
    batch = disk.batch()
    batch.put(group_prefix(b"h", number), body + CHECK.pack(zlib.crc32(body)))
    disk.write(batch)
    disk.sync()


def everything(disk: SimDisk, number: int) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, value in disk.scan(b"", b"\xff" * 20) if key[1:9] == number.to_bytes(8)]


@pytest.mark.parametrize("term", [(1 << 64) - 1, MAX_TERM + 1])
def test_a_poisoned_hard_state_is_in_quarantine_at_each_start_and_stays_as_it_is(term: int) -> None:
    disk = SimDisk()
    poison(disk, GROUP, term)
    before = everything(disk, GROUP)
    for _ in range(2):
        node = TwoGroups(disk)
        node.run()
        group = node.multiraft.groups[GROUP]
        assert "beyond what elections can lead to" in str(group.quarantined)
        assert "repair-group" in str(group.quarantined)
        assert node.told == [GROUP]
        assert not group.has_vote(1)
        assert not group.remembers_nothing, "it must not be taken for one that is new"
        assert group.status()["role"] == "quarantined"
        outcomes = node.propose(OTHER, b"goes on")
        node.run()
        assert [type(outcome) for outcome in outcomes] == [Committed]
        node.multiraft.close()
        assert everything(disk, GROUP) == before


def test_a_group_that_breaks_in_a_turn_writes_nothing_of_it_and_the_others_write_all() -> None:
    class Breaks(ListMachine):
        def checkpoint(self, version: int) -> bytes:
            raise AssertionError("a defect")

    node = TwoGroups()
    node.run()
    group = node.multiraft.groups[GROUP]
    group._machine.__class__ = Breaks  # from now on
    before = everything(node.disk, GROUP)
    lost, kept = node.propose(GROUP, b"x"), node.propose(OTHER, b"y")
    group.trim(group.last_index)  # asks for a checkpoint in the same tick
    node.run()
    assert [type(outcome) for outcome in kept] == [Committed]
    assert [type(outcome) for outcome in lost] == [Unknown]
    assert "a defect" in str(group.quarantined)
    assert everything(node.disk, GROUP) == before
    with pytest.raises(NotLeader):
        node.propose(GROUP, b"z")
    again = TwoGroups(node.disk)
    again.run()
    assert again.multiraft.groups[GROUP].is_leader, "the next process finds what a kill would have left"


def test_what_it_meant_to_say_in_that_turn_is_not_said() -> None:
    stage = RaftStage()
    stage.elect(1)
    stage.run(0.05)
    stage.may_quarantine = True
    follower = stage.group(3)
    commit, term = follower.commit_index, follower.term
    stamp = Stamp(GROUP, 1)
    stage.sent.clear()
    # An append that is answered, and then one that contradicts what is committed: the answer was not written either.
    stage.inject(1, 3, stamp.append(term, 900, commit, (commit, term)))
    stage.inject(2, 3, stamp.append(term + 1, 901, commit, (commit, term + 1)))
    stage.step()
    assert "committed here" in str(follower.quarantined)
    assert not [message for sender, _, message in stage.sent if sender == 3]
    outcomes = stage.propose(1, "the others go on")
    stage.run(0.1)
    assert [type(outcome) for outcome in outcomes] == [Committed]


def test_a_member_without_a_vote_gets_none_while_its_group_is_in_quarantine() -> None:
    node = TwoGroups(mute=True)
    node.run()
    node.multiraft.quarantine(GROUP, "a defect")
    before = everything(node.disk, GROUP)
    for group in node.multiraft.groups.values():
        group.vote_from_the_beginning()
        group.vote_as_first_life()
        group.vote_from_the_beginning()
    node.run()
    broken, sound = node.multiraft.groups[GROUP], node.multiraft.groups[OTHER]
    assert (broken.has_vote(1), broken.may_count, broken.is_leader) == (False, False, False)
    assert (sound.has_vote(1), sound.may_count) == (True, True)
    assert everything(node.disk, GROUP) == before
    again = TwoGroups(node.disk)
    assert not again.multiraft.groups[GROUP].has_vote(1), "nor when its node starts again"


def test_what_the_disk_does_is_no_fault_of_a_group() -> None:
    class Fails(SimDisk):
        broken = False

        def get(self, key: bytes) -> bytes | None:
            if self.broken:
                raise OSError("input/output error")
            return super().get(key)

        def write(self, batch: SimBatch) -> None:
            if self.broken:
                raise OSError("input/output error")
            super().write(batch)

    disk = Fails()
    node = TwoGroups(disk)
    node.run()
    node.propose(GROUP, b"x")
    disk.broken = True
    with pytest.raises(OSError, match="input/output"):
        node.run()
    assert node.multiraft.quarantined == {}


def test_a_replica_that_was_given_up_begins_anew_without_a_vote() -> None:
    """Also if the process dies right after: that it lacks a memory is in the batch in which that goes."""
    stage = RaftStage()
    stage.elect(1)
    stage.propose(1, "a", "b")
    stage.run(0.1)
    stage.stop(3)
    poison(stage.disks[3], GROUP, (1 << 64) - 1)
    stage.may_quarantine = True
    stage.start(3)
    stage.run(1.0)
    assert stage.multirafts[3].quarantined
    stage.stop(3)
    batch: Any = stage.disks[3].batch()
    forget_group(GROUP, batch, UNSET)
    stage.disks[3].write(batch)
    stage.disks[3].sync()
    stage.may_quarantine = False
    stage.isolate(3)
    stage.start(3)
    assert not stage.group(3).has_vote(3)
    stage.stop(3, power_loss=True)
    stage.start(3)
    assert not stage.group(3).has_vote(3)
    stage.heal()
    stage.until(lambda: stage.group(3).has_vote(3))
    assert stage.machines[3].applied == [b"a", b"b"]
