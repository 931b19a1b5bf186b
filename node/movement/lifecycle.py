"""Life of a replica on this node, as the metadata have it: when it is opened, and when it is over.

The problem: metadata come late, and a node that reads them anew passes through states that are long over; a disk that
was lost has forgotten which. A replica that is opened as one which was erased votes twice, and one that is erased too
early takes acknowledged entries with it. The rules: nothing is opened for the first time, closed or erased before this
node has confirmed, once since its start, that its metadata are current; a replica is over only when the metadata have
no place for its birth, and their configuration is at least as new as the latest that the replica has in its own log; a
replica that was moved here and settled, and of which nothing is stored, was lost, so it has no vote at first. One
that was lost and always was the whole group gets its vote from metadata that are current: only they tell that nobody
else has a memory.

A replica may have a configuration of the same version that lost: a leader appended it, and another leader committed the
one that the metadata know. A log has each version once, so the one that lost is never committed. No later one admits
the replica, since no birth is drawn twice (docs/internals/membership.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.metadata import PartitionRecord
from cluster.raft import births_over, is_stored, stored_birth
from cluster.raft.interfaces import Disk
from cluster.raft.membership.configuration import FOUNDING_BIRTH, FOUNDING_VERSION, Configuration


@dataclass(frozen=True, slots=True)
class ReplicaOpening:
    """Values with which a replica is opened."""

    birth: int
    members: tuple[int, ...]
    """With which the group began; none for a replica that came later."""
    mute: bool
    preferred: int | None
    is_new: bool
    """Nothing of this life is stored: what is stored of another one goes."""


@dataclass(frozen=True, slots=True)
class LostBelow:
    """Bounds of what a node lost with its disks: groups of founding replicas, births of the others."""

    group: int
    birth: int


def opening(record: PartitionRecord, node: int, disk: Disk, lost: LostBelow) -> ReplicaOpening | None:
    """The way to open the replica that the node is to have. None: another life of it stands in the way, so the metadata
    are behind."""
    replica, group = record.replica_on(node), record.group
    assert replica is not None, (record, node)
    birth, stored = replica.birth, stored_birth(group, disk)
    if birth <= births_over(group, disk) or (stored is not None and birth < stored):
        return None
    is_founding = birth == FOUNDING_BIRTH
    was_lost = group < lost.group if is_founding else (birth < lost.birth or replica in record.settled)
    return ReplicaOpening(
        birth,
        record.founders if is_founding else (),
        mute=was_lost,
        preferred=preferred(record),
        is_new=stored != birth if stored is not None else not is_stored(group, disk),
    )


def is_whole_group(record: PartitionRecord, node: int) -> bool:
    """Tell whether no other node ever had a replica of the group, as far as these metadata know."""
    return record.founders == (node,) and not record.was_moved


def preferred(record: PartitionRecord) -> int | None:
    """The node that is to lead. None while the group moves: a preferred leader may be about to go, or have metadata so
    far behind that it was asked to hand over, and would be again and again."""
    return None if record.move is not None else record.preferred


def is_over(latest: Configuration | None, settled_version: int) -> bool:
    """Tell whether metadata that have no place for a replica are as new as what it knows of itself. `latest`: the
    configuration in its own log; None: it never heard of one. Nobody has left a group that is as it began."""
    known = FOUNDING_VERSION if latest is None else latest.version
    return settled_version > FOUNDING_VERSION and settled_version >= known
