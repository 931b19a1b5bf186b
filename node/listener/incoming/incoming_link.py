"""Links that bring events: one endpoint for bound and agnostic senders.

Problem: a quarter of a million messages a second must be routed, appended and answered in a process that has four
microseconds for each. So a message that is a body of bytes and nothing else is never touched as such: its length and
first bytes tell that it is one; a run of messages for one partition is one list, one append, one settle.

Rule never broken: nothing is stored that a reader could not decode (`well_formed.py`): a log would keep it for ever.
What becomes of each delivery is told by `answering_link.py`, which this is built upon. Links of idempotent producers
are served by `idempotent_link.py`, which is this with numbers; those of our own producers bring record batches, and are
served by `batch_link.py`.

Rejected: two classes for bound and agnostic. They differ in one function, which partition; everything that can go wrong
(answers, credit, order, leaving) is the same, and must stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any

from holdfast import protocol
from holdfast.amqp import (
    DeliveryState,
    MalformedMessage,
    ReceiverLink,
    Rejected,
    Target,
    Transactional,
    Transfers,
    symbol,
)
from holdfast.amqp.errors import DECODE_ERROR, Error
from holdfast.amqp.messages.well_formed import all_data
from holdfast.records.record_batch import RecordBatch
from node.listener import errors
from node.listener.attach.link_plan import Plan
from node.listener.endpoint import EndpointHost
from node.listener.errors import Refused
from node.listener.incoming import routing_annotations
from node.listener.incoming.answering_link import AnsweringLink
from node.listener.incoming.append_queue import AppendQueue, QueuedBatch, sealed_messages
from node.listener.incoming.event_hubs_batch import Envelope, open_envelope, read_plain
from node.listener.incoming.partition_choice import PartitionChoice
from node.listener.transactions.client_transaction import ClientTransaction


@dataclass(slots=True)
class _Gathered:
    """Messages of one piece of input for one partition."""

    deliveries: list[Any]
    records: list[bytes]
    size: int


class IncomingLink(AnsweringLink):
    LANE: type[AppendQueue] = AppendQueue

    def __init__(self, host: EndpointHost, link: ReceiverLink, plan: Plan) -> None:
        super().__init__(host, link, plan)
        self._queues: dict[str, AppendQueue] = {}
        self._choice = PartitionChoice(plan)

    def open(self) -> None:
        bound = self.plan.partition
        self.accept(None if bound is None else {protocol.LINK_PARTITION: symbol(bound)})

    def accept(self, properties: Mapping[str, Any] | None) -> None:
        self.link.accept(
            target=Target(address=self.plan.address),
            properties={**(properties or {}), **self.which_log()} or None,
            max_message_size=self.host.config.max_message_size,
        )
        self._top_up()

    # -------------------------------------------------------------------------------------------- messages come in

    def on_transfers(self, event: Transfers) -> None:
        if event.transactions is None:
            self._take(event, None)
            return
        start = 0
        for name, run in groupby(event.transactions):
            stop = start + sum(1 for _ in run)
            batches = tuple(at - start for at in event.batches if start <= at < stop)
            part = Transfers(event.link, event.deliveries[start:stop], event.payloads[start:stop], batches)
            if name is None:
                self._take(part, None)
            else:
                self._take_in_transaction(part, name)
            start = stop

    def _take_in_transaction(self, event: Transfers, name: bytes) -> None:
        transaction = self.host.transactions.get(name)
        if transaction is not None and transaction.is_open:
            self._take(event, transaction)
            return
        count, size = self._count(event.payloads)
        self._answer(event.deliveries, count, size, Transactional(name, Rejected(errors.unknown_transaction())))

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
        if not all_data(payloads):
            self._sort(deliveries, payloads, transaction)
            return
        if partition is None:
            partitions = self._choice.all()
            if not partitions:
                self._turn_down_one(deliveries, count, size, errors.log_deleted(self.plan.log), transaction)
                return
            partition = self._choice.next(partitions)
        self._submit(partition, QueuedBatch(deliveries, sealed_messages(payloads), count, size), transaction)

    def _envelope(self, own: list[Any], payload: bytes, transaction: ClientTransaction | None) -> None:
        self._note(1, len(payload), 0)
        try:
            envelope = open_envelope(payload)
        except MalformedMessage as problem:
            self._unreadable(own, len(payload), problem, transaction)
        else:
            self.host.received(0, 0, len(envelope.messages))
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
            self._submit(partition, QueuedBatch(own, sealed, 1, size), transaction)

    def _unreadable(self, own: list[Any], size: int, problem: Exception, transaction: ClientTransaction | None) -> None:
        text = f"the batch cannot be read: {problem}; correct it, do not resend it"
        self._batch_refused(own, size, Error(DECODE_ERROR, text), transaction)

    def _open(self, envelope: Envelope) -> tuple[str, RecordBatch]:
        """The envelope's partition, and the records to store."""
        partitions = self._choice.all()
        contents = read_plain(envelope)
        chosen = self._choice.choose(contents.target_partition, contents.group_key, partitions)
        return chosen if chosen is not None else self._choice.next(partitions), sealed_messages(contents.records)

    def _batch_refused(self, own: list[Any], size: int, error: Error, transaction: ClientTransaction | None) -> None:
        self._turn_down_one(own, 1, size, error, transaction)

    def _submit(self, partition: str, batch: QueuedBatch, transaction: ClientTransaction | None) -> None:
        """Send the batch on its way into the partition, or hand it to its transaction."""
        if transaction is None:
            self._queue(partition).submit(batch)
            return
        try:
            transaction.send(self, self.plan.broker, self.plan.log, partition, batch)
        except KeyError:
            error = errors.log_deleted(self.plan.log)
            self._turn_down_one(batch.deliveries, batch.count, batch.size, error, transaction)

    def _turn_down_one(
        self, deliveries: list[Any], count: int, size: int, error: Error, transaction: ClientTransaction | None
    ) -> None:
        """Refuse deliveries that certainly are not, and will not be, in the log."""
        state: DeliveryState = Rejected(error)
        if transaction is not None:
            transaction.refuse(error.description or error.condition)
            state = Transactional(transaction.txn_id, Rejected(error))
        self._answer(deliveries, count, size, state)

    def _sort(self, deliveries: list[Any], payloads: list[bytes], transaction: ClientTransaction | None) -> None:
        """Look at messages one by one, and group them by partition."""
        partitions = self._choice.all()
        unhinted: str | None = self.plan.partition
        groups: dict[str, _Gathered] = {}
        handles: Iterable[Any] = deliveries or repeat(None)
        for handle, payload in zip(handles, payloads, strict=False):
            own = [handle] if deliveries else []
            try:
                message = routing_annotations.read(payload)
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
            batch.in_row = batch.count == len(payloads)
            self._submit(partition, batch, transaction)

    def _queue(self, partition: str) -> AppendQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = self.LANE(
                self,
                self.plan.broker,
                self.plan.log,
                partition,
                wait_s=self.host.config.leader_wait_s,
                follow=not self._redirects,
            )
            if self.leaving:
                queue.close()
        return queue

    # -------------------------------------------------------------------------------------------- changes, leaving

    def on_change(self) -> None:
        super().on_change()
        self._choice.changed()
        if self.leaving:
            return
        if self.plan.broker.describe(self.plan.log) is None:
            self.leave(errors.log_deleted(self.plan.log))
        elif self.belongs_elsewhere():
            self.move()
        else:
            for queue in self._queues.values():
                queue.attempt()

    def quiesce(self) -> None:
        for queue in self._queues.values():
            queue.close()
