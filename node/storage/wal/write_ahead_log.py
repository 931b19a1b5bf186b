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
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from node.storage.errors import StorageDamaged, SyncFailed
from node.storage.fsync import System
from node.storage.wal.record_format import Record, SegmentHead, ValueLocation, WalPosition, new_marker
from node.storage.wal.recovery import Recovery
from node.storage.wal.segment_writer import SegmentWriter
from node.storage.wal.write_path import WritePath

AHEAD_BYTES = 4 << 20
"""Bytes that the system reads ahead of a reader that goes from one value of a segment to the next. Columns of events of
1 KiB that no cache has: 1.7 of the rate without; with 2 MiB it was 1.4, with 8 no more than with 4."""
MAX_OPEN_SEGMENTS = 64
"""Descriptors for reading old segments; readers of old data stay in one for a while."""


class WriteAheadLog:
    """Segments of one directory. `scan` them first; then `begin` a new one; then `append` to that `segment`."""

    def __init__(self, directory: Path, system: System | None = None, *, write_path: WritePath | None = None) -> None:
        """Open the directory. `write_path`: for all segments, see `SegmentWriter`; it is not used where the file system
        takes nothing past the page cache."""
        self.directory = directory
        self._system = system or System()
        directory.mkdir(exist_ok=True)
        self._reading: OrderedDict[int, int] = OrderedDict()
        self._reading_lock = threading.Lock()  # `erase` is called by another thread than `read`
        self._segment: SegmentWriter | None = None
        self._found, self._sequence = WalPosition(0, 0), 0  # the end, and its number, as the scan found them
        self._sync_lock = threading.Lock()  # the current segment, its syncs and their outcome belong together
        self._sync_failed: SyncFailed | OSError | None = None
        self._write_path = write_path
        self._read_ahead: dict[int, tuple[int, int]] = {}  # segment -> (end of the last value, end read ahead)
        self._sizes = {number: self.path(number).stat().st_size for number in self._numbers()}  # but for `segment`

    def path(self, number: int) -> Path:
        return self.directory / f"{number:08}.seg"

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("*.seg"))

    @property
    def segments(self) -> dict[int, int]:
        """Segments' numbers to lengths, in order; the last is the one being written."""
        segment = self._segment
        return self._sizes if segment is None else {**self._sizes, segment.number: segment.offset}

    @property
    def segment(self) -> SegmentWriter:
        """The segment being written. Raises OSError: none was begun."""
        if self._segment is None:
            raise OSError(errno.EBADF, f"{self.directory}: no segment was begun")
        return self._segment

    @property
    def end(self) -> WalPosition:
        return self._found if self._segment is None else self._segment.end

    # ------------------------------------------------------------ writing

    def begin(self) -> None:
        """Start a new segment. Everything before it is durable when this returns, and so is its name."""
        with self._sync_lock:
            last, end = self._segment, self.end
            if last is not None:
                self._sync()
            sequence = self._sequence if last is None else last.sequence
            head, number = SegmentHead(new_marker(), sequence + 1, end.offset), end.segment + 1
            segment = SegmentWriter(self.path(number), number, head, self._system, self._write_path)
            if not segment.is_direct:
                self._write_path = None
            if last is not None:
                last.end_writing()  # all that it had is durable
                self._sizes[last.number] = last.offset
                with self._reading_lock:
                    self._keep_open(last.number, last.file)
            self._segment = segment

    def sync(self) -> WalPosition:
        """Make everything durable that was appended before the call: up to the position that is returned. For any
        thread. After an error each further call raises it again: the system tells only the first of those that ask."""
        with self._sync_lock:
            return self._sync()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of records that no file has yet: a killed process loses them."""
        return self._segment.waiting_bytes if self._segment is not None else 0

    def drain(self) -> None:
        """Write everything appended before the call to its file, if not durably. For any thread."""
        self.segment.drain()

    def _sync(self) -> WalPosition:
        if self._sync_failed is not None:
            raise self._sync_failed
        try:
            return self.segment.sync()
        except (SyncFailed, OSError) as error:
            self._sync_failed = error
            raise

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
        segment = self._segment
        if segment is None or place.segment != segment.number:
            return None
        return segment.find(place.offset, place.length)

    def _descriptor(self, number: int) -> int:
        segment = self._segment
        if segment is not None and number == segment.number:
            return segment.file
        with self._reading_lock:
            file = self._reading.get(number)
            if file is None:
                file = os.open(self.path(number), os.O_RDONLY | os.O_CLOEXEC)
                self._keep_open(number, file)
            else:
                self._reading.move_to_end(number)
            return file

    def _keep_open(self, number: int, file: int) -> None:
        """Keep the descriptor of a segment for readers; if there are too many, close the one that was used longest ago.
        The caller has the lock."""
        self._reading[number] = file
        if len(self._reading) > MAX_OPEN_SEGMENTS:
            os.close(self._reading.popitem(last=False)[1])

    def erase(self, number: int) -> None:
        """Remove the file of a segment in which nothing is needed. For any thread; it may take long. `forget` must
        follow.

        The directory is synced each time, so that the disk takes back one segment at once: a file system that discards
        what was deleted holds up every sync for as long as that takes, for 1.6 GB a quarter of a second.
        """
        assert number < self.end.segment, "the segment being written stays"
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
        if self._segment is not None:
            self._segment.end_writing()
            os.close(self._segment.file)
            self._segment = None

    # ------------------------------------------------------------ recovery

    def scan(self, start: WalPosition, durable: WalPosition) -> Iterator[Record]:
        """Iterate over the records of the segments from `start.segment` on, those before `start` too; then the
        write-ahead log ends after the last of them. A tail after it was torn by a crash and is cut off.

        Raises:
            StorageDamaged: a record is missing that is not the very end, or that was durable.
        """
        recovery = Recovery(self.directory, self._sizes, self._descriptor, self._system)
        yield from recovery.records(start, durable)
        self._found, self._sequence = recovery.end
        for number in [number for number in self._sizes if number > self._found.segment and number >= start.segment]:
            self.path(number).unlink()  # its head was not finished: see `Recovery`
            self._sizes.pop(number)
        if self._found.segment and self._sizes[self._found.segment] > self._found.offset:
            self._cut(self._found)

    def _cut(self, end: WalPosition) -> None:
        file = os.open(self.path(end.segment), os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(file, end.offset)
            self._system.sync_data(file, self.path(end.segment))
        finally:
            os.close(file)
        self._sizes[end.segment] = end.offset
