"""Reading the write-ahead log after a crash: finding its end, and checking that no more than that is missing.

The problem: a write-ahead log that was torn by a crash and one in which a durable record has become unreadable look
alike from the front: records, and then none that is whole. The rule: everything that was durable once is there, or the
store is not opened. These facts tell the two apart:

 - the segment that follows says how long this one was when it was sealed, and all of it was durable then;
 - the watermark, which may be too old after a loss of power, says up to where it was durable at least;
 - a whole record further on says up to where it was durable when that one was written;
 - a segment gets its first record when its head is durable, so a longer one has a whole head.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from node.storage.errors import StorageDamaged
from node.storage.fsync import System
from node.storage.wal.record_format import (
    MARKER_BYTES,
    SEGMENT_HEAD_BYTES,
    Record,
    WalPosition,
    read_record,
    read_record_head,
    read_segment_head,
)

PIECE_BYTES = 1 << 20
"""Bytes of a torn tail that are searched for records at a time."""


class WalEnd(NamedTuple):
    """End of the write-ahead log: its position and last sequence number."""

    position: WalPosition
    sequence: int


class Recovery:
    """Reader of a write-ahead log: iterate `records` once and to the end; then read `end`."""

    def __init__(self, directory: Path, sizes: dict[int, int], opened: Callable[[int], int], system: System) -> None:
        self._directory = directory
        self._sizes = sizes
        self._system = system
        self._opened = opened  # the descriptor of a segment
        self.end = WalEnd(WalPosition(0, 0), 0)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:08}.seg"

    def records(self, start: WalPosition, durable: WalPosition) -> Iterator[Record]:
        """Iterate over the records of the segments from `start.segment` on, those before `start` too.

        Raises:
            StorageDamaged: a record is missing that is not the very end, or that was durable.
        """
        numbers = self._numbers(start, durable)
        for number in numbers:
            if not (yield from self._segment(number, start, durable, is_last=number == numbers[-1])):
                break
        position = self.end.position
        if position < max(start, durable):
            raise StorageDamaged(
                self._path(position.segment),
                f"it ends at {position.offset}, but was durable up to {max(start, durable)}",
            )

    def _numbers(self, start: WalPosition, durable: WalPosition) -> list[int]:
        numbers = [number for number in sorted(self._sizes) if number >= start.segment]
        if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise StorageDamaged(self._directory, f"segments are missing between {numbers[0]} and {numbers[-1]}")
        if (numbers and numbers[0] != max(start.segment, 1)) or (not numbers and durable.segment):
            raise StorageDamaged(self._directory, f"segment {max(start.segment, 1)} is missing, and needed")
        return numbers

    def _segment(
        self, number: int, start: WalPosition, durable: WalPosition, *, is_last: bool
    ) -> Generator[Record, None, bool]:
        """Iterate over a segment's records. Returns whether it is one."""
        file, path = self._opened(number), self._path(number)
        # What is applied from here must not become durable in RocksDB before it is durable in the write-ahead log; and
        # it is what the disk has that counts, see fsync.py.
        self._system.sync_data(file, path)
        self._system.forget_cached(file)
        head = read_segment_head(file, number, path)
        if head is None:
            if not is_last or durable.segment >= number or self._sizes[number] > SEGMENT_HEAD_BYTES:
                raise StorageDamaged(path, "its head is not what was written")
            return False  # the crash came while it was made: nothing was in it
        before = self.end
        if before.position.segment and (head.previous_length, head.first_sequence) != (
            before.position.offset,
            before.sequence + 1,
        ):
            found = f"it ends at {before.position.offset}, but had {head.previous_length} bytes when it was sealed"
            raise StorageDamaged(self._path(before.position.segment), found)
        self.end = WalEnd(WalPosition(number, SEGMENT_HEAD_BYTES), head.first_sequence - 1)
        yield from self._whole_records(file, head.marker, start)
        if is_last:
            self._search_behind(file, head.marker)
        return True

    def _whole_records(self, file: int, marker: bytes, start: WalPosition) -> Iterator[Record]:
        """Iterate over records until the first that is not whole. Values before `start` are neither read nor
        checked."""
        while True:
            begin, sequence = self.end
            head = read_record_head(file, begin.offset, marker)
            if head is None or head.sequence != sequence + 1:
                return
            if begin.offset + head.size > self._sizes[begin.segment]:
                return
            record = read_record(file, begin, head, with_values=begin >= start)
            if record is None:
                return
            self.end = WalEnd(record.end, head.sequence)
            yield record

    def _search_behind(self, file: int, marker: bytes) -> None:
        """Search for a record that proves that the one at the end was durable. Raises StorageDamaged."""
        (number, end), _ = self.end
        at = end
        while at < self._sizes[number]:
            piece = os.pread(file, PIECE_BYTES + MARKER_BYTES - 1, at)
            found = piece.find(marker)
            while found >= 0:
                head = read_record_head(file, at + found, marker)
                if head is not None and head.durable > end:
                    raise StorageDamaged(
                        self._path(number),
                        f"the record at {end} is not what was written; the one at {at + found} says it was durable",
                    )
                found = piece.find(marker, found + 1)
            at += PIECE_BYTES
