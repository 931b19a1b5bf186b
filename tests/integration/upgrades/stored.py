"""What a stopped node has on its disk, read by this program: which layouts, and what its checkpoints should be."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cluster.metadata import COORDINATORS, MetadataMachine
from cluster.metadata import metadata_pb2 as pb
from cluster.raft import METADATA_GROUP, entries_stored_under, stored_groups
from cluster.raft.log.key_layout import HARD, group_prefix
from cluster.versions import NEWEST
from node.partition.state_machine import PartitionMachine
from node.storage import NodeIdentity, Store
from node.transaction_coordinator.state_machine import CoordinatorMachine
from tests.integration.clusters.cluster import Cluster
from tests.simulation.world.disk import SimBatch


class GroupOnDisk(NamedTuple):
    number: int
    kind: str
    hard_state_layout: int
    layout: int | None
    """Of the checkpoint; None: there is none."""
    applied: int
    checkpoint: bytes
    entries: dict[int, bytes]
    """All up to the checkpoint, from the first one on."""


def stored(cluster: Cluster, node: int) -> dict[int, GroupOnDisk]:
    """All groups of a node that does not run."""
    files = cluster.nodes[node]
    with Store(files.data_dir, NodeIdentity(cluster.name, node)) as disk:
        state = pb.Checkpoint.FromString((disk.get(group_prefix(b"c", METADATA_GROUP)) or b"")[12:])
        coordinators = {one.group for log in state.logs if log.name == COORDINATORS for one in log.partitions}
        return {group: _group(disk, group, coordinators) for group in stored_groups(disk)}


def _group(disk: Store, group: int, coordinators: set[int]) -> GroupOnDisk:
    hard = disk.get(group_prefix(b"h", group))
    assert hard is not None
    base = HARD.unpack(hard[: HARD.size])[5]
    kind = "metadata" if group == METADATA_GROUP else "coordinator" if group in coordinators else "partition"
    row = disk.get(group_prefix(b"c", group))
    if row is None:
        return GroupOnDisk(group, kind, hard[0], None, base, b"", {})
    applied, checkpoint = int.from_bytes(row[4:12], "big"), row[12:]
    entries: dict[int, bytes] = {}
    for index in range(base + 1, applied + 1):
        data = disk.get(group_prefix(b"e", entries_stored_under(group, disk)) + index.to_bytes(8, "big"))
        assert data is not None, f"entry {index} of group {group} is missing"
        entries[index] = data
    assert base == 1, "a log that was trimmed cannot be applied again"
    return GroupOnDisk(group, kind, hard[0], _layout(kind, checkpoint), applied, checkpoint, entries)


def _layout(kind: str, checkpoint: bytes) -> int:
    if kind == "metadata":
        return int(pb.Checkpoint.FromString(checkpoint).version)
    return int(msgspec.msgpack.decode(checkpoint)[0])


def applied_again(group: GroupOnDisk) -> bytes:
    """The checkpoint that this program makes of the group's entries."""
    machine: Any
    if group.kind == "metadata":
        machine = MetadataMachine()
        for index, data in _commands(group):
            machine.apply(index, 1, data, SimBatch())
    elif group.kind == "partition":
        machine = PartitionMachine()
        for index, data in _commands(group):
            machine.apply(index, data)
    else:
        machine = CoordinatorMachine(group.number)
        for index, data in _commands(group):
            machine.apply(index, data[1:])
    return bytes(machine.checkpoint(NEWEST))


def _commands(group: GroupOnDisk) -> Iterator[tuple[int, bytes]]:
    return ((index, data) for index, data in group.entries.items() if data[0] == 0)


def everything(path: Path) -> dict[str, str]:
    """All files below, with what is in them, and when they were changed."""
    return {
        str(file.relative_to(path)): f"{file.stat().st_mtime_ns} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
