"""Links that bring single messages, of stock clients: one endpoint for bound and agnostic senders.

Problem: a quarter of a million messages a second must be routed, appended and answered in a process that has four
microseconds for each. So a message that is a body of bytes and nothing else is never touched as such: its length and
first bytes tell that it is one; a run of messages for one partition is one list, one append, one settle.

Rule never broken: nothing is stored that a reader could not decode (`message_validation.py`): a log would keep it for
ever. What becomes of each delivery is told by `incoming_link.py`, which this is built upon. Links of idempotent
producers are served by `idempotent_link.py`, which is this with numbers.

Rejected: two classes for bound and agnostic. They differ in one function, which partition; everything that can go wrong
(answers, credit, order, leaving) is the same, and must stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from holdfast.amqp import (
    Ingested,
    MalformedMessage,
    ReceiverLink,
    Transfers,
)
from holdfast.amqp.errors import DECODE_ERROR, Error
from holdfast.amqp.messages.message_validation import all_data
from holdfast.amqp.messages.routing_fields import GROUP_ID, text_property, with_group_key
from holdfast.records.record_batch import RecordBatch
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.attach.address_form import GROUP_KEY_LIMIT
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import EndpointHost
from node.listener.errors import Refused
from node.listener.incoming import routing_annotations
from node.listener.incoming.append_queue import QueuedBatch, sealed_messages
from node.listener.incoming.event_hubs_batch import Envelope, open_envelope, read_plain
from node.listener.incoming.incoming_link import IncomingLink
from node.listener.incoming.partition_choice import PartitionChoice


@dataclass(slots=True)
class _Gathered:
    """Messages of one piece of input for one partition."""

    deliveries: list[Any]
    records: list[bytes]
    size: int


class IncomingMessageLink(IncomingLink):
    def __init__(self, host: EndpointHost, link: ReceiverLink, plan: LinkPlan) -> None:
        super().__init__(host, link, plan)
        self._choice = PartitionChoice(plan)
        self._reads_group_id = plan.hub is None  # the service of Event Hubs does not

    # -------------------------------------------------------------------------------------------- messages come in

    def _take(self, event: Transfers, transaction: ClientTransaction | None) -> None:
        """Take in consecutive transfers, all of them in this transaction or in none."""
        deliveries, payloads, start = event.deliveries, event.payloads, 0
        for at in (*event.batches, len(payloads)):  # the batches are Event Hubs' envelopes, the rest single messages
            if start < at:
                self._messages(deliveries[start:at], payloads[start:at], transaction)
            if at < len(payloads):
                self._envelope(deliveries[at : at + 1], payloads[at], transaction)
            start = at + 1

    def _messages(self, deliveries: list[Any], payloads: list[bytes], transaction: ClientTransaction | None) -> None:
        count, size = self._count(payloads)
        partition = self.plan.partition
        if self.plan.key is not None or not all_data(payloads):
            self._sort(deliveries, payloads, transaction)
            return
        if partition is None:
            partitions = self._choice.all()
            if not partitions:
                self._turn_down_one(deliveries, count, size, errors.log_deleted(self.plan.log), transaction)
                return
            partition = self._choice.next(partitions)
        batch = QueuedBatch(deliveries, sealed_messages(payloads), count, size)
        self._way_into(partition, transaction)(batch)

    def _envelope(self, own: list[Any], payload: bytes, transaction: ClientTransaction | None) -> None:
        self._note(1, len(payload), 0)
        try:
            envelope = open_envelope(payload)
        except MalformedMessage as problem:
            self._unreadable(own, len(payload), problem, transaction)
        else:
            self.host.received(0, 0, len(envelope.contents))
            self._take_envelope(own, envelope, len(payload), transaction)

    def _take_envelope(
        self, own: list[Any], envelope: Envelope, size: int, transaction: ClientTransaction | None
    ) -> None:
        """Append an envelope: one delivery, one outcome. `size`: its bytes here."""
        try:
            partition, sealed = self._open(envelope)
        except MalformedMessage as problem:
            self._unreadable(own, size, problem, transaction)
        except Refused as refusal:
            self._batch_refused(own, size, refusal.error, transaction)
        else:
            self._way_into(partition, transaction)(QueuedBatch(own, sealed, 1, size))

    def _open(self, envelope: Envelope) -> tuple[str, RecordBatch]:
        """The envelope's partition, and the records to store."""
        if self.plan.key is not None:
            raise Refused(errors.batch_under_key(self.plan.log))
        partitions = self._choice.all()
        contents = read_plain(envelope)
        chosen = self._choice.choose(contents.target_partition, contents.group_key, partitions)
        return chosen if chosen is not None else self._choice.next(partitions), contents.sealed

    def _sort(self, deliveries: list[Any], payloads: list[bytes], transaction: ClientTransaction | None) -> None:
        """Look at messages one by one, and group them by partition."""
        partitions = self._choice.all()
        unhinted: str | None = self.plan.partition
        groups: dict[str, _Gathered] = {}
        handles: Iterable[Any] = deliveries or repeat(None)
        for handle, payload in zip(handles, payloads, strict=False):
            own = [handle] if deliveries else []
            try:
                message = self._with_key(routing_annotations.read(payload))
                partition = self._choice.choose(message.target_partition, message.group_key, partitions)
            except MalformedMessage as problem:
                text = f"the message cannot be read: {problem}; correct it, do not resend it"
                self._turn_down_one(own, 1, len(payload), Error(DECODE_ERROR, text), transaction)
                continue
            except Refused as refusal:
                self._turn_down_one(own, 1, len(payload), refusal.error, transaction)
                continue
            if partition is None:
                partition = unhinted = unhinted or self._choice.next(partitions)
            if partition not in groups:
                groups[partition] = _Gathered([], [], 0)
            gathered = groups[partition]
            gathered.deliveries += own
            gathered.records.append(message.stored)
            gathered.size += len(payload)
        for partition, gathered in groups.items():
            records = gathered.records
            batch = QueuedBatch(gathered.deliveries, sealed_messages(records), len(records), gathered.size)
            batch.deliveries.in_row = len(records) == len(payloads)
            self._way_into(partition, transaction)(batch)

    def _with_key(self, message: Ingested) -> Ingested:
        """The message with the key that its group-id or the link's address says, if it says none itself."""
        if message.group_key is not None:
            return message
        key = text_property(message.stored, GROUP_ID) if self._reads_group_id else None
        key = key or self.plan.key
        if key is None:
            return message
        if len(key) > GROUP_KEY_LIMIT:
            raise Refused(errors.key_too_long(len(key), GROUP_KEY_LIMIT))
        return Ingested(with_group_key(message.stored, key), message.target_partition, key)

    def on_change(self) -> None:
        self._choice.changed()
        super().on_change()
