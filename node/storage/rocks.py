"""The one store of a node: a RocksDB with the Raft entries, hard states, checkpoints and indexes of all its groups.

The problem: every turn of the node must write what all groups changed, atomically, and make it durable once, without
stopping the event loop. The rules never broken:
 - `write` runs on the loop, without a sync; `sync` runs in a worker thread. rocksdict keeps the GIL during a synced
   write, and releases it in `flush_wal`: so the loop goes on reading sockets while the disk works.
 - a store that is not whole is not opened, and an error while reading is never "there is nothing": the library's own
   iterators (`items()`) end *silently* at a damaged block, so `scan` asks for the status after the last row.
 - nothing outside this file knows that it is RocksDB.

Layout of the directory: `format` (written last when a directory is made), `lock`, `synced` (see watermark.py), `db/`.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rocksdict import BottommostLevelCompaction, CompactOptions, Rdict, ReadOptions, WriteBatch

from node.storage.errors import AlreadyOpen, DiskFull, ForeignData, StorageDamaged, StorageError, translate
from node.storage.identity import IDENTITY_KEY, NodeIdentity
from node.storage.tuning import MIB, DiskOptions, rocks_options
from node.storage.watermark import Watermark, check_files, check_sequence

FORMAT = b"holdfast-storage 1\n"

OWNER_BYTES = 9
"""Kind and group: the head of every key. Deleted ranges are remembered per owner until their space is given back."""

GARBAGE_SHARE = 0.5
"""Blob files are rewritten when more than this share of them is dead: each live byte is then moved at most about once
per byte that comes free ..."""
GARBAGE_FLOOR_BYTES = 128 * MIB
"""... and not for less than this: it is not worth the disk's time."""
GARBAGE_STEP_SHARE = 0.25
"""One `reclaim` rewrites the oldest quarter of the blob files at most: bounded work, and room needed, per step."""


class RocksBatch:
    """What one turn writes. `put` and `delete` are the library's own methods: no Python between them and the caller."""

    __slots__ = ("delete", "deleted", "inner", "put")

    def __init__(self) -> None:
        self.inner = WriteBatch(raw_mode=True)
        self.put = self.inner.put
        self.delete = self.inner.delete
        self.deleted: list[tuple[bytes, bytes]] | None = None

    def delete_range(self, start: bytes, end: bytes) -> None:
        if start >= end:  # the library takes it for an error of the whole batch
            return
        self.inner.delete_range(start, end)
        if self.deleted is None:
            self.deleted = []
        self.deleted.append((start, end))


@dataclass(frozen=True, slots=True)
class Reclaimed:
    ranges: int  # deleted ranges whose tables were compacted
    rewrote_blobs: bool
    more: bool  # another call would find work


