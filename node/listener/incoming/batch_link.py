"""Links of producers that send record batches: each transfer holds one, sealed by the producer.

Problem: a batch is stored as it came, for ever, and its head says things that only the node may say.
Rules never broken, in addition to those of `incoming_link.py`:
 - what is checked here is all that can be asked without decompressing: that it is one batch and nothing else, both
   checksums, count and table, that nothing in the head is for others to write, and that the numbers are those which
   the link was granted. Whether the records can be read, the partition's leader asks (`records/batch_validation.py`),
   which believes no other node;
 - a batch has one outcome, and is one append; credit counts batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import protocol
from holdfast.amqp import ReceiverLink, Transfers, uint
from holdfast.amqp.messages.data_section import MAX_HEAD_BYTES, content_at
from holdfast.records.batch_validation import check_head
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES
from holdfast.records.record_batch import Attributes, Damaged, RecordBatch, agreed_version, read_batch
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import EndpointHost
from node.listener.errors import Refused
from node.listener.incoming.append_queue import QueuedBatch
from node.listener.incoming.idempotent_producers.idempotent_link import IdempotentLink
from node.listener.incoming.idempotent_producers.producer_attach import whole_number
from node.listener.incoming.incoming_link import IncomingLink

MOST_UNANSWERED = 32
"""Unanswered batches of a link. Twice as many are never under way: when a connection breaks between the credit for new
batches and the answers of the old ones, both count."""

TYPICAL_BYTES = 64 * 1024.0
"""Bytes of a batch that the credit of a link is reckoned by, until some have come."""


def asks_for_batches(link: ReceiverLink) -> bool:
    """Tell whether the peer has announced a version of record batches that this node knows."""
    return agreed_version(link.remote_properties.get(protocol.RECORD_BATCHES)) is not None


class IncomingBatchLink(IncomingLink):
    """The link of a producer without sequence numbers; under a transaction the node assigns them."""

    def __init__(self, host: EndpointHost, link: ReceiverLink, plan: LinkPlan, *granted: Any) -> None:
        super().__init__(host, link, plan, *granted)
        self._credit.window = min(self._credit.window, MOST_UNANSWERED)
        self._credit.mean_size = TYPICAL_BYTES

    def accept(self, properties: Mapping[str, Any] | None) -> None:
        agreed = agreed_version(self.link.remote_properties.get(protocol.RECORD_BATCHES))
        assert agreed is not None, "`asks_for_batches`"
        super().accept({**(properties or {}), protocol.RECORD_BATCHES: uint(agreed)})

    def _take(self, event: Transfers, transaction: ClientTransaction | None) -> None:
        for at, payload in enumerate(event.payloads):
            self._take_batch(event.deliveries[at : at + 1], payload, transaction)

    def _take_batch(self, own: list[Any], payload: bytes, transaction: ClientTransaction | None) -> None:
        size, bound = len(payload), self.plan.partition
        assert bound is not None
        self._note(1, size, 0)
        try:
            batch = _read(payload)
            self._check_numbers(batch)
        except Damaged as problem:
            self._unreadable(own, size, problem, transaction)
        except Refused as refusal:
            self._batch_refused(own, size, refusal.error, transaction)
        else:
            self.host.received(0, 0, len(batch))
            self._way_into(bound, transaction)(QueuedBatch(own, batch, 1, size))

    def _check_numbers(self, batch: RecordBatch) -> None:
        """Raise Refused for numbers that the link was not granted."""
        if batch.head.numbering is not None:
            raise Refused(errors.numbers_unasked())


class IdempotentBatchLink(IncomingBatchLink, IdempotentLink):
    """The batch link of an idempotent producer."""

    def _check_numbers(self, batch: RecordBatch) -> None:
        head = batch.head
        if batch.head.numbering is None:
            raise Refused(errors.numbers_wrong("a batch of an idempotent producer does not say its numbers"))
        self._numbers.check_granted(head.producer_id, head.producer_epoch)
        whole_number(protocol.PRODUCER_SEQUENCE, head.base_sequence)


def _read(payload: bytes) -> RecordBatch:
    """Decode the one batch of a transfer. Raises Damaged."""
    start = content_at(payload[:MAX_HEAD_BYTES], len(payload))
    if start is None:
        raise Damaged("it is not one data section, and nothing but a record batch may come on this link")
    batch, end = read_batch(payload, start)
    if end != len(payload):
        raise Damaged(f"{len(payload) - end} bytes behind the one record batch that a transfer holds")
    check_head(batch.head)
    if batch.head.attributes & Attributes.TRANSACTIONAL or batch.head.time_ms:
        raise Damaged("the transaction of a batch, and its time, are for the node to say")
    batch.check_content(MAX_UNCOMPRESSED_BYTES)
    return batch
