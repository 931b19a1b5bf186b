"""Packed batches of a link that have arrived and wait until there is room for what is in them.

Problem: a few hundred bytes on the wire may hold megabytes, so credit for transfers bounds nothing.
Rule never broken: of one link, no more is open at once than `most_bytes` and one batch; everything behind it stays as
it came, in order, and is answered in the end like what was opened. Nor is more opened in one turn of the event loop
than MESSAGES_A_TURN and one batch: a batch that is refused makes room at once, and so would the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from node.listener.transactions.client_transaction import ClientTransaction

MESSAGES_A_TURN = 16_384
"""In batches of a link that are opened in one turn of the event loop: some microseconds each, if they are looked at."""


class Unopened(NamedTuple):
    own: list[Any]  # the delivery; none if it came settled
    payload: bytes
    transaction: ClientTransaction | None


class UnopenedBatches:
    def __init__(self, most_bytes: int, take: Callable[[Unopened], None]) -> None:
        """`take`: opens a batch, says so by `opened`, and sees to its answer, of which `answered` hears."""
        self._most_bytes, self._take = most_bytes, take
        self._waiting: deque[Unopened] = deque()
        self._open_bytes = 0
        self._taking = False
        self._opened_messages = 0  # since it has rested
        self._rests = False  # until the next turn of the loop

    def put(self, batch: Unopened) -> None:
        """The end of its transaction waits for it."""
        if batch.transaction is not None:
            batch.transaction.expects()
        self._waiting.append(batch)

    def opened(self, size: int, messages: int) -> None:
        """`messages`: those in it; of a batch that cannot be read, which may have cost anything, MESSAGES_A_TURN."""
        self._open_bytes += size
        self._opened_messages += messages

    def answered(self, size: int) -> None:
        self._open_bytes -= size
        if self._waiting:
            self.take_on()

    def take_on(self) -> None:
        """What there is room for. An answer that comes at once, in the midst of it, changes nothing about the order."""
        if self._taking or self._rests:
            return
        self._taking = True
        try:
            while self._waiting and self._open_bytes < self._most_bytes:
                if self._opened_messages >= MESSAGES_A_TURN:
                    self._rests = True
                    asyncio.get_running_loop().call_soon(self._rested)
                    break
                batch = self._waiting.popleft()
                self._take(batch)
                _done(batch)
        finally:
            self._taking = False

    def _rested(self) -> None:
        self._opened_messages, self._rests = 0, False
        self.take_on()

    def given_up(self) -> Iterator[Unopened]:
        """All that waits: who iterates answers it, unopened."""
        while self._waiting:
            batch = self._waiting.popleft()
            self._open_bytes += len(batch.payload)
            yield batch
            _done(batch)


def _done(batch: Unopened) -> None:
    if batch.transaction is not None:
        batch.transaction.heard()
