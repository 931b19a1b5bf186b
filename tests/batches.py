"""Entries of a partition's log, made and read by hand: one batch in each, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.records.codec import Codec
from holdfast.records.lengths import table_of
from holdfast.records.record_batch import NO_PRODUCER, Numbering, RecordBatch, seal
from node.partition.entry import batches_in, join, records_of, sealed


def batch_of(
    records: Sequence[bytes],
    time_ms: int = 0,
    *,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER,
    base_sequence: int = NO_PRODUCER,
    digests: bytes = b"",
    transactional: bool = False,
    control: bool = False,
    compression: Codec = Codec.NONE,
) -> RecordBatch:
    """The batch of these records as a leader proposes it."""
    if control:
        batch = seal(table_of(records), records, bodies=False, control=True)
    else:
        batch = sealed(records, compression, digests)
    if producer_id != NO_PRODUCER or transactional:
        numbering = Numbering(producer_id, producer_epoch, base_sequence)
        batch = batch.numbered(numbering, transactional=transactional)
    return batch.stamped(time_ms)


def entry_of(records: Sequence[bytes], time_ms: int = 0, **options: object) -> bytes:
    """The entry of one batch; `options` are those of `batch_of`."""
    return join([batch_of(records, time_ms, **options)])  # type: ignore[arg-type]


def records_in(entry: bytes) -> list[bytes]:
    """All records of an entry as messages, checked."""
    found: list[bytes] = []
    for batch in batches_in(entry):
        batch.check_content()
        found += records_of(batch)
    return found
