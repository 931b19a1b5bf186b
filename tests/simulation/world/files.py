"""A disk on the production journal: real segment files, the real recovery, and what can happen to files.

RocksDB is left out: what it holds is what the write-ahead log says, so a dictionary filled by its `scan` stands for it;
RocksDB's own files are the subject of tests/unit/storage. A loss of power leaves what platter.py says, and the
watermark, which is never synced, may be any older one. A turned bit lies in what was durable, and the rule is that it
never passes unnoticed: an open store refuses the value that it reads, and a closed one is not opened any more. With an
old watermark that can be asked of those bits only that a later durable record knows to be durable.
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
from tests.simulation.world.platter import Platter

SEGMENT_BYTES = 16 * 1024
"""Small, so that schedules change segments."""
SEPARATE_BYTES = 100
"""Entries from this size on are read from the file whenever they are wanted, as in production those of a KiB."""

MEMORY = Path("/dev/shm")
"""A file system in memory, if the machine has one: the schedules say what is durable, not the kernel."""


class SimulatedWal(WriteAheadLog):
    """Its syncs take time; the node's loop says when one is over."""

    def __init__(self, directory: Path, platter: Platter) -> None:
        super().__init__(directory, platter)
        self._platter = platter

    def sync_is_over(self, reached: WalPosition) -> None:
        if reached.segment == self.end.segment:  # else the change of segment has synced it
            self._platter.commit(self.path(reached.segment), reached.offset)
            self.segment.durable = max(self.segment.durable, reached.offset)

    @property
    def durable(self) -> int:
        return self.segment.durable


class JournalDisk(SimDisk):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="holdfast-simulation-", dir=MEMORY if MEMORY.is_dir() else None))
        self._platter = Platter()
        self._places: dict[bytes, ValueLocation] = {}
        self._marks = [WalPosition(0, 0)]  # the watermark's, since the last loss of power
        self._claims: list[tuple[WalPosition, WalPosition]] = []  # a record's end, and how far it says all is durable
        self._provable = WalPosition(0, 0)
        self._journal: SimulatedWal | None = None

    # ---- life

    @property
    def _mark(self) -> WalPosition:
        return self._marks[-1]

    def open(self) -> None:
        super().open()
        self._values.clear()
        self._keys.clear()
        self._places.clear()
        journal = SimulatedWal(self.path, self._platter)
        for record in journal.scan(WalPosition(0, 0), self._mark):
            self._apply(record.ops, record.values.segment, record.values.offset, record.values.checksums)
        journal.begin()
        self._journal = journal
        self._marks.append(journal.end)
        self._claims, self._provable = [], journal.end

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        shutil.rmtree(self.path, ignore_errors=True)

    def crash(self, randomness: random.Random, *, lose_unsynced: bool) -> None:
        journal, self._journal = self._journal, None
        if journal is None:
            return
        journal.close()
        if lose_unsynced:
            self._platter.lose_power(self.path, randomness)
            self._marks = [randomness.choice(self._marks) if self.stale_watermark else self._mark]

    # ---- what nodes use

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
        durable = WalPosition(journal.end.segment, journal.durable)
        values = journal.segment.append(batch.ops)
        self._claims.append((journal.end, durable))
        self._apply(batch.ops, values.segment, values.offset, values.checksums)

    @property
    def _opened(self) -> SimulatedWal:
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
        self.fail_if_told()
        if not self.ignores_sync:
            self._opened.sync_is_over(begun)
            while self._claims and self._claims[0][0] <= begun:
                self._provable = max(self._provable, self._claims.pop(0)[1])
        self._marks.append(max(self._mark, begun))

    def flip(self, randomness: random.Random) -> bool:
        last = self._provable if self.stale_watermark else self._mark
        segments = list(range(1, last.segment + (last.offset > SEGMENT_HEAD_BYTES)))
        if not segments:
            return False
        segment = randomness.choice(segments)
        path = self.path / f"{segment:08}.seg"
        at = randomness.randrange(last.offset if segment == last.segment else os.path.getsize(path))
        if self._provable < last and last.offset > SEGMENT_HEAD_BYTES and randomness.random() < 0.5:
            # Where the watermark alone tells.
            path = self.path / f"{last.segment:08}.seg"
            first = self._provable.offset if self._provable.segment == last.segment else SEGMENT_HEAD_BYTES
            at = randomness.randrange(first, last.offset)
        with open(path, "r+b") as file:
            file.seek(at)
            turned = file.read(1)[0] ^ 1 << randomness.randrange(8)
            file.seek(at)
            file.write(bytes([turned]))
        self._platter.flip(path, at, turned)
        self.damaged = True
        return True
