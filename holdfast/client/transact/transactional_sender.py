"""The route of a producer's transactional events to one partition: a queue, and a link of the transaction's connection.

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
from holdfast.client.produce.chunks.chunk import Run
from holdfast.client.produce.chunks.delivery import Outcome
from holdfast.client.produce.chunks.single_events import Delivery, Staged
from holdfast.client.produce.transfers import UnderWay, next_transfers, room_of
from holdfast.client.transport.links import Sender

# Events that a transaction has under way to a partition, at most: half of those that the partition remembers of it, so
# that its node can ask the next leader again for all that was on its way when the leadership changed.
MOST_UNDER_WAY = 2000


class Book(Protocol):
    """The transaction, as its senders see it."""

    txn_id: bytes

    def answered(self, run: Run, state: DeliveryState) -> None: ...
    def lost(self, runs: list[Run], why: HoldfastError) -> None:
        """It is not known what became of these."""
        ...


class TransactionalSender:
    """Implements `SenderOwner`."""

    def __init__(self, partition: str | None, window: int) -> None:
        self.link: Sender | None = None
        self.ended: HoldfastError | None = None
        self._window = min(window, MOST_UNDER_WAY)
        self._staged = Staged(partition, told_already, numbered=False)  # in this turn, of the present transaction
        self._waiting: deque[Run] = deque()  # of the present transaction
        self._book: Book | None = None
        self._under_way = UnderWay()
        self._books: dict[int, Book] = {}  # whose what is under way is, by the link's number
        self._pumping = False

    def check_size(self, size: int) -> None:
        """Raises EventTooLargeError: the node would end the link."""
        limit = (self.link.max_message_size if self.link is not None else 0) or sys.maxsize
        if size > limit:
            raise EventTooLargeError.of(size, limit)

    @property
    def takes_messages(self) -> bool:
        """See `Staged`."""
        return self._staged.takes_messages

    def put_one(self, content: bytes, book: Book, *, body: bool) -> Delivery:
        """A single event: its message, or its body. It goes out in this turn of the loop, with what else comes in
        it."""
        self._belongs_to(book)
        delivery = self._staged.add(content, None, None, body=body)
        self._soon(book)
        return delivery

    def put(self, run: Run, book: Book) -> None:
        """The same, of events that were given together."""
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
        """The transaction is over: what was not sent under it never will be."""
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
    """Of events that were lost with their transaction, the end of that tells."""
