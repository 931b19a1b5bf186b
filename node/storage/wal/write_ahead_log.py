"""The write-ahead log of the store, which is also where entries live: append-only segment files.

The problem: a store that logs a value and then writes it again into its own files moves every byte of the event log at
least twice, and this build of RocksDB spends 1 us per KiB on a software checksum each time. Here a batch is appended
once, and of a large value RocksDB keeps only the location.

Measured (2 shared cores, 1-1.5 GB of values, 12 groups, a sync per MiB, whole process with its background work):

                                    MB/s   CPU us/KiB   bytes written / byte   peak memory
    256 KiB, RocksDB plain           163      8.4             5.0                151 MiB
             RocksDB, tuned          187      4.2             4.6                129
             RocksDB, blob files     338      3.4             2.0                 93
             this                    693      0.7             1.0                 35
    16 KiB,  RocksDB, blob files     262      4.0             2.0                128
             this                    630      0.95            1.0                 35

The rules:
 - a batch is one record; a record is whole, with checksums that match, or it was never written (record_format.py);
 - records follow each other without a gap in their sequence numbers, over all segments; a segment says how long the one
   before it was. So a record can be missing at the very end only, and there only if it was not durable (recovery.py);
 - a sync that failed has failed for everybody and for ever (../fsync.py);
 - a segment is never written to again once it is sealed or its process is gone; a restart begins a new one.

Rejected: reusing old segments (a file of known size syncs a little faster; stale records then look like good ones), and
mapping the files into memory (an error while reading would kill the process instead of raising).
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from node.storage.errors import StorageDamaged, SyncFailed
from node.storage.fsync import System
from node.storage.wal.direct_io import DirectWriter
from node.storage.wal.page_cache_write import write_all
from node.storage.wal.record_format import (
    SEGMENT_HEAD_BYTES,
    Op,
    Record,
    SegmentHead,
    ValueLocation,
    Values,
    WalPosition,
    encode_op,
    encode_record_head,
    encode_segment_head,
    new_marker,
)
from node.storage.wal.recovery import Recovery
from node.storage.wal.write_path import WritePath

log = logging.getLogger("holdfast.storage")

JOIN_BELOW_BYTES = 64 * 1024
"""Size up to which a record is joined and written in one piece: cheaper than a list of small buffers."""
AHEAD_BYTES = 4 << 20
"""Bytes that the system reads ahead of a reader that goes from one value of a segment to the next. Columns of events of
1 KiB that no cache has: 1.7 of the rate without; with 2 MiB it was 1.4, with 8 no more than with 4."""
MAX_OPEN_SEGMENTS = 64
"""Descriptors for reading old segments; readers of old data stay in one for a while."""


class WriteAheadLog:
    """Segments of one directory. `scan` them first; then `begin` a new one; then `append`."""

    def __init__(self, directory: Path, system: System | None = None, *, write_path: WritePath | None = None) -> None:
        """Open the directory. With a `write_path` records wait in memory for `drain` or `sync`, which may write them
        past the page cache, where the file system can do that. Without one, they are in the page cache at once."""
        self.directory = directory
        self._system = system or System()
        directory.mkdir(exist_ok=True)
        self._reading: OrderedDict[int, int] = OrderedDict()
        self._reading_lock = threading.Lock()  # `erase` is called by another thread than `read`
        self._file = -1
        self._number = 0
        self._offset = 0
        self._sequence = 0
        self._marker = b""
        self._sync_lock = threading.Lock()  # the current segment, its syncs and their outcome belong together
        self._sync_failed: SyncFailed | OSError | None = None
        self._write_path = write_path
        self._direct: DirectWriter | None = None  # of the current segment
        self._read_ahead: dict[int, tuple[int, int]] = {}  # segment -> (end of the last value, end read ahead)
        self._durable = 0  # offset in the current segment
        self._sizes = {number: self.path(number).stat().st_size for number in self._numbers()}

    def path(self, number: int) -> Path:
        return self.directory / f"{number:08}.seg"

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("*.seg"))

    @property
    def segments(self) -> dict[int, int]:
        """Segments' numbers to lengths, in order; the last is the one being written."""
        return self._sizes

    @property
    def end(self) -> WalPosition:
        return WalPosition(self._number, self._offset)

    # ------------------------------------------------------------ writing

    def begin(self) -> None:
        """Start a new segment. Everything before it is durable when this returns, and so is its name."""
        with self._sync_lock:
            if self._file >= 0:
                self._sync()
            previous, number = self._number, self._number + 1
            head = SegmentHead(new_marker(), self._sequence + 1, self._offset if previous else 0)
            encoded = encode_segment_head(number, head)
            file = os.open(self.path(number), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                write_all(file, [encoded], 0)
                self._system.sync_data(file, self.path(number))
                self._system.sync_directory(self.directory)
                direct = self._direct_writer(self.path(number), file, encoded)
            except (OSError, SyncFailed):
                os.close(file)
                raise
            if self._direct is not None:
                self._direct.close()  # all that it had is durable
            if self._file >= 0:
                with self._reading_lock:
                    self._reading[previous] = self._file
            self._file, self._number, self._offset = file, number, SEGMENT_HEAD_BYTES
            self._direct = direct
            self._marker, self._durable = head.marker, SEGMENT_HEAD_BYTES
            self._sizes[number] = SEGMENT_HEAD_BYTES

    def _direct_writer(self, path: Path, file: int, head: bytes) -> DirectWriter | None:
        if self._write_path is None:
            return None
        try:
            return DirectWriter(path, file, head, self._write_path)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._write_path = None
            log.warning("%s: this file system takes nothing past the page cache: writes go through it", path.parent)
            return None

    def append(self, ops: list[Op]) -> Values:
        """Write one record, and return the locations of its values. It is in the page cache, or in memory until
        `drain`; not durable."""
        values = [value for _, _, value in ops]
        lengths, checksums = list(map(len, values)), list(map(crc32c, values))
        described = zip(ops, lengths, checksums, strict=True)
        meta = b"".join([encode_op(kind, key, length, checksum) for (kind, key, _), length, checksum in described])
        total = sum(lengths)
        head = encode_record_head(self._marker, meta, total, self._sequence + 1, self._durable)
        data_at = self._offset + len(head) + len(meta)
        end = data_at + total
        buffers = [head, meta, *values]
        if end - self._offset <= JOIN_BELOW_BYTES:
            buffers = [b"".join(buffers)]
        if self._direct is not None:
            self._direct.add(self._offset, buffers)
        else:
            write_all(self._file, buffers, self._offset)
        self._sequence += 1
        self._offset = self._sizes[self._number] = end
        return Values(self._number, data_at, lengths, checksums)

    def sync(self) -> WalPosition:
        """Make everything durable that was appended before the call: up to the position that is returned. For any
        thread. After an error each further call raises it again: the system tells only the first of those that ask."""
        with self._sync_lock:
            return self._sync()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of records that no file has yet: a killed process loses them."""
        return self._direct.waiting_bytes if self._direct is not None else 0

    def drain(self) -> None:
        """Write everything appended before the call to its file, if not durably. For any thread."""
        if self._direct is not None:
            self._direct.drain()

    def _sync(self) -> WalPosition:
        if self._sync_failed is not None:
            raise self._sync_failed
        reached = self.end
        try:
            if self._direct is None or not self._direct.drain(self._durable):
                self._system.sync_data(self._file, self.path(self._number))
        except (SyncFailed, OSError) as error:
            self._sync_failed = error
            raise
        self._durable = reached.offset
        return reached

    # ------------------------------------------------------------ reading

    def read(self, place: ValueLocation) -> bytes:
        try:
            data = self._waiting(place) or self._from_file(place)
        except FileNotFoundError as error:
            raise StorageDamaged(self.path(place.segment), "it is missing, but values in it are needed") from error
        if len(data) != place.length or crc32c(data) != place.checksum:
            raise StorageDamaged(
                self.path(place.segment), f"the {place.length} bytes at {place.offset} are not what was written"
            )
        return data

    def warm(self, place: ValueLocation) -> None:
        """Have the system read a value of a sealed segment into its memory. For any thread: descriptors that others
        read by may be closed at any moment, so it has one of its own."""
        try:
            file = os.open(self.path(place.segment), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # nothing in it is needed any more
            return
        try:
            os.pread(file, place.length, place.offset)
        finally:
            os.close(file)

    def _from_file(self, place: ValueLocation) -> bytes:
        """Read a value from its file, and let the disk read ahead of a sequential reader: the page cache has nothing
        that was written past it."""
        file, end = self._descriptor(place.segment), place.offset + place.length
        if self._write_path is not None:
            read_until, ahead = self._read_ahead.get(place.segment, (0, 0))
            if 0 <= place.offset - read_until <= AHEAD_BYTES and ahead < end + AHEAD_BYTES // 2:
                start, ahead = max(ahead, end), end + AHEAD_BYTES
                os.posix_fadvise(file, start, ahead - start, os.POSIX_FADV_WILLNEED)
            self._read_ahead[place.segment] = (end, ahead)
        return os.pread(file, place.length, place.offset)

    def _waiting(self, place: ValueLocation) -> bytes | None:
        """Value that was not written to the file yet. Only the loop changes segments, and it does not while it
        reads."""
        direct = self._direct
        return direct.find(place.offset, place.length) if direct is not None and place.segment == self._number else None

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

    def erase(self, number: int) -> None:
        """Remove the file of a segment in which nothing is needed. For any thread; it may take long. `forget` must
        follow.

        The directory is synced each time, so that the disk takes back one segment at once: a file system that discards
        what was deleted holds up every sync for as long as that takes, for 1.6 GB a quarter of a second.
        """
        assert number < self._number, "the segment being written stays"
        with self._reading_lock:
            file = self._reading.pop(number, None)
        if file is not None:
            os.close(file)
        self.path(number).unlink(missing_ok=True)
        self._system.sync_directory(self.directory)

    def forget(self, number: int) -> int:
        """Forget a segment that was erased. Returns the bytes that it had."""
        self._read_ahead.pop(number, None)
        return self._sizes.pop(number, 0)

    def close(self) -> None:
        for file in self._reading.values():
            os.close(file)
        self._reading.clear()
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # ------------------------------------------------------------ recovery

    def scan(self, start: WalPosition, durable: WalPosition) -> Iterator[Record]:
        """Iterate over the records of the segments from `start.segment` on, those before `start` too; then the
        write-ahead log ends after the last of them. A tail after it was torn by a crash and is cut off.

        Raises:
            StorageDamaged: a record is missing that is not the very end, or that was durable.
        """
        recovery = Recovery(self.directory, self._sizes, self._descriptor, self._system)
        yield from recovery.records(start, durable)
        (self._number, self._offset), self._sequence = recovery.end
        for number in [number for number in self._sizes if number > self._number and number >= start.segment]:
            self.path(number).unlink()  # its head was not finished: see `Recovery`
            self._sizes.pop(number)
        if self._number and self._sizes[self._number] > self._offset:
            self._cut(self.end)

    def _cut(self, end: WalPosition) -> None:
        file = os.open(self.path(end.segment), os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(file, end.offset)
            self._system.sync_data(file, self.path(end.segment))
        finally:
            os.close(file)
        self._sizes[end.segment] = end.offset