class RocksDisk:
    """`cluster.raft.Disk` on RocksDB. Open it with the identity of the node; close it, or use it in a `with`."""

    def __init__(self, path: Path | str, identity: NodeIdentity, options: DiskOptions | None = None) -> None:
        self.path = Path(path)
        self._options = options or DiskOptions()
        self._db: Rdict | None = None
        self._failed: StorageError | None = None  # why it takes no more writes
        self._watermark: Watermark | None = None
        self._maintenance = threading.Lock()  # one `reclaim` at a time, none during `close`
        self._deleted: dict[bytes, tuple[bytes, bytes]] = {}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
        except OSError as error:
            raise translate(error, self.path) from error
        try:
            self._open(identity)
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------ opening

    def _take_lock(self) -> int:
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise AlreadyOpen(f"{self.path} is in use by another process; stop that one first") from error
        return lock

    def _open(self, identity: NodeIdentity) -> None:
        complete = self._check_format()
        directory = self.path / "db"
        try:
            self._watermark = Watermark(self.path / "synced", directory)
            mark = self._watermark.read()
            if complete and mark is None:
                raise StorageDamaged(self.path / "synced", "it is empty or was removed")
            if mark is not None:
                check_files(mark, directory)
            self._db = Rdict(str(directory), rocks_options(self._options))
        except StorageError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise translate(error, self.path) from error
        if mark is not None:
            check_sequence(mark, self._db.latest_sequence_number(), directory)
        self._verify()
        self._check_identity(identity, complete)
        self.sync()  # the first mark of this process: the library has just replaced files
        if not complete:
            self._finish_creation()

    def _check_format(self) -> bool:
        """Whether the directory was made completely before; refuses one that is not ours or lacks its main file."""
        marker, directory = self.path / "format", self.path / "db"
        if marker.exists():
            if marker.read_bytes() != FORMAT:
                raise ForeignData(f"{marker} names a format that this version does not know; use the version it names")
            if not (directory / "CURRENT").exists():
                raise StorageDamaged(directory, "its file CURRENT is missing")
            return True
        strange = [entry.name for entry in self.path.iterdir() if entry.name not in ("lock", "synced", "db")]
        if strange:
            raise ForeignData(f"{self.path} is not empty and no data directory of a node: it holds {strange[0]!r}")
        if directory.exists() and not (directory / "CURRENT").exists():
            data = [entry.name for entry in directory.iterdir() if entry.suffix in (".sst", ".blob")]
            if data:
                raise StorageDamaged(directory, f"it holds {data[0]} but neither `format` nor CURRENT")
        return False

    def _verify(self) -> None:
        """Read the store through, up to a bound: checksums of blocks and blobs are checked on the way."""
        left = self._options.verify_at_open_bytes
        for key, value in self.scan(b"", b"\xff" * (OWNER_BYTES + 1)):
            left -= len(key) + len(value)
            if left < 0:
                return

    def _check_identity(self, identity: NodeIdentity, complete: bool) -> None:
        stored = self.get(IDENTITY_KEY)
        if stored is not None:
            identity.require(NodeIdentity.decode(stored, self.path), self.path)
        elif complete:
            raise StorageDamaged(self.path, "the node's identity is gone")
        else:
            batch = self.batch()
            batch.put(IDENTITY_KEY, identity.encode())
            self.write(batch)

    def _finish_creation(self) -> None:
        try:
            with open(self.path / "format", "xb") as marker:
                marker.write(FORMAT)
                marker.flush()
                os.fsync(marker.fileno())
            for directory in (self.path, self.path.parent):
                handle = os.open(directory, os.O_RDONLY)
                os.fsync(handle)
                os.close(handle)
        except OSError as error:
            raise translate(error, self.path) from error

    # ------------------------------------------------------------ Disk

    def _failure(self, error: Exception) -> StorageError:
        """A write failed: the library takes none any more, and every later error text hides the first reason."""
        if self._failed is None:
            self._failed = translate(error, self.path)
        return self._failed

    @property
    def _store(self) -> Rdict:
        if self._db is None:
            raise StorageError(f"the store in {self.path} is closed")
        return self._db

    def get(self, key: bytes) -> bytes | None:
        store = self._store
        try:
            value: bytes | None = store.get(key)
        except Exception as error:
            raise translate(error, self.path) from error
        return value

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        try:
            rows = self._store.iter(bounds)
            step = rows.prev if reverse else rows.next
            if reverse:
                rows.seek_to_last()
            else:
                rows.seek(start)
            while rows.valid():
                key = rows.key()
                if reverse and key < start:  # the library's lower bound does not bind
                    return
                yield key, rows.value()
                step()
            rows.status()
        except StorageError:
            raise
        except Exception as error:
            raise translate(error, self.path) from error

    def batch(self) -> RocksBatch:
        return RocksBatch()

    def write(self, batch: RocksBatch) -> None:
        """Consumes the batch. Raises DiskFull: then the store takes no more writes until it was opened again."""
        store = self._store
        try:
            store.write(batch.inner)
        except Exception as error:
            raise self._failure(error) from error
        if batch.deleted is not None:
            self._remember_deleted(batch.deleted)

    def sync(self) -> None:
        store, watermark = self._store, self._watermark
        assert watermark is not None
        try:
            generation = store.property_int_value("rocksdb.current-super-version-number") or 0
            mark = watermark.before_sync(store.latest_sequence_number(), generation)
            store.flush_wal(True)
            watermark.after_sync(mark)
        except Exception as error:
            raise self._failure(error) from error

    # ------------------------------------------------------------ space

    def free_bytes(self) -> int:
        """What the file system still has for this process's user."""
        try:
            system = os.statvfs(self.path)
        except OSError as error:
            raise translate(error, self.path) from error
        return system.f_bavail * system.f_frsize

    def used_bytes(self) -> int:
        """What the files of the store take."""
        total = 0
        with os.scandir(self.path / "db") as entries:
            for entry in entries:
                try:
                    total += entry.stat().st_size
                except FileNotFoundError:  # removed by a compaction meanwhile
                    continue
        return total

    def _remember_deleted(self, ranges: list[tuple[bytes, bytes]]) -> None:
        for start, end in ranges:
            owner = start[:OWNER_BYTES]
            known = self._deleted.get(owner)
            self._deleted[owner] = (min(start, known[0]), max(end, known[1])) if known else (start, end)

    def reclaim(self) -> Reclaimed:
        """Give the space of deleted ranges back to the file system. Blocks: call it from a worker thread, now and then.

        Under a steady load of writes compactions do it anyway; this is for the log that was trimmed and then rests, and
        for blob files in which a long-lived group keeps a few entries alive among the dead ones of others.
        """
        with self._maintenance:
            store = self._store
            deleted, self._deleted = self._deleted, {}
            try:
                for start, end in deleted.values():
                    store.compact_range(start, end, _compaction(force=False))
                rewrite = self._garbage_is_due(store)
                if rewrite:
                    _rewrite_oldest_blobs(store)
                return Reclaimed(len(deleted), rewrite, rewrite and self._garbage_is_due(store))
            except Exception as error:
                raise translate(error, self.path) from error

    @staticmethod
    def _garbage_is_due(store: Rdict) -> bool:
        garbage = store.property_int_value("rocksdb.live-blob-file-garbage-size") or 0
        total = store.property_int_value("rocksdb.live-blob-file-size") or 0
        return garbage > max(GARBAGE_FLOOR_BYTES, GARBAGE_SHARE * total)

    def stats(self) -> dict[str, int]:
        """Numbers for the node's status."""
        store = self._store
        names = {
            "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
            "table_bytes": "rocksdb.live-sst-files-size",
            "blob_bytes": "rocksdb.live-blob-file-size",
            "blob_garbage_bytes": "rocksdb.live-blob-file-garbage-size",
            "background_errors": "rocksdb.background-errors",
            "write_stopped": "rocksdb.is-write-stopped",
        }
        numbers = {name: int(store.property_int_value(key) or 0) for name, key in names.items()}
        return numbers | {"free_bytes": self.free_bytes()}

    # ------------------------------------------------------------ end

    def close(self) -> None:
        """Idempotent. What was written is flushed, unless a write has failed: that was reported then."""
        with self._maintenance:
            db, self._db = self._db, None
            try:
                if db is not None:
                    db.close()
            except Exception as error:
                if self._failed is None:
                    raise translate(error, self.path) from error
            finally:
                if self._watermark is not None:
                    self._watermark.close()
                    self._watermark = None
                if self._lock >= 0:
                    os.close(self._lock)
                    self._lock = -1

    def __enter__(self) -> RocksDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _compaction(*, force: bool) -> CompactOptions:
    options = CompactOptions()
    options.set_exclusive_manual_compaction(False)  # flushes and other compactions go on
    if force:
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
    return options


def _rewrite_oldest_blobs(store: Rdict) -> None:
    store.set_options(
        {
            "enable_blob_garbage_collection": "true",
            "blob_garbage_collection_age_cutoff": str(GARBAGE_STEP_SHARE),
        }
    )
    try:
        store.compact_range(None, None, _compaction(force=True))
    finally:
        store.set_options({"enable_blob_garbage_collection": "false"})


__all__ = ["DiskFull", "Reclaimed", "RocksBatch", "RocksDisk"]
