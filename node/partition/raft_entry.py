"""One entry of a partition's log that holds events: record batches, one after the other.

    kind u8 = 0 (a regular Raft entry) | tag u8 = 6 | record batches

The leader gathers batches into an entry as they came, and nothing is encoded again. In the log a batch has no place of
its own: offset and final time are decided when the entry is applied, and stand in the offset index.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.records.record_batch import Damaged, RecordBatch, read_batch

ENTRY_REGULAR = 0
TAG_RECORD_BATCHES = 6
_LEAD = bytes((ENTRY_REGULAR, TAG_RECORD_BATCHES))

MAX_BATCHES = 256
"""Batches in one entry: `apply` looks at each head, some microseconds, within the leader's turn."""


def join(batches: Iterable[RecordBatch]) -> bytes:
    """The entry that holds these batches."""
    pieces: list[bytes | memoryview] = [_LEAD]
    for batch in batches:
        pieces += batch.pieces()
    return b"".join(pieces)


def batches_in(entry: bytes) -> tuple[RecordBatch, ...]:
    """The batches of an entry; their heads are checked, and the records are not looked at.

    Raises:
        Damaged: one of them is no batch as it stands in a log. The entry is refused whole.
    """
    batches: list[RecordBatch] = []
    at = len(_LEAD)
    while at < len(entry) or not batches:
        batch, at = read_batch(entry, at)
        head = batch.head
        if (head.base_offset, head.first, head.events) != (-1, 0, head.record_count) or head.time_ms < 0:
            raise Damaged(f"a batch of {head.record_count} records says its place, and at {head.time_ms} ms")
        batches.append(batch)
        if len(batches) > MAX_BATCHES:
            raise Damaged(f"an entry of more than {MAX_BATCHES} batches")
    return tuple(batches)


def batch_at(entry: bytes, at: int) -> RecordBatch:
    """The batch that begins at `entry[at]`, checked whole. Raises Damaged."""
    batch, _ = read_batch(entry, at)
    batch.check_content()
    return batch
