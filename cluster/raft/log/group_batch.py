"""Writes of one group in a turn, kept apart from those of the others until the turn ends.

The problem: all groups of a node are written in one atomic batch, and a group that turns out broken in the middle of a
turn has put a part of what it meant to write into it. The rule: nothing of a broken group reaches the disk, as if its
process had been killed before the write, and all of the others does. So each group collects its own operations, in
order, and only those of sound groups are poured into the batch of the disk. Keys of groups never overlap.

Rejected: telling a group's operations by their keys. State machines write under keys of their own.
"""

from __future__ import annotations

from cluster.raft.interfaces import DiskBatch


class GroupBatch:
    """Implements `DiskBatch`."""

    __slots__ = ("_operations",)

    def __init__(self) -> None:
        self._operations: list[tuple[str, bytes, bytes]] = []

    def __bool__(self) -> bool:
        return bool(self._operations)

    def put(self, key: bytes, value: bytes) -> None:
        self._operations.append(("put", key, value))

    def delete(self, key: bytes) -> None:
        self._operations.append(("delete", key, b""))

    def delete_range(self, start: bytes, end: bytes) -> None:
        self._operations.append(("delete_range", start, end))

    def forget(self) -> None:
        self._operations = []

    def pour_into(self, batch: DiskBatch) -> None:
        operations, self._operations = self._operations, []
        for kind, key, value in operations:
            if kind == "put":
                batch.put(key, value)
            elif kind == "delete":
                batch.delete(key)
            else:
                batch.delete_range(key, value)
