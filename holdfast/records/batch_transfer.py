"""Record batches in one transfer: a message that is one data section, with one or more batches in it, back to back.

A link is known to carry batches by what was agreed at its attach, never by what its messages look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES, content_at, data_head
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES
from holdfast.records.record_batch import MAX_RECORDS, Damaged, RecordBatch, read_batch

SECTION_BYTES = MAX_HEAD_BYTES
"""Bytes around the batches of a transfer, at most."""


def transfer_of(batches: Iterable[RecordBatch]) -> bytes:
    """The message that holds these batches."""
    pieces: list[bytes | memoryview] = []
    for batch in batches:
        pieces += batch.pieces()
    return b"".join((data_head(sum(map(len, pieces))), *pieces))


def batches_in(transfer: bytes) -> Iterator[RecordBatch]:
    """The batches of a transfer, one by one, each checked whole before it is given.

    Their records have no more bytes, uncompressed, than those of one batch may have, and there are no more of them.

    Raises:
        Damaged: it is no such transfer, or from here on it is not what was sent.
    """
    at, records, room = _content_at(transfer), 0, MAX_UNCOMPRESSED_BYTES
    while at < len(transfer) or not records:
        batch, at = read_batch(transfer, at)
        batch.check_content(room)
        if batch.codec:  # what is not compressed takes no more room than the transfer
            room -= batch.uncompressed_bytes
        records += batch.head.record_count
        if records > MAX_RECORDS:
            raise Damaged(f"a transfer of more than {MAX_RECORDS} records")
        yield batch


def _content_at(message: bytes) -> int:
    start = content_at(message[:MAX_HEAD_BYTES], len(message))
    if start is None:
        raise Damaged("it is not one data section, and nothing but record batches may come on this link")
    return start
