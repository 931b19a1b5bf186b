"""The way of a producer's transactional events into one partition: a queue, and a link of the transaction's connection.

Rule never broken: nothing is sent twice. What the link did not answer is not known to be in the transaction, and then
that is rolled back as a whole; so there is no order to be kept over failures, and nothing to be sent again here.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Protocol

from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.client.errors import EventTooLargeError, HoldfastError, TransactionRolledBackError
from holdfast.client.produce.delivery import Delivery
from holdfast.client.transport.links import Sender

# As of a partition sender: enough to amortise a call, few enough that others get their turn.
PUMP_EVENTS = 512
PUMP_BYTES = 256 * 1024


class Book(Protocol):
    """The transaction, as its senders see it."""

    txn_id: bytes

    def answered(self, delivery: Delivery, state: DeliveryState) -> None: ...
    def lost(self, deliveries: list[Delivery], why: HoldfastError) -> None:
        """It is not known what became of these."""
        ...


class TransactionalSender:
    """Implements `SenderOwner`."""

    def __init__(self, window: int) -> None:
        self.link: Sender | None = None
        self.ended: HoldfastError | None = None
        self._window = window
        self._waiting: deque[Delivery] = deque()  # of the present transaction
        self._book: Book | None = None
        self._in_flight: dict[int, tuple[Delivery, Book]] = {}
        self._pumping = False

    def check_size(self, size: int) -> None:
        """Raises EventTooLargeError: the node would end the link."""
        limit = (self.link.max_message_size if self.link is not None else 0) or sys.maxsize
        if size > limit:
            raise EventTooLargeError.of(size, limit)

    def put(self, delivery: Delivery, book: Book) -> None:
        """It goes out in this turn of the loop, with what else comes in it."""
        assert book is self._book or not self._waiting, "an earlier transaction has left something behind"
        self._book = book
        self._waiting.append(delivery)
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump_now)

    def forget(self, book: Book) -> None:
        """The transaction is over: what was not sent under it never will be."""
        if book is self._book and self._waiting:
            waiting = list(self._waiting)
            self._waiting.clear()
            book.lost(waiting, TransactionRolledBackError("the transaction was rolled back before the event was sent"))

    def _pump_now(self) -> None:
        self._pumping = False
        self.pump()

    def pump(self) -> None:
        link, waiting = self.link, self._waiting
        if link is None or self.ended is not None or self._book is None:
            return
        while (count := min(len(waiting), link.credit, self._window - len(self._in_flight), PUMP_EVENTS)) > 0:
            items: list[Delivery] = []
            size = 0
            while len(items) < count and size < PUMP_BYTES:
                items.append(waiting.popleft())
                size += len(items[-1].content)
            numbers = link.send_many([item.content for item in items], txn_id=self._book.txn_id)
            for number, item in zip(numbers, items, strict=True):
                self._in_flight[number] = item, self._book

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        self.pump()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        for number, state in outcomes:
            found = self._in_flight.pop(number, None)
            if found is not None:
                delivery, book = found
                book.answered(delivery, state)
        self.pump()

    def on_closed(self, error: HoldfastError) -> None:
        self.ended = error
        in_flight, self._in_flight = self._in_flight, {}
        lost: dict[Book, list[Delivery]] = {}
        for delivery, book in in_flight.values():
            lost.setdefault(book, []).append(delivery)
        if self._waiting and self._book is not None:
            lost.setdefault(self._book, []).extend(self._waiting)
            self._waiting.clear()
        for book, deliveries in lost.items():
            book.lost(deliveries, error)
