"""The one store of a node: the Raft entries, hard states, checkpoints and indexes of all its groups.

The problem: every turn of the node must write what all groups changed, atomically, and make it durable once, without
stopping the event loop, and without moving the bytes of events more often than they must be. So a batch is appended to
the write-ahead log (write_ahead_log.py) as one record, and goes into RocksDB's memory without a log of its own; a large
entry is only in the write-ahead log, and RocksDB remembers its location.

The rules never broken:
 - RocksDB never makes durable what the write-ahead log has not made durable before: it is flushed by this file only,
   right after a sync, with writers held off. What it lacks after a crash is applied again from the write-ahead log,
   from the position that it holds itself (it changes in the same atomic batch as everything else).
 - `write` runs on the loop, `sync` in a worker thread, where it waits without the GIL.
 - a store that is not whole is not opened, and an error while reading is never "there is nothing": the library's own
   `items()` ends *silently* at a damaged block, so `scan` asks for the status after the last row.
 - nothing outside this package knows any of this.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from rocksdict import Rdict, ReadOptions, WriteBatch, WriteOptions

from node.storage import data_directory, data_versions, disk_space
from node.storage.durable_length import DurableLength, check_manifest
from node.storage.errors import StorageDamaged, StorageError, SyncFailed, translate
from node.storage.fsync import forget_cached_in, make_directory
from node.storage.node_identity import IDENTITY_KEY, NodeIdentity
from node.storage.rocksdb_options import DiskOptions, rocks_options
from node.storage.row_format import (
    POSITION_KEY,
    ROWS_START,
    decode_position,
    encode_position,
    is_entry,
    row_here,
    row_there,
    value_of,
)
from node.storage.wal import segment_usage
from node.storage.wal.compaction import CompactionResult, Room, WalCompactor
from node.storage.wal.record_format import DELETE, PUT, Op, Record, Values, WalPosition
from node.storage.wal.write_ahead_log import WriteAheadLog
from node.storage.wal.write_path import DRAINED_FROM_BYTES, WritePath
from node.storage.write_batch import StoreBatch

_NO_WAL = WriteOptions()
setattr(_NO_WAL, "disable_wal", True)  # noqa: B010  the library's stub calls it a method

ROW_OVERHEAD_BYTES = 64
"""Bytes counted for a key in RocksDB's memory, roughly: to know when to flush without asking."""

FLUSH_WAIT_S = 10.0
"""Time that `reclaim` waits for a table of some MiB; a disk that takes longer gets its space back the next time."""
FLUSH_POLL_S = 0.005


