"""Writing a segment past the page cache, right to the disk.

The problem: data in large pieces is costly on its way through the page cache. The kernel copies it into pages that it
first has to find, block by block, and at a sync looks for them again, block by block. Written directly, the same bytes
go from one buffer of ours to the device, and a sync finds little to do. `write_path.py` says when that is worth it, and
has the figures; the rest goes through the page cache from here as well. The price: a reader of data that is no longer
in the node's memory reads the disk, and not the page cache.

The rules:
 - added data is in no file before `drain`; until then it is read from here;
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
import mmap
import os
import threading
import time
from itertools import chain
from pathlib import Path

from node.storage.errors import SyncFailed
from node.storage.wal.page_cache_write import write_all
from node.storage.wal.write_path import WritePath

BLOCK_BYTES = 4096
"""Bytes of a block: no disk asks for more, and mapped memory begins at a multiple of it."""

BUFFER_BYTES = 1 << 22
"""Most bytes that the disk is given at a time. After each time the thread waits for the interpreter, which may take
longer than the disk did: so a usual amount goes in one write."""

_ZEROS = bytes(BLOCK_BYTES)


class DirectWriter:
    """Writer of one segment. `add` runs on the loop, the rest in any thread."""

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
