"""The offset index of a partition, one row per stored batch.

    b"o" + group u64 + base offset u64
        -> entry index u64 | byte in the entry u32 | timestamp u64 ms | count u32 | bytes before u64 | skip u32
           | producer id i64, epoch i16 of the transaction that the events belong to, or -1

The events of a row are the records of its batch after the first `skip`: an idempotent producer sent those before, and
they have offsets from then. The transaction is there so that readers pass over an aborted one without loading it.

Rows are ordered by offset, and with it entry index, timestamp and bytes before never fall. So one binary search over
offsets, with a seek at each step, answers everything: where a time begins, what is too old, what is too much, and what
every member holds already.

Rejected: a time index beside it (one more row to write, delete and keep consistent, to save some ten seeks of 4 us when
a reader asks for a time), and remembering all rows in memory (a log of small batches has a million).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from cluster.raft import Disk, DiskBatch
from node.partition.state_machine import ForgetBelow, IndexBatch

KIND = b"o"
_U64 = struct.Struct(">Q")
_ROW = struct.Struct(">QIQIQIqh")
_NO_TRANSACTION = (-1, -1)


class IndexRow(NamedTuple):
    base_offset: int
    entry_index: int
    at: int  # the byte of the entry at which the batch begins
    timestamp_ms: int
    events: int
    bytes_before: int
    skip: int = 0
    transaction: tuple[int, int] | None = None  # (producer id, epoch)

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.events


def group_range(group_id: int) -> tuple[bytes, bytes]:
    """Range of all keys of the index of one partition: [start, end)."""
    return KIND + _U64.pack(group_id), KIND + _U64.pack(group_id) + b"\xff" * 9


def erase(group_id: int, batch: DiskBatch) -> None:
    """Delete the index of a deleted partition."""
    batch.delete_range(*group_range(group_id))


class OffsetIndex:
    """Rows on disk, and those that this turn has put into its batch but not written yet."""

    def __init__(self, group_id: int, disk: Disk) -> None:
        self._disk = disk
        self._prefix, self._end = group_range(group_id)
        self._fresh: list[IndexRow] = []
        self._fresh_batch: DiskBatch | None = None

    # ------------------------------------------------------------ written by apply

    def put(self, effect: IndexBatch, batch: DiskBatch) -> None:
        if batch is not self._fresh_batch:  # a turn writes its batch before the next one begins
            self._fresh_batch = batch
            self._fresh.clear()
        row = IndexRow(
            effect.base_offset, effect.index, effect.at, effect.timestamp_ms, effect.count, effect.bytes_before,
            effect.skip, effect.transaction,
        )  # fmt: skip
        value = _ROW.pack(*row[1:7], *(row.transaction or _NO_TRANSACTION))
        batch.put(self._prefix + _U64.pack(row.base_offset), value)
        self._fresh.append(row)

    def forget(self, effect: ForgetBelow, batch: DiskBatch) -> None:
        batch.delete_range(self._prefix, self._prefix + _U64.pack(effect.offset))

    def forget_below(self, offset: int, batch: DiskBatch) -> None:
        batch.delete_range(self._prefix, self._prefix + _U64.pack(offset))

    def restored(self) -> None:
        """Drop the rows in memory: a snapshot took the place of what was applied, and its rows are on disk."""
        self._fresh.clear()
        self._fresh_batch = None

    # ------------------------------------------------------------ read

    def rows_from(self, offset: int, limit: int) -> list[IndexRow]:
        """The row that holds `offset`, or else the next one, and those that follow, at most `limit`."""
        fresh = self._fresh
        if fresh and offset >= fresh[0].base_offset:
            place = bisect_right(fresh, offset, key=_base) - 1
            return fresh[place : place + limit]
        first = self.row_at(offset)
        start = offset if first is None or first.next_offset <= offset else first.base_offset
        rows: list[IndexRow] = []
        for key, value in self._disk.scan(self._prefix + _U64.pack(start), self._end):
            rows.append(_decode(key, value))
            if len(rows) == limit:
                return rows
        known = rows[-1].base_offset if rows else -1
        return rows + [row for row in fresh if row.base_offset > known][: limit - len(rows)]

    def row_at(self, offset: int) -> IndexRow | None:
        """The last row that begins at or before `offset`."""
        fresh = self._fresh
        if fresh and offset >= fresh[0].base_offset:
            return fresh[bisect_right(fresh, offset, key=_base) - 1]
        for key, value in self._disk.scan(self._prefix, self._prefix + _U64.pack(offset + 1), reverse=True):
            return _decode(key, value)
        return None

    def first_row(self, low: int, high: int, wanted: Callable[[IndexRow], bool]) -> IndexRow | None:
        """The first row within offsets [low, high) that is wanted, if every row after a wanted one is wanted too."""
        found: IndexRow | None = None
        while low < high:
            middle = (low + high) // 2
            row = self.row_at(middle)
            if row is None or row.next_offset <= low:  # no row up to the middle: cannot be, unless it is damaged
                low = middle + 1
            elif wanted(row):
                found, high = row, min(row.base_offset, middle)
            else:
                low = row.next_offset
        return found


def _base(row: IndexRow) -> int:
    return row.base_offset


def _decode(key: bytes, value: bytes) -> IndexRow:
    base = _U64.unpack(key[-8:])[0]
    index, at, time_ms, events, bytes_before, skip, producer_id, epoch = _ROW.unpack(value)
    transaction = None if producer_id < 0 else (producer_id, epoch)
    return IndexRow(base, index, at, time_ms, events, bytes_before, skip, transaction)
