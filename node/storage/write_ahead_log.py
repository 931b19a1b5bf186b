"""The write-ahead log of the store, which is also where entries live: append-only segment files.

The problem: a store that logs a value and then writes it again into its own files moves every byte of the event log at
least twice, and this build of RocksDB spends 1 us per KiB on a software checksum each time. Here a batch is appended
once, and what RocksDB keeps of a large value is where it stands.

Measured (2 shared cores, 1-1.5 GB of values, 12 groups, a sync per MiB, whole process with its background work):

                                    MB/s   CPU us/KiB   bytes written / byte   peak memory
    256 KiB, RocksDB plain           163      8.4             5.0                151 MiB
             RocksDB, tuned          187      4.2             4.6                129
             RocksDB, blob files     338      3.4             2.0                 93
             this                    693      0.7             1.0                 35
    16 KiB,  RocksDB, blob files     262      4.0             2.0                128
             this                    630      0.95            1.0                 35

The rules:
 - a batch is one record; a record is whole, with checksums that match, or it was never written;
 - records follow each other without a gap in their sequence numbers, over all segments; a segment says how long the one
   before it was. So a record can be missing at the very end only, and there only if it was not durable;
 - a segment is never written to again once it is sealed or its process is gone; a restart begins a new one.

Rejected: reusing old segments (a file of known size syncs a little faster; stale records then look like good ones), and
mapping the files into memory (an error while reading would kill the process instead of raising).
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from node.storage.errors import StorageDamaged

PUT, DELETE, DELETE_RANGE = 1, 2, 3
Op = tuple[int, bytes, bytes]  # kind, key (or start of the range), value (or end of the range)

_MAGIC = b"HFjournl"
_SEGMENT = struct.Struct(">8sIQQI")  # magic, number, sequence of the first record, length of the one before, checksum
_RECORD = struct.Struct(">IIQQ")  # checksum of the rest and of the description, its length, data length, sequence
_OP = struct.Struct(">BHII")  # kind, key length, value length, checksum of the value
_CRC = struct.Struct(">I")

SEGMENT_HEAD_BYTES = _SEGMENT.size
MAX_BUFFERS = 1000
"""Of one writev; the system takes 1024."""
JOIN_BELOW_BYTES = 64 * 1024
"""A record up to this size is joined and written in one piece: cheaper than a list of small buffers."""
MAX_OPEN_SEGMENTS = 64
"""Descriptors for reading old segments; readers of old data stay in one for a while."""


class WalPosition(NamedTuple):
    """A place between two records."""

    segment: int
    offset: int


class ValueLocation(NamedTuple):
    """Where a value stands, and what it must look like."""

    segment: int
    offset: int
    length: int
    checksum: int


class Values(NamedTuple):
    """Where the values of a record stand: one after the other, in the order of its ops."""

    segment: int
    offset: int
    lengths: list[int]
    checksums: list[int]


class Record(NamedTuple):
    start: WalPosition
    end: WalPosition
    ops: list[Op]
    values: Values


@dataclass(frozen=True, slots=True)
class _Head:
    meta_bytes: int
    data_bytes: int
    sequence: int


class WriteAheadLog:
    """Segments of one directory. `scan` them first; then `begin` a new one; then `append`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self._reading: OrderedDict[int, int] = OrderedDict()
        self._reading_lock = threading.Lock()  # `remove` is called by another thread than `read`
        self._file = -1
        self._number = 0
        self._offset = 0
        self._sequence = 0
        self._sizes = {number: self.path(number).stat().st_size for number in self._numbers()}

    def path(self, number: int) -> Path:
        return self.directory / f"{number:08}.seg"

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("*.seg"))

    @property
    def segments(self) -> dict[int, int]:
        """Number to length, in order; the last is the one being written."""
        return self._sizes

    @property
    def end(self) -> WalPosition:
        return WalPosition(self._number, self._offset)

    # ------------------------------------------------------------ writing

    def begin(self) -> None:
        """Start a new segment. Everything before it is durable when this returns, and so is its name."""
        previous = self._number
        if self._file >= 0:
            os.fdatasync(self._file)
        number = previous + 1
        head = _SEGMENT.pack(_MAGIC, number, self._sequence + 1, self._offset if previous else 0, 0)[:-4]
        file = os.open(self.path(number), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, head + _CRC.pack(crc32c(head)))
            os.fdatasync(file)
            sync_directory(self.directory)
        except OSError:
            os.close(file)
            raise
        if self._file >= 0:
            with self._reading_lock:  # not closed: a `sync` may be under way on it
                self._reading[previous] = self._file
        self._file, self._number, self._offset = file, number, SEGMENT_HEAD_BYTES
        self._sizes[number] = SEGMENT_HEAD_BYTES

    def append(self, ops: list[Op]) -> Values:
        """Write one record; where its values stand. In the page cache, not durable."""
        values = [value for _, _, value in ops]
        checksums = [crc32c(value) for value in values]
        description: list[bytes] = []
        for (kind, key, value), checksum in zip(ops, checksums, strict=True):
            description += (_OP.pack(kind, len(key), len(value), checksum), key)
        meta = b"".join(description)
        total = sum(map(len, values))
        sequence = self._sequence + 1
        head = _RECORD.pack(0, len(meta), total, sequence)[4:]
        data_at = self._offset + _RECORD.size + len(meta)
        buffers = [_CRC.pack(crc32c(meta, crc32c(head))), head, meta, *values]
        self._write(buffers, data_at + total - self._offset)
        self._sequence = sequence
        self._offset = self._sizes[self._number] = data_at + total
        return Values(self._number, data_at, [len(value) for value in values], checksums)

    def _write(self, buffers: list[bytes], size: int) -> None:
        if size <= JOIN_BELOW_BYTES:
            buffers = [b"".join(buffers)]
        at = self._offset
        for first in range(0, len(buffers), MAX_BUFFERS):
            part = buffers[first : first + MAX_BUFFERS]
            expected = sum(map(len, part))
            written = os.pwritev(self._file, part, at)
            if written < expected:
                rest = memoryview(b"".join(part))[written:]
                while rest:  # it fills up, or a signal came: writing on tells which
                    written = os.pwrite(self._file, rest, at + expected - len(rest))
                    rest = rest[written:]
            at += expected

    def sync(self) -> None:
        """Everything appended before the call is durable afterwards. For another thread than the writer's: `begin`
        synced what it left behind."""
        os.fdatasync(self._file)

    # ------------------------------------------------------------ reading

    def read(self, place: ValueLocation) -> bytes:
        try:
            data = os.pread(self._descriptor(place.segment), place.length, place.offset)
        except FileNotFoundError as error:
            raise StorageDamaged(self.path(place.segment), "it is missing, but values in it are needed") from error
        if len(data) != place.length or crc32c(data) != place.checksum:
            raise StorageDamaged(
                self.path(place.segment), f"the {place.length} bytes at {place.offset} are not what was written"
            )
        return data

    def _descriptor(self, number: int) -> int:
        if number == self._number and self._file >= 0:
            return self._file
        with self._reading_lock:
            file = self._reading.get(number)
            if file is None:
                file = self._reading[number] = os.open(self.path(number), os.O_RDONLY | os.O_CLOEXEC)
                if len(self._reading) > MAX_OPEN_SEGMENTS:
                    os.close(self._reading.popitem(last=False)[1])
            else:
                self._reading.move_to_end(number)
            return file

    def remove(self, number: int) -> None:
        assert number < self._number, "the segment being written stays"
        with self._reading_lock:
            file = self._reading.pop(number, None)
        if file is not None:
            os.close(file)
        self.path(number).unlink(missing_ok=True)
        self._sizes.pop(number, None)

    def close(self) -> None:
        for file in self._reading.values():
            os.close(file)
        self._reading.clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # ------------------------------------------------------------ recovery

    def scan(self, start: WalPosition, durable: WalPosition) -> Iterator[Record]:
        """All records of the segments from `start.segment` on, those before `start` too; then the write-ahead log ends
        after the last of them. What follows it was torn by a crash and is cut off.

        Raises:
            StorageDamaged: a record is missing that is not the very end, or that was durable.
        """
        numbers = [number for number in sorted(self._sizes) if number >= start.segment]
        if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise StorageDamaged(self.directory, f"segments are missing between {numbers[0]} and {numbers[-1]}")
        if (numbers and numbers[0] != max(start.segment, 1)) or (not numbers and durable.segment):
            raise StorageDamaged(self.directory, f"segment {max(start.segment, 1)} is missing, and needed")
        end = WalPosition(0, 0)
        for number in numbers:
            last = number == numbers[-1]
            head = self._segment_head(number)
            if head is None:
                if not last or durable.segment >= number:
                    raise StorageDamaged(self.path(number), "its head is not what was written")
                self.path(number).unlink()  # the crash came while it was made: nothing was in it
                self._sizes.pop(number)
                break
            first_sequence, previous_length = head
            if end.segment and (previous_length, first_sequence) != (end.offset, self._sequence + 1):
                found = f"it ends at {end.offset}, but had {previous_length} bytes when it was sealed"
                raise StorageDamaged(self.path(end.segment), found)
            self._sequence = first_sequence - 1
            end = WalPosition(number, SEGMENT_HEAD_BYTES)
            # What is applied from here must not become durable in RocksDB before it is durable in the write-ahead log.
            os.fdatasync(self._descriptor(number))
            for record in self._records(number, start):
                end = record.end
                yield record
        if end < max(start, durable):
            raise StorageDamaged(
                self.path(end.segment), f"it ends at {end.offset}, but was durable up to {max(start, durable)}"
            )
        self._number, self._offset = end
        if end.segment and self._sizes[end.segment] > end.offset:
            self._cut(end)

    def _cut(self, end: WalPosition) -> None:
        file = os.open(self.path(end.segment), os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(file, end.offset)
            os.fsync(file)
        finally:
            os.close(file)
        self._sizes[end.segment] = end.offset

    def _segment_head(self, number: int) -> tuple[int, int] | None:
        data = os.pread(self._descriptor(number), SEGMENT_HEAD_BYTES, 0)
        if len(data) < SEGMENT_HEAD_BYTES or _CRC.unpack(data[-4:])[0] != crc32c(data[:-4]):
            return None
        magic, named, first_sequence, previous_length, _ = _SEGMENT.unpack(data)
        if magic != _MAGIC or named != number:
            raise StorageDamaged(self.path(number), f"it is segment {named} under another name")
        return first_sequence, previous_length

    def _records(self, number: int, start: WalPosition) -> Iterator[Record]:
        """Records until the first that is not whole. Values before `start` are neither read nor checked."""
        file, offset = self._descriptor(number), SEGMENT_HEAD_BYTES
        while True:
            found = self._record_head(file, offset)
            if found is None:
                return
            head, meta = found
            begin = WalPosition(number, offset)
            data_at = offset + _RECORD.size + head.meta_bytes
            offset = data_at + head.data_bytes
            if offset > self._sizes[number]:
                return
            with_values = begin >= start
            record = _decode(file, begin, WalPosition(number, offset), head, meta, data_at, with_values)
            if record is None:
                return
            self._sequence = head.sequence
            yield record

    def _record_head(self, file: int, offset: int) -> tuple[_Head, bytes] | None:
        raw = os.pread(file, _RECORD.size, offset)
        if len(raw) < _RECORD.size:
            return None
        checksum, meta_bytes, data_bytes, sequence = _RECORD.unpack(raw)
        if sequence != self._sequence + 1:
            return None
        meta = os.pread(file, meta_bytes, offset + _RECORD.size)
        if len(meta) < meta_bytes or crc32c(meta, crc32c(raw[4:])) != checksum:
            return None
        return _Head(meta_bytes, data_bytes, sequence), meta


def _decode(
    file: int, begin: WalPosition, end: WalPosition, head: _Head, meta: bytes, data_at: int, with_values: bool
) -> Record | None:
    """None: a value does not match its checksum."""
    ops: list[Op] = []
    values = Values(end.segment, data_at, [], [])
    data = os.pread(file, head.data_bytes, data_at) if with_values else b""
    at, value_at = 0, 0
    while at < len(meta):
        kind, key_length, length, checksum = _OP.unpack_from(meta, at)
        at += _OP.size + key_length
        value = data[value_at : value_at + length]
        if with_values and crc32c(value) != checksum:
            return None
        ops.append((kind, meta[at - key_length : at], value))
        values.lengths.append(length)
        values.checksums.append(checksum)
        value_at += length
    return Record(begin, end, ops, values)


def sync_directory(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
