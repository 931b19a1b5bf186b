"""How far the store was certainly durable: a record beside it that shows when a file of it was cut off.

The problem: a write-ahead log or MANIFEST that was cut short looks like one whose last write was torn by a kill, and
the library opens it without what stood after the cut, in silence. (Measured: a MANIFEST cut in half opens as an
*empty* store; one that lost its last record opens without a table, but with the log that follows: a hole in the
middle.) What is missing may have been acknowledged; a replica without it can lose it for the cluster.

The rule: after every sync, the sequence number and the file lengths that it covered are written here, and a store that
ends before them is not opened. The record is written in place without a sync of its own: after a loss of power it may
say too little, never too much, since it is written after the sync that it speaks of.

Rejected: comparing with the peers at start (a node alone must know that it is damaged); a second sync; the library's
own tracking of logs in the MANIFEST (rocksdict does not offer it, and it trusts the MANIFEST).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import crc32c

from node.storage.errors import StorageDamaged

_HEAD = struct.Struct(">QQQI")  # sequence, number and length of the MANIFEST, how many logs follow
_LOG = struct.Struct(">QQ")  # number, length
_CRC = struct.Struct(">I")
RECORD_BYTES = 512
"""One sector: it is written whole or not at all."""
MAX_LOGS = (RECORD_BYTES - _HEAD.size - _CRC.size) // _LOG.size


@dataclass(frozen=True, slots=True)
class Mark:
    sequence: int
    manifest: int
    manifest_bytes: int
    logs: dict[int, int]  # number -> length

    def encode(self) -> bytes:
        newest = sorted(self.logs.items())[-MAX_LOGS:]
        body = _HEAD.pack(self.sequence, self.manifest, self.manifest_bytes, len(newest))
        body += b"".join(_LOG.pack(*log) for log in newest)
        body = body.ljust(RECORD_BYTES - _CRC.size, b"\0")
        return body + _CRC.pack(crc32c.crc32c(body))

    @classmethod
    def decode(cls, data: bytes, path: Path) -> Mark:
        if len(data) != RECORD_BYTES:
            raise StorageDamaged(path, f"it has {len(data)} bytes instead of {RECORD_BYTES}")
        sequence, manifest, manifest_bytes, count = _HEAD.unpack_from(data)
        end = _HEAD.size + count * _LOG.size
        if count > MAX_LOGS or _CRC.unpack(data[-_CRC.size :])[0] != crc32c.crc32c(data[: -_CRC.size]):
            raise StorageDamaged(path, "its checksum does not match")
        return cls(sequence, manifest, manifest_bytes, dict(_LOG.iter_unpack(data[_HEAD.size : end])))


class Watermark:
    """Keeps the mark of the store in `directory`. `before_sync` and `after_sync` frame every sync of its log."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._path = path
        self._directory = directory
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._generation = -1
        self._manifest: tuple[int, int] = (0, -1)  # number, durable length
        self._logs: list[tuple[int, str]] = []

    def read(self) -> Mark | None:
        """None: the file is new."""
        data = os.pread(self._file, RECORD_BYTES + 1, 0)
        return Mark.decode(data, self._path) if data else None

    def before_sync(self, sequence: int, generation: int) -> Mark:
        """What the sync that begins now will cover. `generation` changes when the store changes its set of files."""
        if generation != self._generation:
            self._look_at_files()
            self._generation = generation
        logs = {}
        for number, path in self._logs:
            try:
                logs[number] = os.stat(path).st_size
            except FileNotFoundError:  # its memtable was flushed meanwhile
                self._generation = -1
        return Mark(sequence, *self._manifest, logs)

    def after_sync(self, mark: Mark) -> None:
        os.pwrite(self._file, mark.encode(), 0)

    def _look_at_files(self) -> None:
        names = os.listdir(self._directory)
        self._logs = [(int(name[:-4]), str(self._directory / name)) for name in names if name.endswith(".log")]
        number = current_manifest(self._directory)
        path = self._directory / f"MANIFEST-{number:06}"
        length = path.stat().st_size
        if (number, length) != self._manifest:
            # A background thread appends to it and syncs later: only what is durable by now may be claimed.
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)
            self._manifest = (number, length)

    def close(self) -> None:
        os.close(self._file)


def current_manifest(directory: Path) -> int:
    text = (directory / "CURRENT").read_text(encoding="ascii", errors="replace")
    if not (text.startswith("MANIFEST-") and text[9:].rstrip("\n").isdigit()):
        raise StorageDamaged(directory / "CURRENT", f"it names no manifest: {text[:40]!r}")
    return int(text[9:])


def check_files(mark: Mark, directory: Path) -> None:
    """Refuse a store whose files end before the mark. Called before the library opens, and thereby changes, them."""
    number = current_manifest(directory)
    path = directory / f"MANIFEST-{number:06}"
    if number < mark.manifest:
        raise StorageDamaged(directory / "CURRENT", f"it names manifest {number}, but {mark.manifest} was in force")
    if not path.exists():
        raise StorageDamaged(path, "it is missing")
    length = path.stat().st_size
    if number == mark.manifest and length < mark.manifest_bytes:
        raise StorageDamaged(path, f"it has {length} bytes, but {mark.manifest_bytes} were durable before")
    for log, size in mark.logs.items():
        path = directory / f"{log:06}.log"
        # A missing one was flushed and removed since, or it was the newest: then `check_sequence` finds out.
        if path.exists() and path.stat().st_size < size:
            raise StorageDamaged(path, f"it has {path.stat().st_size} bytes, but {size} were durable before")


def check_sequence(mark: Mark, reached: int, directory: Path) -> None:
    """The same for the whole, after the library recovered it."""
    if reached < mark.sequence:
        raise StorageDamaged(directory, f"it ends at change {reached}, but change {mark.sequence} was durable before")
