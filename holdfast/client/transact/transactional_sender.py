"""Sender of transactional events to one partition: a queue, and a link of the transaction's connection.

It never resends. If the link did not answer an event, that event may be missing in the transaction, which is then
rolled back as a whole. So there is no order to keep over failures.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Protocol

from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.client.errors import EventTooLargeError, HoldfastError, TransactionRolledBackError
from holdfast.client.produce.batch_queue import BatchQueue
from holdfast.client.produce.delivery import Delivery, PendingBatch
from holdfast.client.transport.links import Sender
from holdfast.records.ordered_window import OrderedWindow

# Most events of a transaction in flight to a partition: half of those that the partition remembers. So after a change
# of leaders its node can ask the new leader about all events that were in flight.
MOST_UNDER_WAY = 2000


class Book(Protocol):
    """The part of a transaction that its senders need."""

    txn_id: bytes

    def answered(self, batch: PendingBatch, state: DeliveryState) -> None: ...
    def lost(self, batches: list[PendingBatch], why: HoldfastError) -> None:
        """Take events of unknown outcome."""
        ...


class TransactionalSender:
    """A sender of transactional events to one partition. Implements `SenderOwner`."""

    def __init__(self, partition: str, window: int) -> None:
        self.link: Sender | None = None
        self.ended: HoldfastError | None = None
        self._most_events = min(window, MOST_UNDER_WAY)
        self._queue = BatchQueue(partition, self._most_events, told_already)  # of the present transaction
        self._book: Book | None = None
        self._window: OrderedWindow[tuple[PendingBatch, Book], None] = OrderedWindow()
        self._sent_events = 0  # unanswered
        self._pumping = False

    def check_size(self, size: int) -> None:
        """Raise EventTooLargeError for an event beyond the link's limit, since the node would end the link."""
        limit = (self.link.max_message_size if self.link is not None else 0) or sys.maxsize
        if size > limit:
            raise EventTooLargeError.of(size, limit)

    def put(self, records: Sequence[bytes], book: Book, *, bodies: bool) -> list[Delivery]:
        """Messages, or bodies. They go out in this turn of the loop, with what else comes in it."""
        assert book is self._book or not list(self._queue), "an earlier transaction has left something behind"
        self._book = book
        parts = self._queue.extend(records, bodies=bodies)
        if self.ended is not None:
            book.lost(self._withdrawn(), self.ended)
        elif not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump_now)
        return parts

    def _withdrawn(self) -> list[PendingBatch]:
        return self._queue.withdraw(lambda _: True)

    def forget(self, book: Book) -> None:
        """Drop the unsent events of a transaction that is over."""
        if book is self._book and (waiting := self._withdrawn()):
            book.lost(waiting, TransactionRolledBackError("the transaction was rolled back before the event was sent"))

    def _pump_now(self) -> None:
        self._pumping = False
        self._queue.release()
        self.pump()

    def pump(self) -> None:
        link, queue, book = self.link, self._queue, self._book
        if link is None or self.ended is not None or book is None:
            return
        while (batch := queue.first) is not None:
            if batch.weight > link.batch_bytes and batch.events > 1:
                queue.cut_first(link.batch_bytes)
            if min(link.credit, self._most_events - self._sent_events) < batch.events:
                return
            number = link.send_batch(batch.seal(link.codec, with_digests=False), txn_id=book.txn_id)
            self._window.sent(number, (queue.leaves(), book))
            self._sent_events += batch.events

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        self.pump()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for number, state in outcomes:
            answered = self._window.settled(number)
            if answered is not None:
                batch, book = answered
                self._sent_events -= batch.events
                book.answered(batch, state)
        self.pump()

    def on_closed(self, error: HoldfastError) -> None:
        self.ended = error
        lost: dict[Book, list[PendingBatch]] = {}
        for (batch, book), _ in self._window.take_back():
            lost.setdefault(book, []).append(batch)
        waiting = self._withdrawn()
        if waiting and self._book is not None:
            lost.setdefault(self._book, []).extend(waiting)
        for book, batches in lost.items():
            book.lost(batches, error)


def told_already(_: PendingBatch) -> None:
    """Ignore the failure of an event: the end of its transaction reports it."""
