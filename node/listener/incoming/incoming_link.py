"""Links that bring events: their answers, credit and end, and their queues to the partitions.

Problem: by its answer a client decides whether it sends again, and whether its next message may overtake; and some
clients do not know the answer that would be true.

Rules never broken:
 - a delivery is answered once: accepted only after its record is committed; rejected when the message is at fault;
   released when it certainly was not appended; modified with delivery-failed when nobody can know, to peers that list
   that outcome. To others that is never said: see `unknown_outcomes.py`;
 - credit is granted for what has been answered, never for what is still under way (`publisher_credit.py`);
 - to a peer that knows the extension, an answer that asks for resending is followed by the end of the link, before any
   later message is accepted. Else the resent message would come after its successors.
Single messages come on links of `message_link.py`, record batches on those of `batch_link.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Any

from holdfast import protocol
from holdfast.amqp import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Modified,
    OtherState,
    ReceiverLink,
    Rejected,
    Source,
    Target,
    Transactional,
    Transfers,
    symbol,
    uint,
    ulong,
)
from holdfast.amqp.errors import DECODE_ERROR, Error
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import Endpoint, EndpointHost
from node.listener.incoming.append_queue import AppendQueue, Deliveries, QueuedBatch
from node.listener.incoming.publisher_credit import PublisherCredit
from node.listener.incoming.unknown_outcomes import find_out
from node.partition.api import Appended, Failed
from node.partition.idempotence.producer_state import FORGOTTEN

UNKNOWN = Modified(delivery_failed=True)


def _stored(offset: int, count: int, partition: symbol) -> OtherState:
    return OtherState(protocol.STORED_CODE, (ulong(offset), uint(count), partition))


class IncomingLink(Endpoint):
    """Implements `QueueOwner`. A subclass says how transfers become batches."""

    NUMBERED = False
    """True if each batch has the sequence numbers of an idempotent producer."""
    link: ReceiverLink

    def __init__(self, host: EndpointHost, link: ReceiverLink, plan: LinkPlan) -> None:
        super().__init__(host, link, plan)
        self._queues: dict[str, AppendQueue] = {}
        self._credit = PublisherCredit(host.config.credit_window, host.config.credit_window_bytes)
        self._redirects = plan.bound and host.redirects
        source = link.remote_source
        outcomes = source.outcomes if isinstance(source, Source) else ()
        self._tells_places = protocol.STORED in outcomes
        self._tells_doubts = protocol.MODIFIED in outcomes
        self._doubtful: list[Deliveries] = []  # never to be answered: the link ends for their sake
        self._doubtful_count = 0
        self._asked_about: list[Deliveries] = []  # a leader may yet tell their fate
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
        raise NotImplementedError

    def _way_into(self, partition: str, transaction: ClientTransaction | None) -> Callable[[QueuedBatch], None]:
        """The function that takes a batch on its way into the partition, by the link's own queue or its transaction."""
        if transaction is None:
            return self._queue(partition).submit
        return partial(transaction.send, self, self.plan.broker, self.plan.log, partition)

    def _turn_down_one(
        self, handles: list[Any], count: int, size: int, error: Error, transaction: ClientTransaction | None
    ) -> None:
        """Refuse deliveries that certainly are not, and will not be, in the log."""
        state: DeliveryState = Rejected(error)
        if transaction is not None:
            transaction.refuse(error.description or error.condition)
            state = Transactional(transaction.txn_id, Rejected(error))
        self._answer(handles, count, size, state)

    def _queue(self, partition: str) -> AppendQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = AppendQueue(
                self,
                self.plan.broker,
                self.plan.log,
                partition,
                wait_s=self.host.config.leader_wait_s,
                follow=not self._redirects,
                numbered=self.NUMBERED,
            )
            if self.leaving:
                queue.close()
        return queue

    def _unreadable(self, own: list[Any], size: int, problem: Exception, transaction: ClientTransaction | None) -> None:
        text = f"the batch cannot be read: {problem}; correct it, do not resend it"
        self._batch_refused(own, size, Error(DECODE_ERROR, text), transaction)

    def _batch_refused(self, own: list[Any], size: int, error: Error, transaction: ClientTransaction | None) -> None:
        self._turn_down_one(own, 1, size, error, transaction)

    def _count(self, payloads: list[bytes]) -> tuple[int, int]:
        """Count messages as unanswered. Returns their number and bytes."""
        count, size = len(payloads), sum(map(len, payloads))
        self._note(count, size, count)
        return count, size

    def _note(self, count: int, size: int, events: int) -> None:
        self._credit.received(count, size)
        self.host.received(count, size, events)

    # -------------------------------------------------------------------------------------------- answers go out

    def accepted(self, deliveries: Deliveries, stored: Appended, partition: str) -> None:
        if not self._tells_places:
            self._answer_all(deliveries, ACCEPTED)
            return
        rows = stored.rows(deliveries.events)
        if deliveries.events != deliveries.count:  # one: it tells a place, or nothing if its events stand in several
            rows = ((1, rows[0][1] if len(rows) == 1 else FORGOTTEN),)
        at = 0
        for count, offset in rows:
            self._settle_row(deliveries, at, count, offset, symbol(partition))
            at += count
        self._account(deliveries.count, deliveries.size, True)

    def _settle_row(self, deliveries: Deliveries, at: int, count: int, offset: int, partition: symbol) -> None:
        """Settle deliveries whose records are consecutive in the log, the first at `offset`; the first
        answer tells the offset of all if they came in a row."""
        link, handles = self.link, deliveries.handles
        if offset == FORGOTTEN:
            link.settle(handles[at : at + count], ACCEPTED)
            return
        if deliveries.in_row:
            link.settle(handles[at : at + 1], _stored(offset, count, partition))
            link.settle(handles[at + 1 : at + count], ACCEPTED)
            return
        for place in range(count):
            link.settle(handles[at + place : at + place + 1], _stored(offset + place, 1, partition))

    def uncertain(self, deliveries: Deliveries, why: Failed, partition: str) -> None:
        if self._tells_doubts or not deliveries.handles:
            self._answer_all(deliveries, UNKNOWN)
        else:
            self._asked_about.append(deliveries)
            self.host.spawn(self._find_out(deliveries, why, partition))
        self._order_at_risk()

    async def _find_out(self, deliveries: Deliveries, why: Failed, partition: str) -> None:
        wait_s = self.host.config.leader_wait_s
        broker, log = self.plan.broker, self.plan.log
        stored = await find_out(broker, log, partition, why, wait_s)
        if deliveries not in self._asked_about:  # the link is gone, and has let go of them
            return
        self._asked_about.remove(deliveries)
        if broker.describe(log) is None:  # the log is gone, and their fate with it
            self._answer_all(deliveries, Rejected(errors.log_deleted(log)))
        elif stored is None:
            self.in_doubt(deliveries)
        else:
            self._answer_all(deliveries, ACCEPTED if stored else RELEASED)
            if not stored:
                self._order_at_risk()
        self.host.flush_soon()

    def in_doubt(self, deliveries: Deliveries) -> None:
        """Leave deliveries of unknown outcome unanswered for good, and end the link."""
        self._doubtful.append(deliveries)
        self._doubtful_count += deliveries.count
        self.leave(errors.outcome_unknown(self.plan.log), over=True)

    def refused(self, deliveries: Deliveries, why: Failed) -> None:
        error = errors.append_refused(why, self.plan.log)
        self._answer_all(deliveries, Rejected(error))
        if why.kind == "deleted":
            self.leave(errors.log_deleted(self.plan.log))

    def turned_away(self, deliveries: Deliveries, why: str) -> None:
        self._answer_all(deliveries, RELEASED)
        self._order_at_risk()

    def broken(self, error: BaseException) -> None:
        self.host.fail(error)

    def _answer_all(self, deliveries: Deliveries, state: DeliveryState) -> None:
        self._answer(deliveries.handles, deliveries.count, deliveries.size, state)

    def _answer(self, handles: list[Any], count: int, size: int, state: DeliveryState) -> None:
        self.link.settle(handles, state)
        self._account(count, size, state is ACCEPTED)

    def _account(self, count: int, size: int, accepted: bool) -> None:
        self._credit.answered(count)
        self.host.answered(count, size, accepted)
        if not self.leaving:
            self._top_up()
        elif self.idle:
            self.maybe_close()

    def _top_up(self) -> None:
        missing = self._credit.missing(self.link.credit)
        if missing:
            self.link.grant(missing)

    def answer_in_transaction(self, deliveries: Deliveries, state: DeliveryState) -> None:
        """Settle deliveries whose batch was handed to a transaction."""
        accepted = isinstance(state, Transactional) and state.outcome is ACCEPTED
        self.link.settle(deliveries.handles, state)
        self._account(deliveries.count, deliveries.size, accepted)
        self.host.flush_soon()

    # -------------------------------------------------------------------------------------------- changes, leaving

    def on_change(self) -> None:
        super().on_change()
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

    @property
    def idle(self) -> bool:
        return self._credit.unanswered == self._doubtful_count

    def maybe_close(self) -> None:
        super().maybe_close()
        if self._doubtful and not self.link.alive:
            self._forget_doubtful()

    def _forget_doubtful(self) -> None:
        """Let go of doubtful deliveries: the peer was told that the link ended with an error, or has ended it itself.
        They are never settled, not even without a state, which some clients take for an answer: the engine keeps them
        until the connection ends.
        """
        doubtful, self._doubtful, self._doubtful_count = self._doubtful, [], 0
        for one in doubtful:
            self._credit.answered(one.count)
            self.host.answered(one.count, one.size, False)

    def gone(self) -> None:
        super().gone()
        self.quiesce()
        asked, self._asked_about = self._asked_about, []
        self._doubtful += asked
        self._forget_doubtful()
