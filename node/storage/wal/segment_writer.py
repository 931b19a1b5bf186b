"""The segment that is being written: records, and how their bytes come to the disk, past the page cache or through it.

The problem: data in large pieces is costly on its way through the page cache. The kernel copies it into pages that it
first has to find, block by block, and at a sync looks for them again, block by block. Written directly, the same bytes
go from one buffer of ours to the device, and a sync finds little to do. `write_path.py` says when that is worth it, and
has the figures; the rest goes through the page cache from here as well. The price: a reader of data that is no longer
in the node's memory reads the disk, and not the page cache.

The rules:
 - data that may go past the page cache is in no file before `drain`; until then it is read from here;
 - a disk takes whole blocks, at multiples of a block. So each write begins with the block in which the one before
   ended, whose first bytes are the same again, and the end is filled with zeros, which are no record. Whatever a loss
   of power makes of that block, its durable part does not change;
 - after an error nothing is written any more;
 - `drain` makes nothing durable, unless it says so: else a sync must follow. The device may have a cache, and a file's
   length is no data.

Where one write is all that there is to sync, it is made durable by the same call (O_DSYNC). The thread that writes and
then syncs waits for the interpreter in between, at the leader and at each follower.
With that, and appends that leave before the leader writes them, three nodes had 1.15 of the rate with 15,000 events of
100 bytes under way, and half of them were confirmed after 18.0 and not 19.7 ms.

Rejected: O_DSYNC always (of several writes each would wait for the device's cache), and padding each record to whole
blocks (small ones would take a hundred times their size).
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import threading
import time
from itertools import chain
from pathlib import Path

from crc32c import crc32c

from node.storage.errors import SyncFailed
from node.storage.fsync import System
from node.storage.wal.record_format import (
    SEGMENT_HEAD_BYTES,
    Op,
    SegmentHead,
    Values,
    WalPosition,
    encode_op,
    encode_record_head,
    encode_segment_head,
)
from node.storage.wal.write_path import WritePath

log = logging.getLogger("holdfast.storage")

JOIN_BELOW_BYTES = 64 * 1024
"""Size up to which a record is joined and written in one piece: cheaper than a list of small buffers."""

MAX_BUFFERS = 1000
"""Buffers of one writev; the system takes 1024."""

BLOCK_BYTES = 4096
"""Bytes of a block: no disk asks for more, and mapped memory begins at a multiple of it."""

BUFFER_BYTES = 1 << 22
"""Most bytes that the disk is given at a time. After each time the thread waits for the interpreter, which may take
longer than the disk did: so a usual amount goes in one write."""

_ZEROS = bytes(BLOCK_BYTES)


class SegmentWriter:
    """One segment, from its creation until the next one begins. `append` runs on the loop, the rest in any thread; who
    calls `sync` sees to it that nobody else does."""

    def __init__(
        self, path: Path, number: int, head: SegmentHead, system: System, write_path: WritePath | None
    ) -> None:
        """Create the file. Its head and its name are durable then. With a `write_path` records wait in memory for
        `drain` or `sync`, which may write them past the page cache. Without one, they are in the page cache at once."""
        self.path, self.number = path, number
        self.offset = self.durable = SEGMENT_HEAD_BYTES  # ends of what was appended, and of what is durable
        self.sequence = head.first_sequence - 1  # of the last record
        self._system, self._marker = system, head.marker
        encoded = encode_segment_head(number, head)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        """Descriptor that goes through the page cache, for readers, too."""
        try:
            write_all(self.file, [encoded], 0)
            system.sync_data(self.file, path)
            system.sync_directory(path.parent)
            self._direct = None if write_path is None else _direct_writer(path, self.file, encoded, write_path)
        except (OSError, SyncFailed):
            os.close(self.file)
            raise

    @property
    def is_direct(self) -> bool:
        """True if something may be written past the page cache."""
        return self._direct is not None

    @property
    def end(self) -> WalPosition:
        return WalPosition(self.number, self.offset)

    def append(self, ops: list[Op]) -> Values:
        """Write one record, and return the locations of its values. It is in the page cache, or in memory until
        `drain`; not durable."""
        values = [value for _, _, value in ops]
        lengths, checksums = list(map(len, values)), list(map(crc32c, values))
        described = zip(ops, lengths, checksums, strict=True)
        meta = b"".join([encode_op(kind, key, length, checksum) for (kind, key, _), length, checksum in described])
        total = sum(lengths)
        head = encode_record_head(self._marker, meta, total, self.sequence + 1, self.durable)
        data_at = self.offset + len(head) + len(meta)
        end = data_at + total
        buffers = [head, meta, *values]
        if end - self.offset <= JOIN_BELOW_BYTES:
            buffers = [b"".join(buffers)]
        if self._direct is not None:
            self._direct.add(self.offset, buffers)
        else:
            write_all(self.file, buffers, self.offset)
        self.sequence += 1
        self.offset = end
        return Values(self.number, data_at, lengths, checksums)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of records that are not in the file yet: a killed process loses them."""
        return self._direct.waiting_bytes if self._direct is not None else 0

    def drain(self) -> None:
        """Write everything appended before the call to the file, if not durably."""
        if self._direct is not None:
            self._direct.drain()

    def sync(self) -> WalPosition:
        """Make everything durable that was appended before the call: up to the position that is returned."""
        reached = self.end
        if self._direct is None or not self._direct.drain(self.durable):
            self._system.sync_data(self.file, self.path)
        self.durable = reached.offset
        return reached

    def find(self, offset: int, length: int) -> bytes | None:
        """Value that was not written to the file yet; None: it was."""
        return None if self._direct is None else self._direct.find(offset, length)

    def end_writing(self) -> None:
        """Take no more records. The descriptor stays open for readers, who close it. What was not drained is gone."""
        if self._direct is not None:
            self._direct.close()


