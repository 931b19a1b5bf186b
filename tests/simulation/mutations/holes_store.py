"""Mutations of the log store, the write-ahead log and of the barrier between writes and messages. What they are for:
catalogue.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from cluster.raft import Turn
from cluster.raft.log.log_store import LogStore
from cluster.raft.multiraft import MultiRaft
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.log_view import LazySlice
from node.storage.wal import record_format, segment_writer
from node.storage.wal import write_ahead_log as store_wal
from node.storage.wal.record_format import Record, WalPosition
from tests.simulation.world.disk import SimDisk
from tests.simulation.world.files import JournalDisk
from tests.simulation.world.nodes import SimNode
from tests.simulation.world.platter import Platter

# ---------------------------------------------------------------- the logs and the barrier


@contextlib.contextmanager
def no_sync() -> Iterator[None]:
    """A6: the sync returns without having synced."""
    with mock.patch.object(SimDisk, "end_sync", return_value=None):
        yield


@contextlib.contextmanager
def forgotten_vote() -> Iterator[None]:
    """A8: a restarted node remembers its term but not its vote."""
    load = LogStore._load

    def load_without_vote(journal: LogStore) -> None:
        load(journal)
        journal.vote = 0

    with mock.patch.object(LogStore, "_load", load_without_vote):
        yield


@contextlib.contextmanager
def forgotten_term() -> Iterator[None]:
    """PSO#201: a restarted node takes its term from its last entry."""
    load = LogStore._load

    def load_without_term(journal: LogStore) -> None:
        load(journal)
        journal.term, journal.vote = journal.last_term, 0

    with mock.patch.object(LogStore, "_load", load_without_term):
        yield


@contextlib.contextmanager
def commit_before_own_sync() -> Iterator[None]:
    """A9: the leader counts itself before its own disk has the entry. Only a group of one can commit so."""

    def entries(core: Core, fromIDx: int, count: int | None = None, maxSizeBytes: Any = None) -> Any:
        log = core._log
        end = log.last + 1 if count is None else min(log.last + 1, fromIDx + count)
        return LazySlice(log, fromIDx, end) if fromIDx >= log.base_index else []

    with mock.patch.object(Core, "_SyncObj__getEntries", entries):
        yield


@contextlib.contextmanager
def hard_state_apart() -> Iterator[None]:
    """A7: what callbacks propose inside a turn is written without the hard state that goes with it."""

    def write(multiraft: MultiRaft) -> None:
        if multiraft._batches:
            batches, multiraft._batches = multiraft._batches, {}
            batch = multiraft._disk.batch()
            for one in batches.values():
                one.pour_into(batch)
            multiraft._disk.write(batch)

    with mock.patch.object(MultiRaft, "_write", write):
        yield


@contextlib.contextmanager
def messages_before_sync() -> Iterator[None]:
    """A6, A9: what a turn promises leaves before its sync."""

    def promise_first(node: SimNode, turn: Turn) -> None:
        begun = node.disk.begin_sync()
        node.after(node.schedule.now + 0.005, lambda: node.disk.end_sync(begun))
        node._release(turn)

    with mock.patch.object(SimNode, "_sync", promise_first):
        yield


@contextlib.contextmanager
def messages_before_drain() -> Iterator[None]:
    """What a turn promises leaves before its writes are with the system, where that is all the durability."""
    sync = SimNode._sync

    def promise_first(node: SimNode, turn: Turn) -> None:
        if turn.needs_sync or not node.disk.must_drain:
            sync(node, turn)
            return
        begun = node.disk.begin_sync()
        node.after(node.schedule.now + 0.005, lambda: node.disk.end_drain(begun))
        node._release(turn)

    with mock.patch.object(SimNode, "_sync", promise_first):
        yield


@contextlib.contextmanager
def votes_not_synced() -> Iterator[None]:
    """A6: a vote asks for no sync."""
    with mock.patch.object(MultiRaft, "_note_vote", return_value=None):
        yield


@contextlib.contextmanager
def checkpoint_too_new() -> Iterator[None]:
    """A checkpoint claims one entry more than its state has seen."""
    put = LogStore.put_checkpoint

    def claim_more(journal: LogStore, index: int, state: bytes) -> None:
        put(journal, min(index + 1, journal.commit), state)

    with mock.patch.object(LogStore, "put_checkpoint", claim_more):
        yield


@contextlib.contextmanager
def no_checksums() -> Iterator[None]:
    """Damage in the files of the store looks like data."""
    with (
        mock.patch.object(store_wal, "crc32c", return_value=0),
        mock.patch.object(segment_writer, "crc32c", return_value=0),
        mock.patch.object(record_format, "crc32c", return_value=0),
    ):
        yield


@contextlib.contextmanager
def no_watermark() -> Iterator[None]:
    """A write-ahead log that lost its durable end is taken for one with a torn tail."""
    scan = store_wal.WriteAheadLog.scan

    def scan_anything(journal: store_wal.WriteAheadLog, start: WalPosition, durable: WalPosition) -> Iterator[Record]:
        return scan(journal, start, WalPosition(0, 0))

    with mock.patch.object(store_wal.WriteAheadLog, "scan", scan_anything):
        yield


@contextlib.contextmanager
def first_turn_not_synced() -> Iterator[None]:
    """What a process writes first, when it has just read its store, asks for no sync."""
    sync = SimNode._sync
    synced: dict[SimNode, int] = {}

    def sync_but_the_first(node: SimNode, turn: Turn) -> None:
        if not turn.needs_sync or synced.get(node) == node.life:
            sync(node, turn)
        else:
            synced[node] = node.life
            node._release(turn)

    with mock.patch.object(SimNode, "_sync", sync_but_the_first):
        yield


@contextlib.contextmanager
def directory_not_synced() -> Iterator[None]:
    """A segment's bytes are durable, and its name is not."""
    with mock.patch.object(Platter, "sync_directory", return_value=None):
        yield


@contextlib.contextmanager
def seal_not_synced() -> Iterator[None]:
    """A segment is left behind with what was written to it since the last sync."""
    with mock.patch.object(store_wal.WriteAheadLog, "_sync", lambda wal: wal.end):
        yield


@contextlib.contextmanager
def watermark_before_sync() -> Iterator[None]:
    """The watermark says what is only about to be durable."""

    def begin(disk: JournalDisk) -> WalPosition:
        disk._marks.append(disk._opened.end)
        return disk._opened.end

    with mock.patch.object(JournalDisk, "begin_sync", begin):
        yield


@contextlib.contextmanager
def records_say_nothing_of_durability() -> Iterator[None]:
    """An old watermark, and a durable record that has become unreadable, look like a torn tail."""
    encode = record_format.encode_record_head

    def encode_without(marker: bytes, meta: bytes, data_bytes: int, sequence: int, durable: int) -> bytes:
        return encode(marker, meta, data_bytes, sequence, 0)

    with mock.patch.object(segment_writer, "encode_record_head", encode_without):
        yield


@contextlib.contextmanager
def failed_sync_not_noted() -> Iterator[None]:
    """The next process takes for durable what the page cache has."""
    with mock.patch.object(
        SimDisk, "_failure_noted", property(lambda disk: False, lambda disk, noted: None), create=True
    ):
        yield
