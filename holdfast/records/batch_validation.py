"""Checks of a batch that a partition's leader makes before it stores it: every reader must be able to decode it.

The problem: a log keeps a batch for ever, as it came, and its producer may have lied. The rule: the leader checks it,
whatever a node in between has said; and no more is decompressed than the table of lengths says, which was compared
with a limit before.

Bodies may hold any bytes, so one thing is checked of them only: exactly as many come out as the table says.
"""

from __future__ import annotations

from typing import Final

from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.message_validation import all_data, check_message
from holdfast.amqp.messages.sections import ingest
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES
from holdfast.records.record_batch import NO_PRODUCER, Attributes, Damaged, RecordBatch

MESSAGE_EFFORT: Final = 1024
"""Cost of a look at a message, at worst: that of decompressing so many bytes."""


def check_head(batch: RecordBatch) -> None:
    """Raise Damaged if the head says what only a node that stores it, or sends it to a reader, may say."""
    head = batch.head
    if head.attributes & Attributes.CONTROL:
        raise Damaged("control batches are for the leader to write")
    if (head.base_offset, head.first, head.events) != (-1, 0, head.record_count):
        raise Damaged(f"the place of a batch of {head.record_count} records is for the node to say")
    numbered = head.producer_id != NO_PRODUCER
    if not numbered and (batch.transaction or (head.producer_epoch, head.base_sequence) != (NO_PRODUCER, NO_PRODUCER)):
        raise Damaged("an epoch, a number or a transaction of no producer")


def effort_of(batch: RecordBatch) -> int:
    """Cost of `check_contents`, known before: bytes to decompress, and messages to look at."""
    if batch.is_own:
        return 0
    bytes_out = batch.uncompressed_bytes if batch.codec else 0
    return bytes_out if batch.are_bodies else bytes_out + MESSAGE_EFFORT * batch.head.record_count


def check_contents(batch: RecordBatch) -> None:
    """Raise Damaged if the batch cannot be stored as it is. What was decompressed is not kept."""
    if batch.is_own:
        return
    batch.check_content(MAX_UNCOMPRESSED_BYTES)
    if batch.are_bodies and not batch.codec:
        return
    looked_at = batch.afresh()
    looked_at.open()
    if batch.are_bodies:
        return
    messages = looked_at.records()
    if all_data(messages):
        return
    for place, message in enumerate(messages):
        try:
            check_message(message)
            if ingest(message).stored != message:
                raise MalformedMessage("it has delivery annotations, or a descriptor of several bytes")
        except MalformedMessage as problem:
            raise Damaged(f"message {place} of the batch cannot be read: {problem}") from None
