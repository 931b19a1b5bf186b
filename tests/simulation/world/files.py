"""A disk on the production journal: real segment files, the real recovery, and what can happen to files.

RocksDB is left out: what it holds is what the journal says, so a dictionary filled by `WriteAheadLog.scan` stands for
it; its own files are the subject of tests/unit/storage. A loss of power tears the last record: the file ends, or holds
zeros, or other bytes, from some place after what was synced. A turned bit lies in what was durable, and the rule is
that it never passes unnoticed: an open store refuses the value that it reads, and a closed one is not opened any more.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from node.storage.row_format import is_entry
from node.storage.store import StoreBatch
from node.storage.wal.record_format import DELETE, PUT, SEGMENT_HEAD_BYTES, ValueLocation, WalPosition
from node.storage.wal.write_ahead_log import WriteAheadLog
from tests.simulation.world.disk import SimDisk

SEGMENT_BYTES = 16 * 1024
"""Small, so that schedules change segments."""
SEPARATE_BYTES = 100
"""Entries from this size on are read from the file whenever they are wanted, as in production those of a KiB."""

MEMORY = Path("/dev/shm")
"""A file system in memory, if the machine has one: the schedules say what is durable, not the kernel."""


class JournalDisk(SimDisk):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="holdfast-simulation-", dir=MEMORY if MEMORY.is_dir() else None))
        self._places: dict[bytes, ValueLocation] = {}
        self._durable = self._mark = WalPosition(0, 0)
        self._journal: WriteAheadLog | None = None

    # ---- life

    def open(self) -> None:
        self._values.clear()
        self._keys.clear()
        self._places.clear()
        journal = WriteAheadLog(self.path)
        for record in journal.scan(WalPosition(0, 0), self._mark):
            self._apply(record.ops, record.values.segment, record.values.offset, record.values.checksums)
        journal.begin()
        self._journal = journal
        self._durable = journal.end  # the recovery syncs what it reads
        self._mark = journal.end

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        shutil.rmtree(self.path, ignore_errors=True)

    def crash(self, randomness: random.Random, *, lose_unsynced: bool) -> None:
        journal, self._journal = self._journal, None
        if journal is None:
            return
        end = journal.end
        journal.close()
        if lose_unsynced:
            floor = self._durable.offset if self._durable.segment == end.segment else SEGMENT_HEAD_BYTES
            if floor < end.offset:
                _tear(journal.path(end.segment), randomness, floor, end.offset)

    # ---- what hosts use

    def get(self, key: bytes) -> bytes | None:
        place = self._places.get(key)
        return self._values.get(key) if place is None else self._opened.read(place)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for key, value in super().scan(start, end, reverse=reverse):
            place = self._places.get(key)
            yield key, value if place is None else self._opened.read(place)

    def batch(self) -> StoreBatch:  # type: ignore[override]
        return StoreBatch()

    def write(self, batch: StoreBatch) -> None:  # type: ignore[override]
        if not batch.ops:
            return
        journal = self._opened
        if journal.end.offset >= SEGMENT_BYTES:
            journal.begin()
        values = journal.append(batch.ops)
        self._apply(batch.ops, values.segment, values.offset, values.checksums)

    @property
    def _opened(self) -> WriteAheadLog:
        assert self._journal is not None, "the disk of a node that is down"
        return self._journal

    def _apply(self, ops: list[tuple[int, bytes, bytes]], segment: int, offset: int, checksums: list[int]) -> None:
        for (kind, key, value), checksum in zip(ops, checksums, strict=True):
            if kind == PUT:
                if is_entry(key) and len(value) >= SEPARATE_BYTES:
                    self._put(key, b"")
                    self._places[key] = ValueLocation(segment, offset, len(value), checksum)
                else:
                    self._put(key, value)
                    self._places.pop(key, None)
            else:
                end = key + b"\0" if kind == DELETE else value
                for doomed in self._keys[bisect_left(self._keys, key) : bisect_left(self._keys, end)]:
                    self._put(doomed, None)
                    self._places.pop(doomed, None)
            offset += len(value)

    # ---- what schedules use

    def begin_sync(self) -> WalPosition:  # type: ignore[override]
        return self._opened.end

    def end_sync(self, begun: WalPosition) -> None:  # type: ignore[override]
        self.syncs += 1
        if not self.ignores_sync:
            self._durable = max(self._durable, begun)
        self._mark = max(self._mark, begun)

    def flip(self, randomness: random.Random) -> bool:
        segment = randomness.randint(1, self._mark.segment) if self._mark.segment else 0
        path = self.path / f"{segment:08}.seg"
        if not segment:
            return False
        size = self._mark.offset if segment == self._mark.segment else os.path.getsize(path)
        at = randomness.randrange(size)
        with open(path, "r+b") as file:
            file.seek(at)
            old = file.read(1)[0]
            file.seek(at)
            file.write(bytes([old ^ 1 << randomness.randrange(8)]))
        self.damaged = True
        return True


def _tear(path: Path, randomness: random.Random, floor: int, end: int) -> None:
    """Of the bytes from `floor` to `end`, which were not synced, some are lost."""
    at = randomness.randint(floor, end)
    kind = randomness.choice(("cut", "zeros", "noise", "hole"))
    if kind == "cut":
        os.truncate(path, at)
        return
    size = end - at if kind != "hole" else randomness.randint(0, end - at)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(randomness.randbytes(size) if kind == "noise" else bytes(size))
