"""Operations that are written together, in order: those of one group in a turn, and in the end of the whole node, for
one record of the write-ahead log."""

from __future__ import annotations

from node.storage.wal.record_format import DELETE, DELETE_RANGE, PUT, Op


class StoreBatch:
    """Operations in order, consumed by `Store.write`."""

    __slots__ = ("ops",)

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.ops.append((PUT, key, value))

    def delete(self, key: bytes) -> None:
        self.ops.append((DELETE, key, b""))

    def delete_range(self, start: bytes, end: bytes) -> None:
        if start < end:
            self.ops.append((DELETE_RANGE, start, end))

    def extend(self, other: object) -> None:
        assert isinstance(other, StoreBatch), "a batch of another store"
        self.ops += other.ops
