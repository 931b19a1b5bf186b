"""What a stopped node has on its disk, read through the store's own interface."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.raft import entries_stored_under
from node.partition.offset_index import OffsetIndex
from node.partition.raft_entry import batch_at
from node.storage import NodeIdentity, Store
from tests.integration.clusters.cluster import Cluster, NodeFiles

EVERYTHING = 1 << 40


@dataclass(frozen=True)
class Kept:
    """One partition on one node: where it begins, and its events from there on."""

    first_offset: int
    records: list[bytes]


def open_store(cluster: Cluster, node: NodeFiles) -> Store:
    assert node.process is None, "the node must be stopped: its store has one user"
    return Store(node.data_dir, NodeIdentity(cluster.name, node.id))


def kept(cluster: Cluster, node_id: int, group: int) -> Kept:
    """Everything that the node applied of a partition: its offset index, and the entries that it points to."""
    with open_store(cluster, cluster.nodes[node_id]) as disk:
        records: list[bytes] = []
        stored_under = entries_stored_under(group, disk)
        first, next_offset = 0, None
        for row in OffsetIndex(group, disk).rows_from(0, EVERYTHING):
            assert next_offset in (None, row.base_offset), f"node {node_id}: a hole before offset {row.base_offset}"
            if next_offset is None:
                first = row.base_offset
            entry = disk.get(b"e" + stored_under.to_bytes(8, "big") + row.entry_index.to_bytes(8, "big"))
            assert entry is not None, f"node {node_id}: the entry of offset {row.base_offset} is missing"
            found = batch_at(entry, row.at).messages()
            assert len(found) == row.skip + row.events
            records += found[row.skip :]
            next_offset = row.next_offset
        return Kept(first, records)


def keys_of(cluster: Cluster, node_id: int, group: int) -> int:
    """How many keys of any kind a node still holds of a group."""
    with open_store(cluster, cluster.nodes[node_id]) as disk:
        count = 0
        for kind in (b"e", b"h", b"c", b"t", b"o", b"i"):
            prefix = kind + group.to_bytes(8, "big")
            count += sum(1 for _ in disk.scan(prefix, prefix + b"\xff" * 9))
        return count


def span(cluster: Cluster, node_id: int, group: int) -> tuple[int, int]:
    """The first and the last entry of the group's log on this node."""
    with open_store(cluster, cluster.nodes[node_id]) as disk:
        prefix = b"e" + entries_stored_under(group, disk).to_bytes(8, "big")
        ends = [next(disk.scan(prefix, prefix + b"\xff" * 9, reverse=reverse))[0] for reverse in (False, True)]
        first, last = (int.from_bytes(key[-8:], "big") for key in ends)
        return first, last
