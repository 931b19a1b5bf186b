"""Attaches of one connection whose answer takes a while: a few at a time, the others queued.

The problem: the claim of a consumer group, the opening of a producer and the position of `@latest` each cost an entry
in a log or a question to a leader, and work in the turn that brings the answer; a peer may attach ten thousand links in
one write. The rules: UNDER_WAY of a connection are under way at once, in the order in which they came. A connection
that floods the node has one at a time, until nothing of it waits: the entries of honest producers wait behind few of
its own. Receivers that wait for a partition of their group, which may take as long as others keep theirs, do not hold
up the rest, and there are no more than HELD of them. A link that is gone when its turn comes is passed over.
Rejected: a limit for the node. One peer would use it up for all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.amqp import Link
from holdfast.amqp.errors import RESOURCE_LIMIT_EXCEEDED, Error
from node.listener.errors import Refused
from node.listener.limits.fair_scheduling import Turns

UNDER_WAY = 4
"""Attaches under way of one connection: each takes a millisecond of the turn that answers it. Some hundreds a second
are answered so."""

WAITING = 32
"""Attaches of one connection that wait their turn. More are not taken in: the peer's input waits. Work that is taken in
before it can be answered delays everybody, and what it makes the node hold ends in a refusal that costs as much as the
answer."""

LETTING_GO = 4
"""Claims of one connection that are released at once: each is an entry in a log. A connection that ends may have had
thousands, and the entries of honest producers wait behind them."""

HELD = 256
"""Receivers of one connection that wait for a partition: more than a process has any use for."""

HELD_AT_FULL_PACE = 8
"""Receivers that ask for a partition twenty times a second; more share that pace."""

Work = Callable[[], Coroutine[Any, Any, None]]
Start = Callable[[Coroutine[Any, Any, None]], None]


def _nobody() -> None:
    """Do nothing: the connection takes in no more."""


class AttachQueue:
    def __init__(self, turns: Turns, drained: Callable[[], None]) -> None:
        """`drained` is called when input may be taken in again."""
        self.until_answer = turns.until_answer
        self._drained = drained
        self.held = 0
        self._under_way = 0
        self._over = False
        self._floods = False
        """True while the queue was full and is not empty yet."""
        self.letting_go = asyncio.Semaphore(LETTING_GO)
        """Limits the claims of gone links that are being released."""
        self._waiting: deque[tuple[Link, Work, Start]] = deque()

    def add(self, link: Link, work: Work, start: Start) -> None:
        """Queue the work for a link; `start` makes a task of it."""
        self._waiting.append((link, work, start))
        self._floods = self._floods or self.is_full
        self._go_on()

    def hold(self, work: Work, start: Start) -> None:
        """Start work that waits for a partition. Raises Refused at the limit."""
        if self.held >= HELD:
            told = f"{HELD} receivers of this connection wait for partitions already: attach when one has come"
            raise Refused(Error(RESOURCE_LIMIT_EXCEEDED, told))
        self.held += 1
        start(self._until_held(work))

    @property
    def is_full(self) -> bool:
        """True while no more attaches are taken in."""
        return len(self._waiting) >= WAITING

    @property
    def pace(self) -> float:
        """Factor by which a receiver waits longer between two questions for a partition."""
        return max(1.0, self.held / HELD_AT_FULL_PACE)

    def forget_some(self, most: int) -> bool:
        """Drop up to `most` waiting attaches of a connection that is gone. Returns whether none is left."""
        self._over = True
        self._drained = _nobody  # the connection has this: without the cycle it is freed at once
        for _ in range(min(most, len(self._waiting))):
            self._waiting.popleft()
        return not self._waiting

    def _go_on(self) -> None:
        most = 1 if self._floods else UNDER_WAY
        while self._waiting and self._under_way < most and not self._over:
            link, work, start = self._waiting.popleft()
            if link.alive:
                self._under_way += 1
                start(self._until_answered(work))
        self._floods = self._floods and bool(self._waiting)
        if not self.is_full and not self._over:
            self._drained()

    async def _until_answered(self, work: Work) -> None:
        try:
            await work()
        finally:
            self._under_way -= 1
            self._go_on()

    async def _until_held(self, work: Work) -> None:
        try:
            await work()
        finally:
            self.held -= 1
