"""Watermark of the store: its certainly durable length, which shows when a file lost its end.

The problem: a write-ahead log that lost its end looks like one whose last write was torn by a kill, and RocksDB opens
with a MANIFEST that lost its end as if the tables named there had never been. (Measured: cut in half, it opens as an
*empty* store.) The write-ahead log can make up for that only while it still has what the tables held. What is missing
may have been acknowledged; a replica without it can lose it for the cluster.

The rule: after every sync, the position in the write-ahead log that it covered, and the durable length of the MANIFEST,
are written here; a store with less is not opened. The numbers are written in place without a sync of their own: after a
loss of power they may say too little, never too much, since they are written after the sync that they speak of. Records
of the write-ahead log make up for what is missing then (wal/recovery.py).

A failed sync is noted here, too, for later processes. The note need not survive a loss of power: data that the disk has
not is gone then, and missed by the other numbers here. And it must not need anything new of a disk that fails: it
overwrites a block of a file that is there and open, in the page cache, which is the very thing that later processes
must not trust. (Rejected: a file for it, which needs a name and a block, and cannot be had on a full disk.)

Rejected for the numbers: comparing with the peers at start (a node alone must know that it is damaged), and a second
sync.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from node.storage.errors import StorageDamaged, SyncFailed
from node.storage.fsync import sync_data, sync_directory
from node.storage.wal.record_format import WalPosition

_RECORD = struct.Struct(">QQQQI")

_FAILED = b"failed sync: "
_BETWEEN = ": "
NOTE_BYTES = 1000
"""Most bytes of a note: it stays within the block that is there."""


class Mark(NamedTuple):
    wal: WalPosition
    manifest: int  # its number; every start of RocksDB makes a new one
    manifest_bytes: int


NOTHING = Mark(WalPosition(0, 0), 0, 0)


class DurableLength:
    """Keeps the mark of the store whose RocksDB is in `database`."""

    def __init__(self, path: Path, database: Path) -> None:
        self._path = path
        self._database = database
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._manifest = Path()
        self._durable = (0, -1)  # number and length of the manifest

    def read(self, *, complete: bool) -> Mark:
        """Read the mark. One of a store that was never complete may say anything, and is ignored.

        Raises:
            SyncFailed: an earlier process has noted it.
        """
        data = os.pread(self._file, NOTE_BYTES, 0)
        if data.startswith(_FAILED):
            path, _, reason = data[len(_FAILED) :].decode(errors="replace").partition(_BETWEEN)
            raise SyncFailed(path, f"{reason}; it was noted in {self._path}", noted=True)
        if not complete:
            return NOTHING
        if len(data) != _RECORD.size:
            raise StorageDamaged(self._path, f"it has {len(data)} bytes instead of {_RECORD.size}")
        segment, offset, manifest, manifest_bytes, checksum = _RECORD.unpack(data)
        if checksum != crc32c(data[:-4]):
            raise StorageDamaged(self._path, "its checksum does not match")
        return Mark(WalPosition(segment, offset), manifest, manifest_bytes)

    def write(self, wal: WalPosition) -> None:
        """Note that the write-ahead log is durable up to there."""
        data = _RECORD.pack(*wal, *self._look_at_manifest(), 0)[:-4]
        os.pwrite(self._file, data + crc32c(data).to_bytes(4, "big"), 0)

    def note_failure(self, error: SyncFailed) -> None:
        """Note a failed sync for all later processes; `write` is not called any more. Raises OSError: it could not be
        noted."""
        note = _FAILED + f"{error.path}{_BETWEEN}{error.reason}".encode()
        os.pwrite(self._file, note[:NOTE_BYTES], 0)
        os.fsync(self._file)

    def sync(self) -> None:
        """Sync the file, only when the store is made: later a number that is too old does no harm, a file without any
        does."""
        sync_data(self._file, self._path)

    def _look_at_manifest(self) -> tuple[int, int]:
        try:
            length = os.stat(self._manifest).st_size if self._manifest.name else -1
        except FileNotFoundError:
            length = -1
        if length < 0:  # the first look, or RocksDB began a new one
            number = current_manifest(self._database)
            self._manifest = manifest_path(self._database, number)
            sync_directory(self._database)  # it may have been named a moment ago, or by a process that was killed
            self._durable = (number, -1)
            length = self._manifest.stat().st_size
        if length != self._durable[1]:
            # A background thread appends to it and syncs later: only what is durable by now may be claimed. An error
            # that RocksDB's own sync was told of is not told here any more; RocksDB then takes no more writes.
            file = os.open(self._manifest, os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync_data(file, self._manifest)
            finally:
                os.close(file)
            self._durable = (self._durable[0], length)
        return self._durable

    def close(self) -> None:
        os.close(self._file)


def manifest_path(database: Path, number: int) -> Path:
    return database / f"MANIFEST-{number:06}"


def current_manifest(database: Path) -> int:
    text = (database / "CURRENT").read_text(encoding="ascii", errors="replace")
    number = text[9:].rstrip("\n")
    if not text.startswith("MANIFEST-") or not number.isdigit():
        raise StorageDamaged(database / "CURRENT", f"it names no manifest: {text[:40]!r}")
    return int(number)


def check_manifest(mark: Mark, database: Path) -> None:
    """Check the MANIFEST before RocksDB opens: afterwards it has put a new one in its place."""
    number = current_manifest(database)
    if number < mark.manifest:
        raise StorageDamaged(database / "CURRENT", f"it names manifest {number}, but {mark.manifest} was in force")
    path = manifest_path(database, number)
    if not path.exists():
        raise StorageDamaged(path, "it is missing")
    length = path.stat().st_size
    if number == mark.manifest and length < mark.manifest_bytes:
        raise StorageDamaged(path, f"it has {length} bytes, but {mark.manifest_bytes} were durable before")