def _direct_writer(path: Path, file: int, head: bytes, write_path: WritePath) -> DirectWriter | None:
    try:
        return DirectWriter(path, file, head, write_path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        log.warning("%s: this file system takes nothing past the page cache: writes go through it", path.parent)
        return None


def write_all(file: int, buffers: list[bytes], at: int) -> None:
    """Write all buffers, one after the other from `at` on, into the page cache. Raises OSError."""
    for first in range(0, len(buffers), MAX_BUFFERS):
        part = buffers[first : first + MAX_BUFFERS]
        expected = sum(map(len, part))
        written = os.pwritev(file, part, at)
        if written < expected:
            rest = memoryview(b"".join(part))[written:]
            while rest:  # it fills up, or a signal came: writing on tells which
                written = os.pwrite(file, rest, at + expected - len(rest))
                rest = rest[written:]
        at += expected


class DirectWriter:
    """Writer past the page cache. `add` runs on the loop, the rest in any thread."""

    def __init__(self, path: Path, file: int, head: bytes, write_path: WritePath) -> None:
        """Prepare to write after `head`, which is in the file already. `file`: a descriptor of it that goes through the
        page cache, and outlives this.

        Raises:
            OSError: EINVAL if this file system takes nothing past the page cache.
        """
        assert len(head) < BLOCK_BYTES
        self._path = path
        self._cached = file
        self._write_path = write_path
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
        try:
            self._durable_file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT | os.O_DSYNC)
        except OSError:
            os.close(self._file)
            raise
        self._view = memoryview(mmap.mmap(-1, BUFFER_BYTES))
        self._view[: len(head)] = head
        self._block_at, self._filled = 0, len(head)  # where the buffer begins in the file, and how far it is filled
        self._waiting: list[tuple[int, list[bytes]]] = []  # places in the file, and the pieces for them
        self._failed: OSError | SyncFailed | None = None
        self._draining = threading.Lock()
        self._added_bytes = 0  # counted by the thread that adds
        self._drained_bytes = 0  # and by the one that drains

    def add(self, at: int, pieces: list[bytes]) -> None:
        """Add pieces; `at`: the end of the last ones."""
        self._waiting.append((at, pieces))
        self._added_bytes += sum(map(len, pieces))

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are in no file yet."""
        return self._added_bytes - self._drained_bytes

    def drain(self, durable_to: int | None = None) -> bool:
        """Write all that was added before the call into the file, where it survives the death of the process. Returns
        whether it is durable, too, which it may be if the file is `durable_to` there. For any thread.

        Raises:
            OSError, SyncFailed: then and ever after.
        """
        with self._draining:
            if self._failed is not None:
                raise self._failed
            waiting = self._waiting[:]  # more may come meanwhile
            if not waiting:
                return False
            pieces = list(chain.from_iterable(pieces for _, pieces in waiting))
            size = sum(map(len, pieces))
            is_direct = self._write_path.is_direct(size)
            fits = self._filled + size <= BUFFER_BYTES
            is_durable = is_direct and fits and durable_to is not None and waiting[0][0] <= durable_to
            try:
                if is_direct:
                    self._write_direct(pieces, size, durably=is_durable)
                else:
                    self._write_cached(pieces, size)
            except (OSError, SyncFailed) as error:
                self._failed = error
                raise
            del self._waiting[: len(waiting)]
            self._drained_bytes += size
            return is_durable

    def _write_direct(self, pieces: list[bytes], size: int, *, durably: bool) -> None:
        begun_s = time.monotonic()
        for piece in pieces:
            self._take(piece)
        if durably:
            self._write_durably()
        else:
            self._write_out(self._file)
        self._write_path.took(size, time.monotonic() - begun_s)

    def _write_durably(self) -> None:
        try:
            self._write_out(self._durable_file)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # final, too; a start takes for durable what it has read from the disk, and synced
            raise SyncFailed(self._path, str(error)) from error

    def _write_cached(self, pieces: list[bytes], size: int) -> None:
        """Write through the page cache. The system sees to it that its pages are clean once they are synced, and
        forgotten when their block is written past it."""
        write_all(self._cached, pieces, self._block_at + self._filled)
        filled = self._filled + size
        whole = filled // BLOCK_BYTES * BLOCK_BYTES
        tail = _last(pieces, filled - whole) if whole else bytes(self._view[: self._filled]) + b"".join(pieces)
        self._view[: len(tail)] = tail
        self._block_at, self._filled = self._block_at + whole, len(tail)

    def _take(self, piece: bytes) -> None:
        rest: bytes | memoryview = piece
        while len(rest) > (room := BUFFER_BYTES - self._filled):
            rest = memoryview(rest)
            self._view[self._filled :] = rest[:room]
            self._filled = BUFFER_BYTES
            self._write_out(self._file)
            rest = rest[room:]
        self._view[self._filled : self._filled + len(rest)] = rest
        self._filled += len(rest)

    def _write_out(self, file: int) -> None:
        """Write the buffer. A last block that is not full stays in it for the next write."""
        whole = self._filled // BLOCK_BYTES * BLOCK_BYTES
        rest = self._filled - whole
        size = whole
        if rest:
            size += BLOCK_BYTES
            self._view[self._filled : size] = _ZEROS[: BLOCK_BYTES - rest]
        done = 0
        while done < size:  # a short write ends with a whole block; the rest is written again
            written = os.pwritev(file, [self._view[done:size]], self._block_at + done)
            done += written // BLOCK_BYTES * BLOCK_BYTES
            if written < BLOCK_BYTES:
                raise OSError(errno.EIO, f"the disk took {written} bytes of a block of {BLOCK_BYTES}")
        self._view[:rest] = bytes(self._view[whole : self._filled])
        self._block_at, self._filled = self._block_at + whole, rest

    def find(self, at: int, length: int) -> bytes | None:
        """Waiting bytes for this place of the file, within one piece; None: they are in the file."""
        for start, pieces in reversed(self._waiting[:]):
            if start <= at:
                return _within(pieces, at - start, length)
        return None

    def close(self) -> None:
        """Close the files. Data that was not drained is gone."""
        if self._file >= 0:
            os.close(self._file)
            os.close(self._durable_file)
            self._file = -1
            self._view = memoryview(b"")  # the memory is freed with its last view


def _last(pieces: list[bytes], size: int) -> bytes:
    last: list[bytes] = []
    for piece in reversed(pieces):
        if size <= 0:
            break
        last.append(piece[-size:] if size < len(piece) else piece)
        size -= len(piece)
    return b"".join(reversed(last))


def _within(pieces: list[bytes], at: int, length: int) -> bytes | None:
    for piece in pieces:
        if at < len(piece):
            found = piece[at : at + length]
            return found if len(found) == length else None
        at -= len(piece)
    return None
