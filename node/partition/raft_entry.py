"""One entry of a partition's log that holds events: record batches, one after the other.

    kind u8 = 0 (a regular Raft entry) | tag u8 = 6 | record batches

The leader gathers batches into an entry as they came, and nothing is encoded again. In the log a batch has no place of
its own: offset and final time are decided when the entry is applied, and stand in the offset index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.records.record_batch import (
    DIGEST_BYTES,
    HEAD_BYTES,
    BatchHead,
    Damaged,
    RecordBatch,
    digests_in,
    read_batch,
    read_head,
)

ENTRY_REGULAR = 0
TAG_RECORD_BATCHES = 6
_LEAD = bytes((ENTRY_REGULAR, TAG_RECORD_BATCHES))

MAX_BATCHES = 256
"""Batches in one entry: `apply` looks at each head, some microseconds, within the leader's turn."""


class EntryHead(NamedTuple):
    """Head of a batch, with its place in the entry and its digests: replicas decide by these. The records stay in the
    entry, where nobody looks at them."""

    head: BatchHead
    at: int  # byte of the entry at which it begins
    size: int  # bytes of head and content
    digests: bytes  # DIGEST_BYTES of each record, or nothing

    @property
    def marks(self) -> bytes:
        """DIGEST_BYTES of each record, by which it is recognised when it comes again: its digest; without those the
        seal, so that a batch is known only as it was cut, and one of other records not at all."""
        return self.digests or self.head.seal.to_bytes(DIGEST_BYTES, "big") * self.head.record_count


def join(batches: Iterable[RecordBatch]) -> bytes:
    """The entry that holds these batches."""
    pieces: list[bytes | memoryview] = [_LEAD]
    for batch in batches:
        pieces += batch.pieces()
    return b"".join(pieces)


def read_entry(entry: bytes) -> tuple[EntryHead, ...]:
    """The heads of an entry's batches, checked.

    Raises:
        Damaged: one of them is no batch as it stands in a log. The entry is refused whole.
    """
    batches: list[EntryHead] = []
    at = len(_LEAD)
    while at < len(entry) or not batches:
        head, end = read_head(entry, at)
        if (head.base_offset, head.first, head.events) != (-1, 0, head.record_count) or head.time_ms < 0:
            raise Damaged(f"a batch of {head.record_count} records says its place, and at {head.time_ms} ms")
        batches.append(EntryHead(head, at, end - at, digests_in(entry, at + HEAD_BYTES, head)))
        at = end
        if len(batches) > MAX_BATCHES:
            raise Damaged(f"an entry of more than {MAX_BATCHES} batches")
    return tuple(batches)


def batches_in(entry: bytes) -> tuple[RecordBatch, ...]:
    """The batches of an entry, for those who want the records; their contents are not checked. Raises Damaged."""
    return tuple(read_batch(entry, one.at)[0] for one in read_entry(entry))


def batch_at(entry: bytes, at: int) -> RecordBatch:
    """The batch that begins at `entry[at]`, checked whole. Raises Damaged."""
    batch, _ = read_batch(entry, at)
    batch.check_content()
    return batch
