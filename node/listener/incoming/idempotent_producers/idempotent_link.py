"""Links of idempotent producers: bound to a partition, opened in its log, each message with a number.

Problem: a producer that numbers its events must be able to resend them all after any loss, and to rely on what it is
told: accepted is stored, once; anything else ends what it may build upon.
Rules never broken, in addition to those of `message_link.py`:
 - `accepted` also for what was stored before, and only after that was committed: the answer is the partition's;
 - nothing is accepted after a message that was not. The link ends with the first one that is refused, with the same
   error, and the deliveries after it are released: the producer attaches again, and goes on by what the partition
   knows;
 - a producer that was fenced by a higher epoch is detached at once if this node has a replica, else with the next
   message.

Rejected: serving on after a refusal. The next number does not tell whether its sender has understood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast import protocol
from holdfast.amqp import ACCEPTED, RELEASED, ReceiverLink, Rejected, Transactional, Transfers, symbol
from holdfast.amqp.errors import Error
from holdfast.records.record_batch import Numbering, RecordBatch
from node.listener import errors
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import EndpointHost
from node.listener.errors import Refused
from node.listener.incoming.append_queue import Deliveries, QueuedBatch, sealed_messages
from node.listener.incoming.event_hubs_batch import Envelope
from node.listener.incoming.idempotent_producers import producer_attach
from node.listener.incoming.idempotent_producers.sequence_annotations import Run, SequenceNumberReader, Wrong
from node.listener.incoming.incoming_link import UNKNOWN
from node.listener.incoming.message_link import IncomingMessageLink
from node.partition.api import Failed, PartitionHandle, ProducerOpened
from node.partition.idempotence.producer_state import REMEMBERED_EVENTS

CREDIT_LIMIT = REMEMBERED_EVENTS // 2
"""Unsettled messages allowed on a link, so that all of them are recognised when they come again. Half of what is
remembered: when a connection breaks between the credit for new messages and the answers of the old ones, both count."""


class IdempotentLink(IncomingMessageLink):
    NUMBERED = True

    def __init__(self, host: EndpointHost, link: ReceiverLink, plan: LinkPlan, opened: ProducerOpened) -> None:
        super().__init__(host, link, plan)
        assert plan.partition is not None
        self._partition = plan.partition
        self._opened = opened
        self._numbers = SequenceNumberReader(opened.producer_id, opened.epoch, plan.partition)
        self._credit.window = min(self._credit.window, CREDIT_LIMIT)
        self._ordered = True
        self._watched: PartitionHandle | None = None
        self._end_watch: Callable[[], None] = _nothing

    def open(self) -> None:
        self.accept({protocol.LINK_PARTITION: symbol(self._partition), **producer_attach.answer(self._opened)})
        self._watch()

    # -------------------------------------------------------------------------------------------- messages come in

    def _take_in_transaction(self, event: Transfers, name: bytes) -> None:
        count, size = self._count(event.payloads)
        transaction = self.host.transactions.get(name)
        error = errors.unknown_transaction() if transaction is None else errors.not_idempotent_in_transaction()
        if transaction is not None:
            transaction.refuse(error.description or error.condition)
        self._answer(event.deliveries, count, size, Transactional(name, Rejected(error)))

    def _messages(self, deliveries: list[Any], payloads: list[bytes], transaction: ClientTransaction | None) -> None:
        assert transaction is None
        count, size = self._count(payloads)
        runs, wrong = self._numbers.read(payloads)
        queue = self._queue(self._partition)
        for run in runs:
            if run.stop - run.start == count:
                queue.submit(QueuedBatch(deliveries, self._sealed(run), count, size))
                return
            part = sum(map(len, payloads[run.start : run.stop]))
            own = deliveries[run.start : run.stop]
            queue.submit(QueuedBatch(own, self._sealed(run), run.stop - run.start, part))
        if wrong is not None:
            self._turn_down(deliveries, payloads, wrong)

    def _sealed(self, run: Run) -> RecordBatch:
        numbering = Numbering(self._opened.producer_id, self._opened.epoch, run.first)
        return sealed_messages(run.records, run.digests).numbered(numbering)

    def _open(self, envelope: Envelope) -> tuple[str, RecordBatch]:
        runs, wrong = self._numbers.read(envelope.messages)
        if wrong is not None:
            raise Refused(wrong.error)
        if len(runs) != 1:
            raise Refused(errors.numbers_wrong("the numbers of the messages of a batch do not follow each other"))
        self._numbers.check_front(envelope.front, runs[0].first)
        return self._partition, self._sealed(runs[0])

    def _batch_refused(self, own: list[Any], size: int, error: Error, transaction: ClientTransaction | None) -> None:
        super()._batch_refused(own, size, error, transaction)
        self.leave(error)

    def _turn_down(self, deliveries: list[object], payloads: list[bytes], wrong: Wrong) -> None:
        at = wrong.position
        behind = payloads[at + 1 :]
        self._answer(deliveries[at : at + 1], 1, len(payloads[at]), Rejected(wrong.error))
        if behind:
            self._answer(deliveries[at + 1 :], len(behind), sum(map(len, behind)), RELEASED)
        self.leave(wrong.error)

    # -------------------------------------------------------------------------------------------- answers go out

    def refused(self, deliveries: Deliveries, why: Failed) -> None:
        error, handles, count = errors.append_refused(why, self.plan.log), deliveries.handles, deliveries.count
        known = why.known if deliveries.events == count else 0  # a batch in one delivery is known as a whole, or not
        if known:  # the first ones are certainly stored
            self._answer(handles[:known], known, 0, ACCEPTED)
        self._answer(handles[known:], count - known, deliveries.size, Rejected(error))
        self.leave(error)

    def turned_away(self, deliveries: Deliveries, why: str) -> None:
        if deliveries.in_doubt and deliveries.handles and not self._tells_doubts:
            self.in_doubt(deliveries)
            return
        self._answer_all(deliveries, UNKNOWN if deliveries.in_doubt else RELEASED)
        self._order_at_risk()

    # -------------------------------------------------------------------------------------------- the other producer

    def _watch(self) -> None:
        """Ask the partition to say when the producer is taken over."""
        try:
            handle = self.plan.broker.handle(self.plan.log, self._partition)
        except KeyError:  # the log is gone, and soon this link
            return
        if handle is not self._watched:
            self._end_watch()
            self._watched = handle
            self._end_watch = handle.watch_producer(self._opened.producer_id, self._taken_over)

    def _taken_over(self, epoch: int) -> None:
        """Note a greater epoch. Called in the midst of a Raft turn."""
        if epoch > self._opened.epoch:
            asyncio.get_running_loop().call_soon(self._fenced, epoch)

    def _fenced(self, epoch: int) -> None:
        if self.link.alive:
            self.leave(errors.producer_fenced(self._opened.producer_id, self._opened.epoch, epoch))

    def on_change(self) -> None:
        super().on_change()
        if not self.leaving:
            self._watch()

    def gone(self) -> None:
        super().gone()
        self._end_watch()
        self._end_watch, self._watched = _nothing, None


def _nothing() -> None:
    """Do nothing: there is no watch to end."""
