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
from holdfast.records.codec import Codec

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

    def __init__(self, partition: str, window: int, codec: Codec = Codec.NONE) -> None:
        self.link: Sender | None = None
        self.ended: HoldfastError | None = None
        most_unanswered = min(window, MOST_UNDER_WAY)
        self.queue = BatchQueue(partition, most_unanswered, lambda _: None)  # the end of the transaction tells
        self._codec = codec
        self._book: Book | None = None  # of all that is not settled

    @property
    def is_waiting(self) -> bool:
        """Something is not settled."""
        return not all(batch.is_settled for batch in self.queue)

    def serve(self, book: Book) -> None:
        """Begin with a transaction, unless that was done."""
        assert book is self._book or not self.is_waiting, "an earlier transaction has left something behind"
        self._book = book

    def give_up(self, book: Book, why: HoldfastError) -> None:
        """Wait for nothing of this transaction any more; nothing of it is sent from now on."""
        if book is self._book:
            for batch in [*self.queue.sent, *self.queue.withdraw(lambda _: True)]:
                if not batch.is_settled:
                    book.settle(batch, why)

    def pump(self) -> None:
        """The turn is over: send what may be sent now."""
        self.queue.release()
        self._go_on()

    def _go_on(self) -> None:
        link, book = self.link, self._book
        while link is not None and book is not None and (batch := self.queue.next_for(link)) is not None:
            sealed = batch.seal(self._codec, with_digests=False)
            self.queue.leaves(link.send_batch(sealed, txn_id=book.txn_id))

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        self._go_on()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for number, state in outcomes:
            batch = self.queue.sent.settled(number)
            if batch is not None and not batch.is_settled and self._book is not None:
                self._book.answered(batch, state)
        self._go_on()

    def on_closed(self, error: HoldfastError) -> None:
        self.link, self.ended = None, error
        if self._book is not None and self.is_waiting:
            self._book.fail(error)
