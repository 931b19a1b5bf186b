"""Links that bring events: one endpoint for bound and agnostic senders.

Problem: a quarter of a million messages a second must be routed, appended and answered in a process that has four
microseconds for each. So a message that is a body of bytes and nothing else is never touched as such: its length and
first bytes tell that it is one; a run of messages for one partition is one list, one append, one settle.

Rules never broken:
 - nothing is stored that a reader could not decode (`well_formed.py`): a log would keep it for ever;
 - a delivery is answered once: accepted only after its record is committed; rejected when the message is at fault;
   released when it certainly was not appended; modified with delivery-failed when nobody can know, to peers that list
   that outcome. To others that is never said: see `doubtful_deliveries.py`;
 - credit is granted for what has been answered, never for what is still under way: the window bounds what a link can
   have in memory here, whatever the peer does;
 - to a peer that knows the extension, an answer that asks for resending is followed by the end of the link, before any
   later message is accepted. Else the resent message would come behind its successors.

Links of idempotent producers are served by `idempotent_link.py`, which is this with numbers.

Rejected: two classes for bound and agnostic. They differ in one function, which partition; everything that can go wrong
(answers, credit, order, leaving) is the same, and must stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from holdfast import protocol
from holdfast.amqp import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    MalformedMessage,
    Modified,
    OtherState,
    ReceiverLink,
    Rejected,
    Source,
    Target,
    Transfers,
    symbol,
    uint,
    ulong,
)
from holdfast.amqp.errors import DECODE_ERROR, Error
from holdfast.amqp.messages.well_formed import all_data
from holdfast.amqp.partition_key import partition_index
from node.listener import errors
from node.listener.attach.link_plan import Plan
from node.listener.endpoint import Endpoint, EndpointHost
from node.listener.errors import Refused
from node.listener.incoming import routing_annotations
from node.listener.incoming.append_queue import AppendQueue, QueuedBatch
from node.listener.incoming.batch_envelopes import Envelope, open_envelope, read_plain
from node.listener.incoming.doubtful_deliveries import find_out
from node.partition.api import Appended, Failed, Numbers

GROUP_KEY_LIMIT = 4096
"""Characters. Hashing is Python: a key of a megabyte would stop the node for a second."""

GROUP_KEY_CACHED = 128
"""Characters. The cache of hashed keys is bounded by count, so only short ones may enter it."""

MIN_CREDIT = 2
"""However big the messages: one being replicated, one on its way."""

UNKNOWN = Modified(delivery_failed=True)


def _stored(offset: int, count: int, partition: symbol) -> OtherState:
    return OtherState(protocol.STORED_CODE, (ulong(offset), uint(count), partition))


class IncomingLink(Endpoint):
    LANE: type[AppendQueue] = AppendQueue
    link: ReceiverLink

    def __init__(self, host: EndpointHost, link: ReceiverLink, plan: Plan) -> None:
        super().__init__(host, link, plan)
        self._queues: dict[str, AppendQueue] = {}
        self._unanswered = 0
        self._mean_size = 0.0
        self._turn = 0  # of the round robin
        self._known_partitions: Sequence[str] | None = None  # until something changes
        self._redirects = plan.bound and host.redirects
        self._window = host.config.credit_window  # messages
        source = link.remote_source
        outcomes = source.outcomes if isinstance(source, Source) else ()
        self._tells_places = protocol.STORED in outcomes
        self._tells_doubts = protocol.MODIFIED in outcomes
        self._doubtful: list[QueuedBatch] = []  # never to be answered: the link ends for their sake
        self._doubtful_count = 0
        self._asked_about: list[QueuedBatch] = []  # somebody may yet tell what became of them
        self._ordered = self._redirects or host.knows_streams  # nothing is accepted behind what was not

    def open(self) -> None:
        bound = self.plan.partition
        self.accept(None if bound is None else {protocol.LINK_PARTITION: symbol(bound)})

    def accept(self, properties: Mapping[str, Any] | None) -> None:
        self.link.accept(
            target=Target(address=self.plan.address),
            properties={**(properties or {}), **self.which_log()} or None,
            max_message_size=self.host.config.max_message_size,
        )
        self.link.grant(self._window)

    # -------------------------------------------------------------------------------------------- messages come in

    def on_transfers(self, event: Transfers) -> None:
        if event.batches:
            self._with_envelopes(event)
            return
        payloads, deliveries = event.payloads, event.deliveries
        count, size = self._count(payloads)
        partition = self.plan.partition
        if not all_data(payloads):
            self._sort(deliveries, payloads)
        elif partition is not None:
            self._queue(partition).submit(QueuedBatch(deliveries, payloads, count, size))
        else:
            partitions = self._partitions()
            if partitions:
                self._queue(self._next(partitions)).submit(QueuedBatch(deliveries, payloads, count, size))
            else:
                self._answer(deliveries, count, size, Rejected(errors.log_deleted(self.plan.log)))

    def _with_envelopes(self, event: Transfers) -> None:
        """Some of the messages hold many; all go their way in the order in which they came."""
        deliveries, payloads, start = event.deliveries, event.payloads, 0
        for at in (*event.batches, len(payloads)):
            if start < at:
                self.on_transfers(Transfers(event.link, deliveries[start:at], payloads[start:at]))
            if at < len(payloads):
                self._envelope(deliveries[at : at + 1], payloads[at])
            start = at + 1

    def _envelope(self, own: list[Any], payload: bytes) -> None:
        """One delivery: one append, one outcome."""
        count, size = self._count([payload])
        try:
            partition, records, numbers = self._open(open_envelope(payload))
        except MalformedMessage as problem:
            text = f"the batch cannot be read: {problem}; correct it, do not resend it"
            self._envelope_refused(own, size, Error(DECODE_ERROR, text))
        except Refused as refusal:
            self._envelope_refused(own, size, refusal.error)
        else:
            self._queue(partition).submit(QueuedBatch(own, records, count, size, numbers))

    def _open(self, envelope: Envelope) -> tuple[str, list[bytes], Numbers | None]:
        """Where it goes, and what is to be stored of it."""
        partitions = self._partitions()
        contents = read_plain(envelope)
        chosen = self._choose(contents.target_partition, contents.group_key, partitions)
        return chosen if chosen is not None else self._next(partitions), contents.records, None

    def _envelope_refused(self, own: list[Any], size: int, error: Error) -> None:
        self._answer(own, 1, size, Rejected(error))

    def _count(self, payloads: list[bytes]) -> tuple[int, int]:
        """From now on they are unanswered."""
        count, size = len(payloads), sum(map(len, payloads))
        self._unanswered += count
        share = min(1.0, count / 64) if self._mean_size else 1.0
        self._mean_size += (size / count - self._mean_size) * share
        self.host.received(count, size)
        return count, size

    def _sort(self, deliveries: list[Any], payloads: list[bytes]) -> None:
        """Messages that must be looked at, one by one."""
        partitions = self._partitions()
        unhinted: str | None = self.plan.partition
        groups: dict[str, QueuedBatch] = {}
        handles: Iterable[Any] = deliveries or repeat(None)
        for handle, payload in zip(handles, payloads, strict=False):
            own = [handle] if deliveries else []
            try:
                message = routing_annotations.read(payload)
                partition = self._choose(message.target_partition, message.group_key, partitions)
            except MalformedMessage as problem:
                text = f"the message cannot be read: {problem}; correct it, do not resend it"
                self._answer(own, 1, len(payload), Rejected(Error(DECODE_ERROR, text)))
                continue
            except Refused as refusal:
                self._answer(own, 1, len(payload), Rejected(refusal.error))
                continue
            if partition is None:
                partition = unhinted = unhinted or self._next(partitions)
            batch = groups.get(partition)
            if batch is None:
                batch = groups[partition] = QueuedBatch([], [], 0, 0)
            batch.deliveries += own
            batch.records.append(message.stored)
            batch.count += 1
            batch.events += 1
            batch.size += len(payload)
        for partition, batch in groups.items():
            batch.in_row = batch.count == len(payloads)
            self._queue(partition).submit(batch)

    def _choose(self, target: str | None, key: str | None, partitions: Sequence[str]) -> str | None:
        """What the message's annotations say (ES-20 to 23, 43); None: nothing."""
        log, bound = self.plan.log, self.plan.partition
        if not partitions:
            raise Refused(errors.log_deleted(log))
        if target is not None:
            if bound is not None and target != bound:
                raise Refused(errors.wrong_partition(target, bound))
            if target not in partitions:
                raise Refused(errors.unknown_partition(log, target, len(partitions)))
            return target
        if bound is not None or key is None:
            return bound
        if len(key) > GROUP_KEY_LIMIT:
            raise Refused(errors.key_too_long(len(key), GROUP_KEY_LIMIT))
        hashed = partition_index if len(key) <= GROUP_KEY_CACHED else partition_index.__wrapped__
        return partitions[hashed(key, len(partitions))]

    def _partitions(self) -> Sequence[str]:
        known = self._known_partitions
        if known is None:
            view = self.plan.broker.describe(self.plan.log)
            known = self._known_partitions = () if view is None else view.partitions
        return known

    def _next(self, partitions: Sequence[str]) -> str:
        self._turn += 1
        return partitions[self._turn % len(partitions)]

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

    # -------------------------------------------------------------------------------------------- answers go out

    def accepted(self, batch: QueuedBatch, stored: Appended, partition: str) -> None:
        if not self._tells_places:
            self._answer(batch.deliveries, batch.count, batch.size, ACCEPTED)
            return
        at = 0
        for count, offset in stored.rows(batch.count) if batch.events == batch.count else ((1, stored.base_offset),):
            self._settle_row(batch, at, count, offset, symbol(partition))
            at += count
        self._account(batch.count, batch.size, True)

    def _settle_row(self, batch: QueuedBatch, at: int, count: int, offset: int, partition: symbol) -> None:
        """Deliveries whose records stand side by side, the first at `offset`: that one tells it, if they came so."""
        link, deliveries = self.link, batch.deliveries
        if batch.in_row:
            link.settle(deliveries[at : at + 1], _stored(offset, count, partition))
            link.settle(deliveries[at + 1 : at + count], ACCEPTED)
            return
        for place in range(count):
            link.settle(deliveries[at + place : at + place + 1], _stored(offset + place, 1, partition))

    def uncertain(self, batch: QueuedBatch, why: Failed, partition: str) -> None:
        if self._tells_doubts or not batch.deliveries:
            self._answer(batch.deliveries, batch.count, batch.size, UNKNOWN)
        else:
            self._asked_about.append(batch)
            self.host.spawn(self._find_out(batch, why, partition))
        self._order_at_risk()

    async def _find_out(self, batch: QueuedBatch, why: Failed, partition: str) -> None:
        wait_s = self.host.config.leader_wait_s
        broker, log = self.plan.broker, self.plan.log
        stored = await find_out(broker, log, partition, why, wait_s)
        if batch not in self._asked_about:  # the link is gone, and it was let go of
            return
        self._asked_about.remove(batch)
        if broker.describe(log) is None:  # whatever became of it is gone
            self._answer(batch.deliveries, batch.count, batch.size, Rejected(errors.log_deleted(log)))
        elif stored is None:
            self.in_doubt(batch)
        else:
            self._answer(batch.deliveries, batch.count, batch.size, ACCEPTED if stored else RELEASED)
            if not stored:
                self._order_at_risk()
        self.host.flush_soon()

    def in_doubt(self, batch: QueuedBatch) -> None:
        """And so it stays."""
        self._doubtful.append(batch)
        self._doubtful_count += batch.count
        self.leave(errors.outcome_unknown(self.plan.log), over=True)

    def refused(self, batch: QueuedBatch, why: Failed) -> None:
        error = errors.append_refused(why, self.plan.log)
        self._answer(batch.deliveries, batch.count, batch.size, Rejected(error))
        if why.kind == "deleted":
            self.leave(errors.log_deleted(self.plan.log))

    def turned_away(self, batch: QueuedBatch, why: str) -> None:
        self._answer(batch.deliveries, batch.count, batch.size, RELEASED)
        self._order_at_risk()

    def broken(self, error: BaseException) -> None:
        self.host.fail(error)

    def _answer(self, deliveries: list[Any], count: int, size: int, state: DeliveryState) -> None:
        self.link.settle(deliveries, state)
        self._account(count, size, state is ACCEPTED)

    def _account(self, count: int, size: int, accepted: bool) -> None:
        self._unanswered -= count
        self.host.answered(count, size, accepted)
        if not self.leaving:
            self._top_up()
        elif self.idle:
            self.maybe_close()

    def _top_up(self) -> None:
        """Refill the window in quarters, so that a flow frame goes out for many messages, not for each."""
        window, window_bytes = self._window, self.host.config.credit_window_bytes
        if self._mean_size * window > window_bytes:
            window = max(MIN_CREDIT, int(window_bytes / self._mean_size))
        missing = window - self._unanswered - self.link.credit
        if missing > 0 and missing * 4 >= window:
            self.link.grant(missing)

    # -------------------------------------------------------------------------------------------- changes, leaving

    def _order_at_risk(self) -> None:
        if self.leaving or not self._ordered:
            return
        broker, log, bound = self.plan.broker, self.plan.log, self.plan.partition
        if broker.describe(log) is None:
            self.leave(errors.log_deleted(log))
        elif self._redirects and bound is not None and not broker.is_local(log, bound):
            self.move()
        else:
            self.leave(errors.order_at_risk(self.plan.log))

    def on_change(self) -> None:
        super().on_change()
        self._known_partitions = None
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

    @property
    def idle(self) -> bool:
        return self._unanswered == self._doubtful_count

    def maybe_close(self) -> None:
        super().maybe_close()
        if self._doubtful and not self.link.alive:
            self._forget_doubtful()

    def _forget_doubtful(self) -> None:
        """The peer was told that the link ended with an error, or has ended it itself. The deliveries are never
        settled, not even without a state, which some clients take for an answer: the engine keeps them until the
        connection ends.
        """
        doubtful, self._doubtful, self._doubtful_count = self._doubtful, [], 0
        for batch in doubtful:
            self._unanswered -= batch.count
            self.host.answered(batch.count, batch.size, False)

    def gone(self) -> None:
        super().gone()
        self.quiesce()
        asked, self._asked_about = self._asked_about, []
        self._doubtful += asked
        self._forget_doubtful()
