"""The control link of transactions: declares and discharges come in, and each gets its answer.

Problem: what stock clients do with an answer decides whether work is done twice. They act on settled answers only, know
`declared`, `accepted` and `rejected` and take anything else for success, and take the end of the link during a commit
for a rollback.
Rules never broken:
 - every declare and discharge is answered by one settled outcome of these three;
 - `rejected` to a commit is a promise that nothing of it counts: it is said when the abort is decided, and not before;
 - the link is not closed by this node while a discharge is unanswered, unless nobody can know what was decided;
 - what is declared on the link and not discharged when it ends is rolled back;
 - a transaction takes nothing any more from when its discharge was read, however long that waits to be carried out.

A link that names a transactional id has one transaction at a time: a declare after a running discharge waits for it.
Discharges are answered when committed readers see what was decided; if the link asks for answers at the decision, the
next declare of the id waits for that. The link of a member of a transaction group has one transaction, which a
discharge prepares: `accepted` says that it waits for the decision of its group, and that the end of the link does not
roll it back any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from holdfast import protocol
from holdfast.amqp import (
    ACCEPTED,
    RELEASED,
    Declared,
    DeliveryState,
    MalformedMessage,
    ReceiverLink,
    Rejected,
    Transfers,
    short,
    uint,
    ulong,
)
from holdfast.amqp.encoding.counting import count_values
from holdfast.amqp.errors import (
    DECODE_ERROR,
    INTERNAL_ERROR,
    INVALID_FIELD,
    LINK_STOLEN,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    TRANSACTION_UNKNOWN_ID,
    Error,
)
from holdfast.amqp.transactions import Declare, Discharge, decode_control
from node.client_transactions.errors import Code, TransactionFailed
from node.client_transactions.transaction import HeldTransaction
from node.client_transactions.transaction_group_member import MemberProducer
from node.client_transactions.transactional_ids import TransactionManager
from node.client_transactions.transactional_producer import TransactionalProducer
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.amqp_transactions.coordinator_attach import CoordinatorTerms, granted
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import Endpoint, EndpointHost

CREDIT = 16
"""Declares and discharges under way on a link. Stock clients need two: a discharge and the next declare."""

CONTROL_BYTES = 4096
"""Bytes of one declare or discharge. Both are some ten bytes, and what a client may add to any message."""

CONTROL_VALUES = 256
"""Lists and their values in one declare or discharge. Each becomes an object, were it one byte on the wire."""

MAX_OPEN = 100
"""Open transactions of one connection, on all of its control links together. Those of links that were detached before a
discharge count until they are rolled back."""

_CONDITIONS: dict[Code, str] = {
    "unavailable": INTERNAL_ERROR,
    "fenced": LINK_STOLEN,
    "ended": TRANSACTION_ROLLBACK,
    "timeout": TRANSACTION_TIMEOUT,
    "invalid": INVALID_FIELD,
    "too-many": RESOURCE_LIMIT_EXCEEDED,
}


Work = Callable[[], Coroutine[Any, Any, DeliveryState | None]]
"""The work of a request; it returns the outcome. None: there is none, and the link ends."""


class TransactionsHost(EndpointHost, Protocol):
    """A connection that transactions can be declared on."""

    transactions: dict[bytes, ClientTransaction]


def error_of(failed: TransactionFailed) -> Error:
    return Error(_CONDITIONS[failed.code], failed.detail)


def _read(payload: bytes) -> Declare | Discharge:
    """Decode a declare or discharge. Raises MalformedMessage."""
    if count_values(payload, CONTROL_VALUES) > CONTROL_VALUES:
        raise MalformedMessage(f"it holds more than {CONTROL_VALUES} values; send it without them")
    return decode_control(payload)


class CoordinatorLink(Endpoint):
    link: ReceiverLink
    host: TransactionsHost

    def __init__(
        self,
        host: TransactionsHost,
        link: ReceiverLink,
        plan: LinkPlan,
        manager: TransactionManager,
        terms: CoordinatorTerms,
        producer: TransactionalProducer | None,
    ) -> None:
        """`producer`: that of the transactional id that the link names, or of the group member that it is."""
        super().__init__(host, link, plan)
        self._member = producer if isinstance(producer, MemberProducer) else None
        self._heard_bytes = 0  # from its peer, as far as was looked at
        self._manager = manager
        self._terms = terms
        self._producer = producer
        self._open: dict[bytes, ClientTransaction] = {}
        self._unanswered = 0
        self._waiting: deque[tuple[list[Any], Work]] = deque()  # in order, behind the one under way
        self._working = False

    def is_stranded(self) -> bool:
        group = None if self._producer is None else self._producer.group
        return self.plan.broker.is_coordinator_stranded(group)

    def open(self) -> None:
        self.link.accept(target=granted(self._terms), properties=self._properties(), max_message_size=CONTROL_BYTES)
        self.link.grant(CREDIT)
        if self._member is not None:
            self._manager.leases.keep(self._member, self._was_heard, self._lease_over)

    def _properties(self) -> dict[str, Any]:
        producer = self._producer
        timeout_ms = self._terms.timeout_ms if producer is None else producer.timeout_ms
        told: dict[str, Any] = {protocol.TRANSACTION_TIMEOUT: uint(timeout_ms)}
        if self._terms.answers_early:
            told[protocol.DISCHARGE_ANSWER] = protocol.ANSWERED_WHEN_DECIDED
        cluster = self.plan.broker.cluster_id
        if protocol.LINK_CLUSTER in self.link.remote_properties and cluster is not None:
            told[protocol.LINK_CLUSTER] = cluster
        if producer is None or producer.pair is None:
            return told
        if self._member is not None:
            told[protocol.GROUP_MEMBER] = self._member.member
            told[protocol.GROUP_LEASE] = uint(self._member.lease_ms)
        else:
            told[protocol.TRANSACTIONAL_ID] = producer.name
            told[protocol.TRANSACTION_HOLDER] = producer.holder
        told[protocol.PRODUCER_ID], told[protocol.PRODUCER_EPOCH] = ulong(producer.pair[0]), short(producer.pair[1])
        if producer.last is not None:
            last = producer.last
            told[protocol.LAST_TRANSACTION] = {
                "producer-id": ulong(last.producer_id),
                "epoch": short(last.epoch),
                "committed": last.committed,
                "how": last.how,
            }
        return told

    # ------------------------------------------------------------------------------------------------- requests

    def on_transfers(self, event: Transfers) -> None:
        settled = self.link.sent_settled
        if len(event.deliveries) != len(event.payloads) or any(map(settled, event.deliveries)):
            text = "declare and discharge must be sent unsettled: their outcome is the answer"
            self.leave(Error(INVALID_FIELD, text), over=True)
            self.link.settle(event.deliveries, RELEASED)
            return
        for delivery, payload in zip(event.deliveries, event.payloads, strict=True):
            self._unanswered += 1
            try:
                request = _read(payload)
            except MalformedMessage as problem:
                self._answer([delivery], Rejected(Error(DECODE_ERROR, f"neither declare nor discharge: {problem}")))
                continue
            self._take([delivery], request)
        self.host.flush_soon()

    def _take(self, deliveries: list[Any], request: Declare | Discharge) -> None:
        work: Work
        if isinstance(request, Declare):
            work = partial(self._declare, request)
        else:
            own = self._open.get(request.txn_id)
            if own is not None and own.is_open:
                own.ends()
            else:
                own = None
            work = partial(self._discharge, own, fail=request.fail)
        if self._producer is None:
            self._start(deliveries, work)
            return
        self._waiting.append((deliveries, work))
        self._next()

    def _next(self) -> None:
        if self._waiting and not self._working:
            self._working = True
            self._start(*self._waiting.popleft())

    def _start(self, deliveries: list[Any], work: Work) -> None:
        self.host.errand(self._carry_out(deliveries, work))

    async def _carry_out(self, deliveries: list[Any], work: Work) -> None:
        """Carry out a request to its end, even if the connection ends before."""
        try:
            outcome = await work()
        except Exception as error:  # noqa: BLE001 - a bug of one connection
            self.host.fail(error)
            return
        if outcome is not None:
            self._answer(deliveries, outcome)
        self._working = False
        self._next()
        if self._producer is not None and self._producer.fenced and not self._waiting:
            self.fenced(self._producer.fenced)

    def _answer(self, deliveries: list[Any], outcome: DeliveryState) -> None:
        self._unanswered -= 1
        if isinstance(outcome, Rejected) and not self.link.takes_rejected and self.link.alive:
            self.leave(outcome.error, over=True)
        self.link.settle(deliveries, outcome)
        if not self.leaving:
            self.link.grant(1)
        self.maybe_close()
        self.host.flush_soon()

    async def _declare(self, request: Declare) -> DeliveryState:
        if request.global_id is not None:
            text = "distributed transactions are not implemented here; declare without a global-id"
            return Rejected(Error(NOT_IMPLEMENTED, text))
        if self._producer is not None and self._open:
            return Rejected(Error(NOT_ALLOWED, "a transactional id has one transaction at a time: discharge it first"))
        if len(self.host.transactions) + self.host.declares_under_way >= MAX_OPEN:
            text = f"{MAX_OPEN} transactions are open on this connection: discharge one, then declare"
            return Rejected(Error(RESOURCE_LIMIT_EXCEEDED, text))
        self.host.declares_under_way += 1
        try:
            transaction = await self._begin()
        except TransactionFailed as failed:
            return Rejected(error_of(failed))
        finally:
            self.host.declares_under_way -= 1
        transaction.answers_early = self._terms.answers_early
        own = ClientTransaction(self.host, transaction, self.host.config.leader_wait_s)
        if not self.link.alive:
            self.host.transactions[own.txn_id] = own
            await self._abandon(own)
            return Rejected(Error(TRANSACTION_ROLLBACK, "the link has ended"))
        self._open[own.txn_id] = self.host.transactions[own.txn_id] = own
        return Declared(own.txn_id)

    async def _begin(self) -> HeldTransaction:
        """Begin a transaction. Raises TransactionFailed."""
        if self._producer is not None:
            return await self._manager.begin(self._producer)
        return await self._manager.begin_anonymous(self._terms.timeout_ms)

    async def _discharge(self, own: ClientTransaction | None, *, fail: bool) -> DeliveryState | None:
        """Discharge a transaction. `own` None: the request named no transaction that is open on this link."""
        if own is None:
            text = "no transaction of that id is open on this link: it was never declared here, or discharged before"
            return Rejected(Error(TRANSACTION_UNKNOWN_ID, text))
        try:
            await (own.abort() if fail else own.commit())
        except TransactionFailed as failed:
            if not failed.decided:
                text = f"it is not known what became of the transaction: {failed.detail}"
                fenced = self._member is not None and failed.code == "fenced"
                self._unanswered -= 1
                self.leave(Error(LINK_STOLEN if fenced else INTERNAL_ERROR, text), over=True)
                return None
            return Rejected(error_of(failed))
        finally:
            self._forget(own)
        return ACCEPTED

    def _forget(self, own: ClientTransaction) -> None:
        self._open.pop(own.txn_id, None)
        self.host.transactions.pop(own.txn_id, None)
        if self._producer is None:
            self._manager.give_back(own.transaction)
        elif self._member is not None:
            self._manager.leases.let_go(self._member)

    # ------------------------------------------------------------------------------------------------- leases

    def _was_heard(self) -> bool:
        """Tell whether the peer has sent anything, even a heartbeat, since the last call. While this node does not read
        for lack of room, its peer is not silent."""
        before, self._heard_bytes = self._heard_bytes, self.host.heard_bytes
        return self._heard_bytes != before or self.host.is_held_back

    def _lease_over(self, why: str) -> None:
        for own in self._open.values():
            own.refuse(why)
        if self.link.alive and not self.leaving:
            self.leave(Error(TRANSACTION_TIMEOUT, why))
            self.host.flush_soon()

    # ------------------------------------------------------------------------------------------------- the end

    def fenced(self, why: str) -> None:
        """Close the link: another one holds the transactional id."""
        if self.link.alive and not self.leaving:
            self.leave(Error(LINK_STOLEN, why))

    @property
    def idle(self) -> bool:
        return self._unanswered == 0

    def gone(self) -> None:
        super().gone()
        for own in list(self._open.values()):
            if own.is_open:
                own.ends()
                self._open.pop(own.txn_id, None)
                self.host.errand(self._abandon(own))
            else:
                own.give_up()
        if self._producer is not None:
            self._manager.let_go(self._producer)

    async def _abandon(self, own: ClientTransaction) -> None:
        """Abort a transaction of a link that is gone. Until then it counts as its connection's: a client that declares
        and detaches in a loop has no more under way than one that discharges."""
        try:
            await own.abort()
        except TransactionFailed:  # it is left to its timeout
            return
        finally:
            self.host.transactions.pop(own.txn_id, None)
            if self._producer is None:
                self._manager.give_back(own.transaction)
