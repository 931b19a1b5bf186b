"""Checks of a batch before it is stored: every reader must be able to decode it, and its head must not lie.

The problem: a log keeps a batch for ever, as it came, and its producer may have lied. The rule: the leader checks it,
whatever a node in between has said (`node/partition/appender.py`).
"""

from __future__ import annotations

from typing import Final

from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.message_validation import all_data, check_message
from holdfast.amqp.messages.sections import ingest
from holdfast.records.record_batch import NO_PRODUCER, Attributes, BatchHead, Damaged

MESSAGE_EFFORT: Final = 1024
"""Cost of a look at a message, at worst: that of decompressing so many bytes."""


def check_head(head: BatchHead) -> None:
    """Raise Damaged if the head says what only a node that stores it, or sends it to a reader, may say."""
    if head.attributes & Attributes.CONTROL:
        raise Damaged("control batches are for the leader to write")
    if (head.base_offset, head.first, head.events) != (-1, 0, head.record_count):
        raise Damaged(f"the place of a batch of {head.record_count} records is for the node to say")
    numbered = head.producer_id != NO_PRODUCER
    if not numbered and (head.transaction or (head.producer_epoch, head.base_sequence) != (NO_PRODUCER, NO_PRODUCER)):
        raise Damaged("an epoch, a number or a transaction of no producer")


def check_messages(messages: list[bytes]) -> None:
    """Raise Damaged if one of a batch's messages cannot be stored as it is."""
    if all_data(messages):
        return
    for place, message in enumerate(messages):
        try:
            check_message(message)
            if ingest(message).stored != message:
                raise MalformedMessage("it has delivery annotations, or a descriptor of several bytes")
        except MalformedMessage as problem:
            raise Damaged(f"message {place} of the batch cannot be read: {problem}") from None
