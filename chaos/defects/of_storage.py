"""Deliberate faults of storage, replication and reads."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from pathlib import Path
from typing import Any

from cluster.raft import RaftGroup, RaftOptions
from cluster.raft.pysyncobj.commit_quorum import MatchIndex
from holdfast.records.record_batch import Numbering, OpenBatch, RecordBatch
from node.listener.incoming.incoming_link import IncomingLink
from node.partition import appender
from node.partition.partition_replica import PartitionReplica
from node.partition.reader import LocalReader
from node.storage import SyncFailed, durable_length, fsync
from node.storage.wal.segment_writer import DirectWriter

RARE = 29
"""One call in so many is faulty: often enough for a run of seconds, rarely enough for the run to go on."""


def nothing_is_synced() -> None:
    """Skip syncs, so that acknowledged events are only in the page cache."""

    def none(file: int, path: Path) -> None:
        del file, path

    _everywhere(none)


def failed_syncs_are_swallowed() -> None:
    """Ignore failed syncs: the node goes on and acknowledges events that the disk has lost.

    It does not write its watermark of synced bytes either, which would reveal the loss at the next start."""
    sync = fsync.sync_data

    def hushed(file: int, path: Path) -> None:
        with contextlib.suppress(SyncFailed):
            sync(file, path)

    _everywhere(hushed)
    durable_length.DurableLength.write = lambda self, wal: None  # type: ignore[method-assign]


def _everywhere(function: Any) -> None:
    fsync.System.sync_data = staticmethod(function)
    durable_length.sync_data = function
    drain = DirectWriter.drain

    def asking_for_a_sync(self: DirectWriter, durable_to: int | None = None) -> bool:
        del durable_to
        return drain(self)

    DirectWriter.drain = asking_for_a_sync  # type: ignore[method-assign]


def acknowledged_by_one() -> None:
    """Let a leader assume that its followers have everything."""

    def everything(self: MatchIndex, member: object) -> int:
        del self, member
        return 1 << 60

    MatchIndex.__getitem__ = everything  # type: ignore[method-assign]


def reads_are_not_confirmed() -> None:
    """Answer reads of the log's end without ReadIndex, and let a leader never check that it still has a quorum."""

    def answer(self: RaftGroup, done: Any) -> None:
        done(self.applied_index)

    begin = RaftOptions.__init__

    def never_checking(self: RaftOptions, *values: Any, **named: Any) -> None:
        begin(self, *values, **{**named, "quorum_check_s": 1e9})

    RaftGroup.read_index = answer  # type: ignore[method-assign]
    RaftOptions.__init__ = never_checking  # type: ignore[method-assign]


def the_end_is_one_short() -> None:
    """Report an end of the log that lacks its last event."""
    told = PartitionReplica.info_now

    def short(self: PartitionReplica) -> Any:
        info = told(self)
        latest = info.latest_offset
        return dataclasses.replace(info, latest_offset=None if latest is None or latest == 0 else latest - 1)

    PartitionReplica.info_now = short  # type: ignore[method-assign]


def _rarely(poll: Any, change: Any) -> Any:
    counter = itertools.count(1)

    def polled(self: LocalReader, *arguments: int) -> list[RecordBatch]:
        found: list[RecordBatch] = poll(self, *arguments)
        return change(self, found) if found and next(counter) % RARE == 0 else found

    return polled


def events_are_passed_over() -> None:
    """Drop the first event of what is sent to a reader, once in a while."""

    def without_the_first(_: LocalReader, found: list[RecordBatch]) -> list[RecordBatch]:
        first = found[0]
        return [first.part(1, len(first)), *found[1:]] if len(first) > 1 else found[1:]

    LocalReader.poll = _rarely(LocalReader.poll, without_the_first)  # type: ignore[method-assign]


def bytes_are_damaged() -> None:
    """Change a byte of an event before it is sent, once in a while."""

    def flipped(_: LocalReader, found: list[RecordBatch]) -> list[RecordBatch]:
        """Change a byte and seal the batch again, since the old checksum would reveal it."""
        first = found[0]
        message = bytearray(first.messages()[0])
        message[-20] ^= 1
        piece = OpenBatch()
        piece.extend([bytes(message), *first.messages()[1:]], bodies=False)
        spoiled = piece.seal()
        if first.head.numbering is not None and first.publisher is not None:
            numbers = Numbering(*first.publisher)
            spoiled = spoiled.numbered(numbers, transactional=first.head.transaction is not None)
        return [spoiled.placed(first.offset, first.head.time_ms, 0, len(first)), *found[1:]]

    LocalReader.poll = _rarely(LocalReader.poll, flipped)  # type: ignore[method-assign]


def records_are_reversed() -> None:
    """Store the events of an entry in reverse order."""
    join = appender.join

    def turned(batch: RecordBatch) -> RecordBatch:
        piece, numbering = OpenBatch(), batch.head.numbering
        piece.extend(batch.records()[::-1], bodies=batch.are_bodies)
        found = piece.seal(digests=batch.digests).stamped(batch.head.time_ms)
        transactional = batch.head.transaction is not None
        return found if numbering is None else found.numbered(numbering, transactional=transactional)

    appender.join = lambda batches: join(map(turned, batches))


def places_are_told_wrong() -> None:
    """Acknowledge an offset that is one too high, once in a while."""
    settle = IncomingLink._settle_row

    def moved(self: IncomingLink, deliveries: Any, at: int, count: int, offset: int, partition: Any) -> None:
        settle(self, deliveries, at, count, offset + (offset % 7 == 0), partition)

    IncomingLink._settle_row = moved  # type: ignore[method-assign]
