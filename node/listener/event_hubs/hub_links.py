"""Links of the Event Hubs dialect that bring and take events: those of the other dialect, with another wire.

Problem: these SDKs take an outcome that they do not expect for success, or wait for it for ever.
Rules never broken:
 - a producer's delivery is accepted, rejected with a reason, or never answered: then the connection ends, which every
   SDK answers by sending again, without a word to the application;
 - deliveries go out settled: some SDKs never settle any;
 - nobody is redirected, and no link is detached because a leader moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from holdfast.amqp import MalformedMessage, Modified, ReceiverLink, Released, SenderLink, Source, Target
from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.records.record_batch import RecordBatch
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import Endpoint, EndpointHost
from node.listener.event_hubs import epochs, hub_errors
from node.listener.event_hubs.hub_annotations import HubPrefix, LastEvent, as_stored
from node.listener.event_hubs.hub_plan import HubTerms
from node.listener.incoming.append_queue import Deliveries
from node.listener.incoming.event_hubs_batch import Envelope
from node.listener.incoming.idempotent_producers import producer_attach
from node.listener.incoming.idempotent_producers.idempotent_link import IdempotentLink
from node.listener.incoming.message_link import IncomingMessageLink
from node.listener.outgoing.consumer_groups.group_link import GroupLink
from node.listener.outgoing.consumer_groups.owned_partition import OwnedPartition
from node.listener.outgoing.outgoing_link import OutgoingLink
from node.listener.outgoing.partition_cursor import PartitionCursor
from node.partition.api import ProducerOpened, ReaderClaim, ReadError, Start

MESSAGE_BYTES = 1024 * 1024
"""Largest message, as the service says it: SDKs size their batches by it."""

LAST_EVENT_S = 1.0
"""Least seconds between questions for a partition's last event, for receivers that are told it. What they are given
since then counts in any case."""


def endpoint_of(
    host: EndpointHost,
    link: ReceiverLink | SenderLink,
    plan: LinkPlan,
    starts: dict[str, Start],
    granted: ProducerOpened | None,
    held: Mapping[str, OwnedPartition] | None,
) -> Endpoint:
    """The endpoint of a link of this dialect."""
    if isinstance(link, ReceiverLink):
        return HubProducer(host, link, plan) if granted is None else HubIdempotentProducer(host, link, plan, granted)
    return HubReceiver(host, link, plan, starts) if held is None else HubEpochReceiver(host, link, plan, starts, held)


# ------------------------------------------------------------------------------------------------- producers


class _Producing(IncomingMessageLink):
    """Base of both kinds of producers."""

    def accept(self, properties: Mapping[str, Any] | None) -> None:
        most = min(MESSAGE_BYTES, self.host.config.max_message_size)
        self.link.accept(target=Target(address=self.plan.address), properties=properties, max_message_size=most)
        self.link.max_message_size = self.host.config.max_message_size  # what is between is rejected, as a message
        self._top_up()

    def _envelope(self, own: list[Any], payload: bytes, transaction: ClientTransaction | None) -> None:
        if len(payload) > MESSAGE_BYTES:
            self._too_large(own, payload, transaction)
        else:
            super()._envelope(own, payload, transaction)

    def _too_large(self, own: list[Any], payload: bytes, transaction: ClientTransaction | None) -> None:
        self._note(1, len(payload), 0)
        self._batch_refused(own, len(payload), hub_errors.message_too_large(len(payload), MESSAGE_BYTES), transaction)

    def _messages(self, deliveries: list[Any], payloads: list[bytes], transaction: ClientTransaction | None) -> None:
        if max(map(len, payloads)) > MESSAGE_BYTES and len(payloads) > 1:
            for at, payload in enumerate(payloads):
                self._messages(deliveries[at : at + 1], [payload], transaction)
            return
        if len(payloads[0]) > MESSAGE_BYTES:
            self._too_large(deliveries, payloads[0], transaction)
            return
        super()._messages(deliveries, [_as_stored(payload) for payload in payloads], transaction)

    def _take_envelope(
        self, own: list[Any], envelope: Envelope, size: int, transaction: ClientTransaction | None
    ) -> None:
        if isinstance(envelope.contents, RecordBatch):
            super()._take_envelope(own, envelope, size, transaction)
            return
        try:
            front, *messages = (as_stored(message) for message in (envelope.front, *envelope.contents))
        except MalformedMessage as problem:
            self._unreadable(own, size, problem, transaction)
            return
        super()._take_envelope(own, Envelope(front, messages), size, transaction)

    def _answer(self, handles: list[Any], count: int, size: int, state: DeliveryState) -> None:
        if not isinstance(state, Released | Modified):
            super()._answer(handles, count, size, state)
            return
        self._account(count, size, False)
        self.host.send_away(hub_errors.send_again(f"an event was not taken by {self.plan.log!r} in time"))

    def in_doubt(self, deliveries: Deliveries) -> None:
        self._answer_all(deliveries, Modified(delivery_failed=True))


def _as_stored(payload: bytes) -> bytes:
    try:
        return as_stored(payload)
    except MalformedMessage:  # refused where it is read next
        return payload


class HubProducer(_Producing):
    def open(self) -> None:
        self.accept(None)


class HubIdempotentProducer(_Producing, IdempotentLink):
    def open(self) -> None:
        self.accept(producer_attach.answer(self._opened))
        self._watch()


# ------------------------------------------------------------------------------------------------- receivers


class _Receiving(OutgoingLink):
    """Base of both kinds of receivers."""

    def __init__(self, *args: Any) -> None:
        plan: LinkPlan = args[2]
        assert plan.hub is not None
        self._terms: HubTerms = plan.hub
        self._last = plan.hub.last
        self._asked: asyncio.TimerHandle | None = None
        super().__init__(*args)

    def _source(self) -> Source:
        return Source(address=self.plan.address, filter=dict(self._selection.in_force))

    def _properties(self) -> dict[str, object]:
        return {}

    def _cursor(self, partition: str, latest: Start | None) -> PartitionCursor:
        cursor = super()._cursor(partition, latest)
        cursor.prefix = HubPrefix(partition, self._last)
        return cursor

    def _hand_out(self, cursor: PartitionCursor, payloads: list[bytes], runs: list[tuple[int, int]]) -> None:
        self.link.send_many(payloads, settled=True)
        self._learn_last()

    def _disconnect(self, cursor: PartitionCursor) -> None:
        """End the link for a receiver that has the partition now."""
        cursor.drop_reader()
        self._ready.pop(cursor, None)
        self.host.spawn(self._end_for_another())

    async def _end_for_another(self) -> None:
        self.leave(await epochs.disconnection(self.plan))
        self.host.flush_soon()

    # --------------------------------------------------------------------------------------- the last event

    def _learn_last(self) -> None:
        """Ask for the partition's last event, for later deliveries, unless that was done a moment ago."""
        if self._last is not None and self._asked is None:
            self._asked = asyncio.get_running_loop().call_later(LAST_EVENT_S, self._may_ask)
            self.host.spawn(self._ask_last(self._last))

    def _may_ask(self) -> None:
        self._asked = None

    async def _ask_last(self, last: LastEvent) -> None:
        assert self.plan.partition is not None
        try:
            info = await self.plan.broker.handle(self.plan.log, self.plan.partition).info()
        except (ConnectionError, LookupError, TimeoutError):
            return  # an election: a later delivery asks again
        last.heard(info)

    def gone(self) -> None:
        super().gone()
        if self._asked is not None:
            self._asked.cancel()


class HubReceiver(_Receiving):
    """A receiver without an epoch: it reads while nobody has claimed the partition for its group."""

    def _owner(self, partition: str) -> ReaderClaim:
        return self._terms.guest

    def _reader_failed(self, cursor: PartitionCursor, why: ReadError) -> None:
        if why.kind == "stolen":
            self._disconnect(cursor)
        else:
            super()._reader_failed(cursor, why)

    def pump(self) -> bool:
        """Send, after looking at failed readers even without credit: a receiver that was ousted must go."""
        for cursor in list(self._ready):
            if cursor.reader is not None and cursor.reader.error is not None:
                self._reader_failed(cursor, cursor.reader.error)
        return super().pump()


class HubEpochReceiver(_Receiving, GroupLink):
    def _properties(self) -> dict[str, object]:
        return {}

    def _reader_failed(self, cursor: PartitionCursor, why: ReadError) -> None:
        if why.kind == "stolen":
            self._disconnect(cursor)
        elif why.kind == "revoked":  # no nodes share out the partitions of these groups
            self.leave(errors.lapsed(why, self.plan.log, cursor.partition))
        else:
            super()._reader_failed(cursor, why)
