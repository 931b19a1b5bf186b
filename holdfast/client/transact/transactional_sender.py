"""Sender of transactional events to one partition: a queue, and a link of the transaction's connection.

It never resends. If the link did not answer an event, that event may be missing in the transaction, which is then
rolled back as a whole. So there is no order to keep over failures.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import Protocol

from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.client.errors import EventTooLargeError, HoldfastError, TransactionRolledBackError
from holdfast.client.produce.chunks.chunk import Run
from holdfast.client.produce.chunks.delivery import Outcome
from holdfast.client.produce.chunks.single_events import Delivery, Staged
from holdfast.client.produce.transfers import UnderWay, next_transfers, room_of
from holdfast.client.transport.links import Sender

# Most events of a transaction in flight to a partition: half of those that the partition remembers. So after a change
# of leaders its node can ask the new leader about all events that were in flight.
MOST_UNDER_WAY = 2000


class Book(Protocol):
    """The part of a transaction that its senders need."""

    txn_id: bytes

    def answered(self, run: Run, state: DeliveryState) -> None: ...
    def lost(self, runs: list[Run], why: HoldfastError) -> None:
        """Take events of unknown outcome."""
        ...


class TransactionalSender:
    """A sender of transactional events to one partition. Implements `SenderOwner`."""

    def __init__(self, partition: str | None, window: int) -> None:
        self.link: Sender | None = None
        self.ended: HoldfastError | None = None
        self._window = min(window, MOST_UNDER_WAY)
        self._staged = Staged(partition, told_already, numbered=False)  # of this turn and the present transaction
        self._waiting: deque[Run] = deque()  # of the present transaction
        self._book: Book | None = None
        self._under_way = UnderWay()
        self._books: dict[int, Book] = {}  # transactions of the events in flight, by delivery number
        self._pumping = False

    def check_size(self, size: int) -> None:
        """Raise EventTooLargeError for an event beyond the link's limit, since the node would end the link."""
        limit = (self.link.max_message_size if self.link is not None else 0) or sys.maxsize
        if size > limit:
            raise EventTooLargeError.of(size, limit)

    @property
    def takes_messages(self) -> bool:
        """True while single events of this turn are queued as messages, not as bodies: see `Staged`."""
        return self._staged.takes_messages

    def put_one(self, content: bytes, book: Book, *, body: bool) -> Delivery:
        """Queue a single event, as a message or a body; it goes out in this turn of the loop."""
        self._belongs_to(book)
        delivery = self._staged.add(content, None, None, body=body)
        self._soon(book)
        return delivery

    def put(self, run: Run, book: Book) -> None:
        """Queue events that were given together; they go out in this turn of the loop."""
        self._belongs_to(book)
        self._staged.append(run)
        self._soon(book)

    def _belongs_to(self, book: Book) -> None:
        left = self._waiting or self._staged
        assert book is self._book or not left, "an earlier transaction has left something behind"
        self._book = book

    def _soon(self, book: Book) -> None:
        if self.ended is not None:
            book.lost(self._staged.take(), self.ended)
        elif not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump_now)

    def forget(self, book: Book) -> None:
        """Drop the unsent events of a transaction that is over."""
        if book is self._book:
            self._waiting.extend(self._staged.take())
            waiting = list(self._waiting)
            self._waiting.clear()
            if waiting:
                why = TransactionRolledBackError("the transaction was rolled back before the event was sent")
                book.lost(waiting, why)

    def _pump_now(self) -> None:
        self._pumping = False
        self._waiting.extend(self._staged.take())
        self.pump()

    def pump(self) -> None:
        link, waiting = self.link, self._waiting
        if link is None or self.ended is not None or self._book is None:
            return
        now_s = asyncio.get_running_loop().time()
        while waiting and (room := min(link.credit, self._window - self._under_way.events)) > 0:
            transfers = next_transfers(waiting, room_of(link, room))
            for number in self._under_way.send(link, transfers, now_s=now_s, txn_id=self._book.txn_id):
                self._books[number] = self._book

    # ---------------------------------------------------------------- from the link

    def on_credit(self) -> None:
        self.pump()

    def on_outcomes(self, outcomes: list[tuple[int, DeliveryState]]) -> None:
        now_s = asyncio.get_running_loop().time()
        for number, state in outcomes:
            transfer, book = self._under_way.pop(number, now_s), self._books.pop(number, None)
            if transfer is not None and book is not None:
                for run in transfer.runs:
                    book.answered(run, state)
        self.pump()

    def on_closed(self, error: HoldfastError) -> None:
        self.ended = error
        lost: dict[Book, list[Run]] = {}
        for number, transfer in self._under_way.take_back():
            lost.setdefault(self._books.pop(number), []).extend(transfer.runs)
        self._waiting.extend(self._staged.take())
        if self._waiting and self._book is not None:
            lost.setdefault(self._book, []).extend(self._waiting)
            self._waiting.clear()
        for book, runs in lost.items():
            book.lost(runs, error)


def told_already(_: Outcome) -> None:
    """Ignore the failure of an event: the end of its transaction reports it."""
