"""Events on the disks of stopped nodes, read through the store's own interface."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cluster.raft import entries_stored_under
from node.partition.offset_index import OffsetIndex
from node.partition.raft_entry import batch_at
from node.storage import NodeIdentity, StorageError, Store

EVERYTHING = 1 << 40


class Unreadable(Exception):
    """The disk of a node no longer has everything that the node has applied."""


class StoredEvent(NamedTuple):
    offset: int
    term: int
    record: bytes  # the message as the client sent it


def stored_events(data_dir: Path, cluster_name: str, node: int, group: int) -> Iterator[StoredEvent]:
    """Yield every event of a partition that a node has applied. The node must not run: a store has one user.

    Raises Unreadable."""
    try:
        yield from _stored_events(data_dir, NodeIdentity(cluster_name, node), group)
    except StorageError as error:
        raise Unreadable(str(error)) from error


def _stored_events(data_dir: Path, identity: NodeIdentity, group: int) -> Iterator[StoredEvent]:
    with Store(data_dir, identity) as disk:
        stored_under = entries_stored_under(group, disk)
        terms = _Terms(disk, group)
        for row in OffsetIndex(group, disk).rows_from(0, EVERYTHING):
            entry = disk.get(b"e" + stored_under.to_bytes(8, "big") + row.entry_index.to_bytes(8, "big"))
            if entry is None:
                raise Unreadable(f"the entry of offset {row.base_offset} of group {group} is missing")
            term = terms.of(row.entry_index)
            for place, record in enumerate(batch_at(entry, row.at).messages()[row.skip :]):
                yield StoredEvent(row.base_offset + place, term, record)


class _Terms:
    """Terms of the entries of a group; the store knows the first entry of each term."""

    def __init__(self, disk: Store, group: int) -> None:
        prefix = b"t" + group.to_bytes(8, "big")
        rows = list(disk.scan(prefix, prefix + b"\xff" * 9))
        self._starts = [int.from_bytes(key[-8:], "big") for key, _ in rows]
        self._terms = [int.from_bytes(value, "big") for _, value in rows]

    def of(self, index: int) -> int:
        """Return the term of an entry; 0 for entries before the first known one."""
        place = bisect_right(self._starts, index)
        return self._terms[place - 1] if place else 0
