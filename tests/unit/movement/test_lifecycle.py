"""When a replica is opened here, as whom, and when it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from cluster.metadata import MoveRecord, PartitionRecord
from cluster.raft import erase_group
from cluster.raft.interfaces import Disk
from cluster.raft.log.key_layout import encode_hard_state, group_prefix
from cluster.raft.membership.configuration import (
    Configuration,
    Replica,
    ended,
    founding,
    joint,
    with_learner,
)
from node.movement.lifecycle import LostBelow, ReplicaOpening, is_over, opening, preferred
from tests.simulation.world.disk import SimDisk
from tests.unit.raft.membership.moving import ignored, led

GROUP, NODE = 7, 3
FOUNDING = PartitionRecord("0", GROUP, (1, 2, 3))
COMING = PartitionRecord("0", GROUP, (1, 2), founding=(1, 2), move=MoveRecord(20, 1, Replica(NODE, 20), None))
SETTLED = PartitionRecord("0", GROUP, (1, 2, 3), births=(1, 1, 20), founding=(1, 2), configuration_version=4)
NOTHING_LOST = LostBelow(0, 0)


def _disk(birth: int | None = None, over: int = 0) -> SimDisk:
    disk = SimDisk()
    batch = disk.batch()
    if over:
        erase_group(GROUP, batch, over=over)
    if birth is not None:
        row = encode_hard_state(15, 0, 3, 0, 1, 1, 0, 1, birth=birth if birth > 1 else None)
        batch.put(group_prefix(b"h", GROUP), row)
    disk.write(batch)
    return disk


def _opening(record: PartitionRecord, disk: SimDisk | None = None, lost: LostBelow = NOTHING_LOST) -> ReplicaOpening:
    found = opening(record, NODE, cast(Disk, disk or _disk()), lost)
    assert found is not None
    return found


def test_a_founding_replica_is_told_with_whom_the_group_began_for_ever() -> None:
    assert _opening(FOUNDING) == ReplicaOpening(1, (1, 2, 3), mute=False, preferred=1, is_new=True)
    later = replace(FOUNDING, replicas=(5, 3), births=(9, 1), founding=(1, 2, 3), configuration_version=7)
    found = _opening(later, _disk(1))
    assert (found.members, found.is_new) == ((1, 2, 3), False)


def test_a_replica_that_comes_knows_nothing_of_the_members() -> None:
    assert _opening(COMING) == ReplicaOpening(20, (), mute=False, preferred=None, is_new=True)
    assert not _opening(COMING, _disk(20)).is_new


def test_one_that_was_settled_and_is_not_stored_was_lost_and_has_no_vote() -> None:
    assert _opening(SETTLED).mute
    assert _opening(COMING, lost=LostBelow(0, 21)).mute
    assert not _opening(COMING, lost=LostBelow(99, 20)).mute, "what was lost was lost before"


def test_a_founding_replica_of_a_new_log_has_a_vote_on_a_node_that_was_readmitted() -> None:
    assert not _opening(FOUNDING, lost=LostBelow(GROUP, 30)).mute
    assert _opening(FOUNDING, lost=LostBelow(GROUP + 1, 30)).mute


@pytest.mark.parametrize("disk", [_disk(over=20), _disk(21), _disk(over=25)], ids=["over", "later", "far over"])
def test_a_life_that_is_over_is_never_opened_again(disk: SimDisk) -> None:
    assert opening(COMING, NODE, cast(Disk, disk), NOTHING_LOST) is None


def test_what_is_stored_of_an_earlier_life_is_not_this_one() -> None:
    assert _opening(COMING, _disk(1)).is_new
    assert _opening(COMING, _disk(over=19)).is_new


def test_what_cannot_be_read_is_not_taken_for_nothing() -> None:
    disk = _disk()
    batch = disk.batch()
    batch.put(group_prefix(b"h", GROUP), b"not a hard state")
    disk.write(batch)
    assert not _opening(FOUNDING, disk).is_new


def test_nobody_prefers_a_leader_while_the_group_moves() -> None:
    assert preferred(FOUNDING) == 1
    assert preferred(replace(FOUNDING, move=MoveRecord(20, 1, Replica(4, 20), Replica(1, 1)))) is None
    assert preferred(replace(FOUNDING, move=MoveRecord(20, 1, Replica(4, 20), Replica(2, 1)))) is None, (
        "its own metadata may lag, so that it sees no move"
    )


def test_a_replica_is_over_when_the_metadata_know_a_configuration_as_late() -> None:
    assert not is_over(None, 1)
    assert is_over(None, 2)
    assert not is_over(founding([1, 2]), 1)
    latest = Configuration(6, frozenset({Replica(1, 1)}), outgoing=frozenset({Replica(1, 1), Replica(2, 1)}), move=4)
    assert not is_over(latest, 4), "the metadata are behind: it votes"
    assert not is_over(latest, 5)
    assert is_over(latest, 6), "a joint configuration is never reported: another one of this version was committed"
    assert is_over(latest, 7)


def test_who_has_a_configuration_that_lost_against_another_of_its_version_is_over() -> None:
    """Node 4 comes for 3, and its leader and 4 alone have J. The others commit the cancel, which has the version of J.
    Nobody tells node 4 the log, since it is no member: it keeps J for ever, and is told by the metadata alone."""
    stage, coming, going = led(by=1), Replica(4, 20), Replica(3, 1)
    coming_for = stage.configuration(1).version
    stage.open(4, 20)
    stage.group(1).propose_configuration(with_learner(stage.configuration(1), coming, 20), ignored)
    stage.until(lambda: stage.group(2).configuration == stage.group(4).configuration == stage.configuration(1))
    stage.until(lambda: stage.group(1)._membership.is_committed)
    stage.cut = {way for a in (1, 4) for b in (2, 3) for way in ((a, b), (b, a))}
    change = joint(stage.configuration(1), 20, add=coming, remove=going)
    stage.group(1).propose_configuration(change, ignored)
    stage.until(lambda: stage.configuration(4) == change)
    stage.until(lambda: stage.leader in (2, 3))
    leader = stage.leader
    assert leader is not None
    stage.until(lambda: stage.group(leader).ready)
    stage.group(leader).propose_configuration(ended(stage.configuration(leader), 20, without=coming), ignored)
    stage.heal()
    stage.until(lambda: all(stage.group(node).is_settled and not stage.configuration(node).move for node in (1, 2, 3)))
    stage.run(2.0)
    settled = stage.configuration(leader)
    assert stage.configuration(4) == change
    assert coming not in settled.replicas
    assert settled.version == change.version
    assert not is_over(stage.configuration(4), coming_for)
    assert is_over(stage.configuration(4), settled.version)