class Store:
    """The store, as `cluster.raft.Disk`. Open it with the identity of the node; close it, or use it in a `with`."""

    def __init__(
        self,
        path: Path | str,
        identity: NodeIdentity,
        options: DiskOptions | None = None,
        *,
        version: int | None = None,
    ) -> None:
        """`version`: of what is written into a new directory; None, in tests and tools: that of data without the
        file (`data_versions.py`)."""
        self.path = Path(path)
        self._version = version
        self.identity = identity  # as stored, once it is open
        self._options = options or DiskOptions()
        self._db: Rdict | None = None
        self._wal: WriteAheadLog | None = None
        self._watermark: DurableLength | None = None
        self._failed: StorageError | None = None  # why it takes no more writes
        self._lock = threading.RLock()  # writers, flushes and the bookkeeping of space
        self._removing = threading.Lock()  # files; taken before the other one
        self._closing = False
        self._syncing = ThreadPoolExecutor(1, thread_name_prefix="store-sync")
        self._synced = WalPosition(0, 0)
        self._sync_asked = False
        self._memory_bytes = 0
        self._switched: WalPosition = WalPosition(0, 0)  # up to where RocksDB was flushed, or is being
        self._since_switch = 0
        try:
            make_directory(self.path)
            self._owner = data_directory.take_lock(self.path)
        except OSError as error:
            raise translate(error, self.path) from error
        try:
            self._open(identity)
        except StorageError as error:
            self._failure(error)
            self.close()
            raise
        except Exception as error:  # the library raises plain Exception
            failure = self._failure(error)
            self.close()
            raise failure from error

    # ------------------------------------------------------------ opening

    def _open(self, identity: NodeIdentity) -> None:
        complete = data_directory.is_complete(self.path)
        self._watermark = DurableLength(self.path / "synced", self.path / "db")
        mark = self._watermark.read(complete=complete)
        if complete:
            check_manifest(mark, self.path / "db")
            forget_cached_in(self.path / "db")
        self._db = Rdict(str(self.path / "db"), rocks_options(self._options))
        self._wal = WriteAheadLog(self.path / "journal", write_path=self._write_path())
        self._compactor = WalCompactor(self._wal, self._options)
        self._recover(self._db, self._wal, mark.wal)
        self._wal.begin()
        self._verify(complete)
        self._check_identity(identity, complete)
        self.sync()
        if not complete:
            self._watermark.sync()
            if self._version is not None:
                data_versions.write(self.path, data_versions.DataVersions(self._version, self._version))
            data_directory.finish(self.path)

    def _write_path(self) -> WritePath | None:
        if self._options.direct == "never":
            return None
        return WritePath(is_synced=self._options.direct == "synced")

    def _recover(self, db: Rdict, wal: WriteAheadLog, durable: WalPosition) -> None:
        """Apply to RocksDB what it had only in memory; the wal is the truth."""
        stored = db.get(POSITION_KEY)
        start = decode_position(stored) if stored is not None else WalPosition(0, 0)
        self._switched = start
        self._compactor.load(db, start)
        for record in wal.scan(start, durable):
            if record.start < start:
                self._note_again(record)
            else:
                self._apply(record.ops, record.values, record.end)
                self._since_switch += record.end.offset - record.start.offset
        self._compactor.seal_all()

    def _verify(self, complete: bool) -> None:
        """Read the store through, up to a bound: checksums of blocks and values are checked on the way."""
        left = self._options.verify_at_open_bytes
        for key, value in self.scan(b"", b"\xff" * 10):
            if not complete and key != IDENTITY_KEY:  # the only one that is written before the directory is complete
                raise StorageDamaged(self.path, "its file `format` is missing, but it holds data")
            left -= len(key) + len(value)
            if left < 0:
                return

    def _check_identity(self, identity: NodeIdentity, complete: bool) -> None:
        stored = self.get(IDENTITY_KEY)
        if stored is not None:
            self.identity = NodeIdentity.decode(stored, self.path)
            identity.require(self.identity, self.path)
        elif complete:
            raise StorageDamaged(self.path, "the node's identity is gone")
        else:
            self._keep_identity(identity.drawn())

    def _keep_identity(self, identity: NodeIdentity) -> None:
        batch = self.batch()
        batch.put(IDENTITY_KEY, identity.encode())
        self.write(batch)
        self.identity = identity

    def count_start(self, remembered: int) -> None:
        """Count a start, right before this process speaks to others: synced when this returns. Raises OlderCopy."""
        self.identity.require_original(self.path)
        self._keep_identity(self.identity.started(remembered))
        self.sync()

    def note_copy(self, found: str) -> None:
        """Note that peers know a later state of these data, for all later processes. Synced when this returns."""
        self._keep_identity(self.identity.found_a_copy(found))
        self.sync()

    def note_removed(self) -> None:
        """Note that the node was removed from its cluster, for all later processes. Synced when this returns."""
        self._keep_identity(self.identity.found_removed())
        self.sync()

    def _failure(self, error: Exception) -> StorageError:
        """Note an error that is final: no write is taken any more, since nobody knows what the files hold now."""
        with self._lock:
            if self._failed is None:
                self._failed = translate(error, self.path)
                if isinstance(self._failed, SyncFailed):
                    self._note(self._failed)
            return self._failed

    def _note(self, error: SyncFailed) -> None:
        if self._watermark is not None and not error.noted:
            try:
                self._watermark.note_failure(error)
            except OSError as trouble:  # fsync.py tells what a restart then does
                error.add_note(f"this could not be noted there: {trouble}")

    def _parts(self) -> tuple[Rdict, WriteAheadLog]:
        if self._db is None or self._wal is None:
            raise StorageError(f"the store in {self.path} is closed")
        return self._db, self._wal

    # ------------------------------------------------------------ reading

    def get(self, key: bytes) -> bytes | None:
        db, wal = self._parts()
        try:
            row: bytes | None = db.get(key)
            return row if row is None or not is_entry(key) else value_of(row, wal)
        except StorageError:
            raise
        except Exception as error:
            raise translate(error, self.path) from error

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        db, wal = self._parts()
        start = max(start, ROWS_START)
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        try:
            rows = db.iter(bounds)
            step = rows.prev if reverse else rows.next
            if reverse:
                rows.seek_to_last()
            else:
                rows.seek(start)
            while rows.valid():
                key = rows.key()
                if reverse and key < start:  # the library's lower bound does not bind
                    return
                yield key, value_of(rows.value(), wal) if is_entry(key) else rows.value()
                step()
            rows.status()
        except StorageError:
            raise
        except Exception as error:
            raise translate(error, self.path) from error

    # ------------------------------------------------------------ writing

    def batch(self) -> StoreBatch:
        return StoreBatch()

    def write(self, batch: object) -> None:
        """Write a batch of this store, and consume it. After a DiskFull it takes no more writes until it was opened
        again."""
        assert isinstance(batch, StoreBatch), "a batch of another store"
        db, wal = self._parts()
        with self._lock:
            if self._failed is not None:
                raise self._failed
            try:
                ops = batch.ops
                if self._compactor.has_ops():
                    ops = self._compactor.ops_before(db) + ops
                if not ops:
                    return
                begin = wal.end
                if begin.offset >= self._options.segment_bytes:
                    ops = self._change_segment(wal) + ops
                    begin = wal.end
                values = wal.segment.append(ops)
                end = wal.end
                self._apply(ops, values, end)
                if self._options.direct == "drained" and wal.waiting_bytes < DRAINED_FROM_BYTES:
                    wal.drain()
                self._since_switch += end.offset - begin.offset
                self._keep_bounds(end)
            except StorageError as error:
                self._failure(error)
                raise
            except Exception as error:
                raise self._failure(error) from error

    def warm(self, most_bytes: int) -> None:
        """Read what the next `move` of so many bytes will move, so that it need not wait for the disk. Blocks: call it
        from a worker thread."""
        db, _ = self._parts()
        with self._lock:
            moves = self._compactor.upcoming()
        try:
            self._compactor.warm(db, moves, most_bytes)
        except Exception as error:
            raise self._failure(error) from error

    def move(self, most_bytes: int) -> int:
        """Move live entries out of thin segments, of about so many bytes at most, while space is short. Returns what
        that cost, in bytes; 0: nothing waits to be moved."""
        db, _ = self._parts()
        batch = self.batch()
        with self._lock:  # from the look at a row until it is written, nobody trims it
            try:
                batch.ops, cost = self._compactor.moved(db, most_bytes)
            except Exception as error:
                raise self._failure(error) from error
            self.write(batch)
        return cost

    def _change_segment(self, wal: WriteAheadLog) -> list[Op]:
        sealed = wal.end.segment
        wal.begin()
        return self._compactor.seal(sealed)

    def _apply(self, ops: list[Op], values: Values, end: WalPosition) -> None:
        """Apply the ops to RocksDB's memory, with the position after the record: atomic, visible at once."""
        rows = WriteBatch(raw_mode=True)
        put = rows.put
        spans = self._compactor.spans(values.segment)
        separate = self._options.separate_bytes
        offset, inline = values.offset, 0
        for (kind, key, value), length, checksum in zip(ops, values.lengths, values.checksums, strict=True):
            if kind != PUT:
                if kind == DELETE:
                    rows.delete(key)
                else:
                    rows.delete_range(key, value)
                    if (owner := segment_usage.emptied_owner(key, value)) is not None:
                        self._compactor.emptied(owner)
            elif not is_entry(key):
                put(key, value)
                inline += length
            elif length < separate:
                put(key, row_here(value))
                inline += length
            else:
                put(key, row_there(values.segment, offset, length, checksum))
                segment_usage.note(spans, key, length)
            offset += length
        put(POSITION_KEY, encode_position(end))
        assert self._db is not None
        self._db.write(rows, _NO_WAL)
        self._memory_bytes += inline + ROW_OVERHEAD_BYTES * (len(ops) + 1)

    def _note_again(self, record: Record) -> None:
        """Note the entries of a record that RocksDB has in its tables already."""
        spans = self._compactor.spans(record.values.segment)
        for (kind, key, _), length in zip(record.ops, record.values.lengths, strict=True):
            if kind == PUT and length >= self._options.separate_bytes and is_entry(key):
                segment_usage.note(spans, key, length)

    @property
    def must_drain(self) -> bool:
        """True if records wait that a killed process would lose, though its death is to cost nothing."""
        return self._options.direct == "drained" and self._wal is not None and self._wal.waiting_bytes > 0

    def drain(self) -> None:
        """Write all records out, so that they survive the death of the process. Blocks, if not for long."""
        _, wal = self._parts()
        if self._failed is not None:
            raise self._failed
        try:
            wal.drain()
        except Exception as error:
            raise self._failure(error) from error

    def sync(self) -> None:
        _, wal = self._parts()
        if self._failed is not None:
            raise self._failed
        try:
            self._note_synced(wal.sync())
            if self._flush_is_due(1):
                self._flush(wal)
        except StorageError as error:
            self._failure(error)
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _note_synced(self, reached: WalPosition) -> None:
        with self._lock:
            if self._failed is not None:  # meanwhile, in another thread
                raise self._failed
            if reached > self._synced:
                self._synced = reached
                assert self._watermark is not None
                self._watermark.write(reached)

    # ------------------------------------------------------------ bounds

    def _flush_is_due(self, factor: int) -> bool:
        limits = self._options
        return self._memory_bytes > factor * limits.memtable_bytes or self._since_switch > factor * limits.replay_bytes

    def _flush(self, wal: WriteAheadLog) -> None:
        """Let RocksDB write its memory into a table. Everything in it must be durable in the write-ahead log."""
        with self._lock:
            reached = wal.sync()  # what came since the last one; nearly nothing
            self._note_synced(reached)
            assert self._db is not None
            self._db.flush(False)
            self._switched = reached
            self._memory_bytes = self._since_switch = 0

    def _keep_bounds(self, end: WalPosition) -> None:
        """Bound the page cache and RocksDB's memory, for a node that never asks for a sync."""
        if self._flush_is_due(4):
            assert self._wal is not None
            self._flush(self._wal)
        elif not self._sync_asked and self._unsynced(end) > self._options.unsynced_bytes:
            self._sync_asked = True
            self._syncing.submit(self._sync_in_background)

    def _unsynced(self, end: WalPosition) -> int:
        same = self._synced.segment == end.segment
        return end.offset - (self._synced.offset if same else 0)

    def _sync_in_background(self) -> None:
        try:
            self.sync()
        except StorageError:
            return  # it is remembered: the next write raises it
        finally:
            self._sync_asked = False

    # ------------------------------------------------------------ space

    def free_bytes(self) -> int:
        """Bytes that the file system still has for this process's user."""
        return disk_space.free_bytes(self.path)

    def capacity_bytes(self) -> int:
        """Bytes of the file system that the store is on."""
        return disk_space.capacity_bytes(self.path)

    def used_bytes(self) -> int:
        """Bytes that the files of the store take."""
        return disk_space.used_bytes(self.path)

    def garbage_bytes(self) -> int:
        """Bytes of the write-ahead log that are dead, and are given back when space gets short."""
        with self._lock:
            return self._compactor.garbage_bytes()

    def is_short(self) -> bool:
        """Tell whether the file system gets full, so that little of the store may be dead."""
        return self._compactor.is_short(self._room())

    def free_share(self) -> float:
        """Share of the file system that is free."""
        return self.free_bytes() / max(1, self.capacity_bytes())

    def _room(self) -> Room:
        return Room(self.free_bytes(), self.capacity_bytes())

    def reclaim(self) -> CompactionResult:
        """Give the space of trimmed entries back to the file system. Blocks: call it from a worker thread, at times.

        Removes segments without live entries. When too much of the rest is dead, it also picks thin segments; their
        live entries then move along with the writes that follow, or by `move` while space is short, and the next call
        removes them.
        """
        db, wal = self._parts()
        try:
            with self._lock:
                sealed = self._compactor.sealed()
            needed = self._compactor.first_needed(db, sealed)
            with self._lock:
                unneeded = self._compactor.unneeded(needed, sealed)
            self.sync()  # a trim or move that is not durable must not cost what it made unneeded
            if unneeded and unneeded[-1] >= self._switched.segment:
                self._flush(wal)
            flushed = self._switched
            if self._tables_written(db):
                self._compactor.flushed(flushed)
            with self._removing:
                return self._remove(unneeded, wal)
        except StorageError as error:
            self._failure(error)
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _remove(self, unneeded: list[int], wal: WriteAheadLog) -> CompactionResult:
        """Remove segments, without holding up writers; a close waits for one file."""
        with self._lock:
            removable = self._compactor.removable(unneeded)
        erased: list[int] = []
        for segment in removable:
            if self._closing:
                break
            wal.erase(segment)
            erased.append(segment)
        room = self._room()
        with self._lock:
            return self._compactor.removed(erased, room)

    @staticmethod
    def _tables_written(db: Rdict) -> bool:
        """Wait, within a bound, until the flushes that were begun are done. The library has nothing to wait on."""
        deadline = time.monotonic() + FLUSH_WAIT_S
        while db.property_int_value("rocksdb.num-immutable-mem-table"):
            if time.monotonic() > deadline:
                return False
            time.sleep(FLUSH_POLL_S)
        return True

    def stats(self) -> dict[str, int]:
        """Numbers for the node's status."""
        db, wal = self._parts()
        segments = wal.segments
        with self._lock:
            live = self._compactor.live_bytes()
        return {
            "journal_bytes": sum(segments.values()),
            "journal_segments": len(segments),
            "journal_live_bytes": live,
            "table_bytes": int(db.property_int_value("rocksdb.live-sst-files-size") or 0),
            "memory_bytes": int(db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0),
            "background_errors": int(db.property_int_value("rocksdb.background-errors") or 0),
            "free_bytes": self.free_bytes(),
        }

    # ------------------------------------------------------------ end

    def close(self) -> None:
        """Close the store. Idempotent. Everything is durable and in tables afterwards, unless a write has failed: that
        was reported."""
        self._closing = True
        self._syncing.shutdown(wait=True)
        with self._removing, self._lock:
            reported = self._failed is not None
            db, self._db = self._db, None
            wal, self._wal = self._wal, None
            try:
                if wal is not None and wal.end.segment:
                    _sync_before_closing(wal, db)
                if db is not None:
                    db.close()
            except SyncFailed as error:
                self._failure(error)
                if not reported:
                    raise
            except Exception as error:
                if not reported:
                    raise self._failure(error) from error
            finally:
                if wal is not None:
                    wal.close()
                if self._watermark is not None:
                    self._watermark.close()
                    self._watermark = None
                if self._owner >= 0:
                    os.close(self._owner)
                    self._owner = -1

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sync_before_closing(wal: WriteAheadLog, db: Rdict | None) -> None:
    """Sync the write-ahead log before RocksDB closes, which flushes its memory."""
    try:
        wal.sync()
    except (SyncFailed, OSError):
        if db is not None:
            _abandon(db)
        raise


def _abandon(db: Rdict) -> None:
    """Keep RocksDB's object for ever: it flushes its memory also when the object is freed. It must not when the
    write-ahead log cannot be synced: its tables would know more than the write-ahead log has. The process soon ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
