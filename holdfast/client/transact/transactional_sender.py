"""Sender of transactional events to one partition: a queue, and a link of the transaction's connection.

It never resends. If the link did not answer an event, that event may be missing in the transaction, which is then
rolled back as a whole. So there is no order to keep over failures.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.client.errors import HoldfastError
from holdfast.client.produce.batch_queue import BatchQueue
from holdfast.client.produce.delivery import PendingBatch
from holdfast.client.transport.links import Sender

# Most events of a transaction in flight to a partition: half of those that the partition remembers. So after a change
# of leaders its node can ask the new leader about all events that were in flight.
MOST_UNDER_WAY = 2000


class Book(Protocol):
    """The part of a transaction that its senders need."""

    txn_id: bytes

    def answered(self, batch: PendingBatch, state: DeliveryState) -> None: ...
    def settle(self, batch: PendingBatch, error: HoldfastError | None) -> None: ...
    def fail(self, why: HoldfastError) -> None:
        """Roll back, and give up whatever is not settled."""
        ...


class TransactionalSender:
    """Sends the events of one transaction after the other to one partition. Implements `SenderOwner`."""

    def __init__(self, partition: str, window: int) -> None:
        self.link: Sender | None = None
        self.ended: HoldfastError | None = None
        self._most_events = min(window, MOST_UNDER_WAY)
        self.queue = BatchQueue(partition, self._most_events, lambda _: None)  # the end of the transaction tells
        self._book: Book | None = None  # of all that is not settled
        self._unanswered: dict[int, PendingBatch] = {}  # by the link's number; given up, perhaps

    @property
    def is_waiting(self) -> bool:
        """Something is not settled."""
        return not all(batch.is_settled for batch in [*self._unanswered.values(), *self.queue])

    def serve(self, book: Book) -> None:
        """Begin with a transaction, unless that was done."""
        assert book is self._book or not list(self.queue), "an earlier transaction has left something behind"
        self._book = book

    def give_up(self, book: Book, why: HoldfastError) -> None:
        """Wait for nothing of this transaction any more; nothing of it is sent from now on."""
        if book is self._book:
            for batch in [*self._unanswered.values(), *self.queue.withdraw(lambda _: True)]:
                if not batch.is_settled:
                    book.settle(batch, why)

    def pump(self) -> None:
        """The turn is over: send what may be sent now."""
        self.queue.release()
        self._go_on()

    def not_sent(self, why: HoldfastError) -> None:
        raise AssertionError("failures of transactions are theirs")

    def _go_on(self) -> None:
        link, queue, book = self.link, self.queue, self._book
        while link is not None and book is not None and (batch := queue.first) is not None:
            if batch.weight > link.batch_bytes and batch.events > 1:
                queue.cut_first(link.batch_bytes)
            under_way = sum(one.events for one in self._unanswered.values())
            room = min(link.credit, self._most_events - under_way)
            if batch.events > room or not queue.has_slot(len(self._unanswered)):
                return
            number = link.send_batch(batch.seal(link.codec, with_digests=False), txn_id=book.txn_id)
            self._unanswered[number] = queue.leaves()

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        self._go_on()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for number, state in outcomes:
            batch = self._unanswered.pop(number, None)
            if batch is not None and not batch.is_settled and self._book is not None:
                self._book.answered(batch, state)
        self._go_on()

    def on_closed(self, error: HoldfastError) -> None:
        self.link, self.ended = None, error
        if self._book is not None and self.is_waiting:
            self._book.fail(error)
