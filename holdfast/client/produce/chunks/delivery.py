"""What becomes of an event, or of many: asked for by awaiting, or told to a callback; either costs nothing when unused.

Rules never broken:
 - each event is settled exactly once, as confirmed or with the error;
 - who awaits one goes on in the turn of the event loop in which it is settled, before anybody who waits for room: each
   has a future of its own, so that whoever is cancelled takes nothing from the others. Rejected: one future for all,
   shielded. It takes a turn more, and meanwhile the program sends on: half of 100 bytes by `send_many` were known to be
   confirmed a millisecond later;
 - who stops waiting before it is settled hears nothing of a failure, so the producer does, and `flush` raises it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.amqp.messages.message import offset_text
from holdfast.client.errors import HoldfastError

Done = Callable[[HoldfastError | None], None]
Waiters = dict[asyncio.Future[None], None]
"""Who awaits the same outcome, in their order."""


def wait_among(waiters: Waiters) -> Generator[object, None, None]:
    """Until they are woken."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters[future] = None
    try:
        yield from future
    finally:
        waiters.pop(future, None)


def wake(waiters: Waiters) -> None:
    for future in waiters:
        if not future.done():  # else it was cancelled
            future.set_result(None)


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Where events stand.

    `offset` is that of the (first) event, as a consumer sees it; None: the node does not tell, as those that are not
    Holdfast's. `partition` is None where the node chose it and does not tell.
    `sequence_number` is that of the (first) event, None without idempotence.
    """

    partition: str | None
    offset: str | None
    sequence_number: int | None
    count: int


class Settled(NamedTuple):
    """What became of events that stood side by side, from the event `start` of their chunk on."""

    start: int
    events: int
    error: HoldfastError | None
    partition: str | None  # None: nobody told
    offset: int | None  # of the first one; None: nobody told
    sequence_number: int | None  # of the first one
    leads: bool
    """The first one is that of the call."""


class Outcome:
    """What a `Delivery` and a `ChunkDelivery` share: they are awaited, and somebody hears of a failure."""

    __slots__ = ()

    @property
    def count(self) -> int:
        """Events of it."""
        raise NotImplementedError

    @property
    def failed(self) -> int:
        """Events of it that were not stored, or may not be; once it is done."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        raise NotImplementedError

    @property
    def error(self) -> HoldfastError | None:
        """Why it failed, once it has."""
        raise NotImplementedError

    @property
    def claimed(self) -> bool:
        """Somebody hears of a failure, or did."""
        raise NotImplementedError

    @property
    def partition(self) -> str | None:
        raise NotImplementedError

    @property
    def offset(self) -> int | None:
        """Of the first event; None: it is not done, or nobody told."""
        raise NotImplementedError

    @property
    def sequence_number(self) -> int | None:
        """Of the first event; None: it is not done, or its producer is not idempotent."""
        raise NotImplementedError

    @property
    def offset_text(self) -> str | None:
        """The offset as consumers see it."""
        offset = self.offset
        return None if offset is None else offset_text(offset)

    def _claim(self) -> None:
        """From now on somebody hears of a failure."""
        raise NotImplementedError

    def _let_go(self) -> None:
        """Who was to hear of a failure does not, as far as is known here."""
        raise NotImplementedError

    def _until_done(self) -> Generator[object, None, None]:
        """Wait, of one that is not done."""
        raise NotImplementedError

    def __await__(self) -> Generator[object, None, DeliveryResult]:
        if not self.is_done:
            was_claimed = self.claimed
            self._claim()
            try:
                yield from self._until_done()
            except BaseException:  # who waits was cancelled: it does not hear of it
                if not was_claimed:
                    self._let_go()
                raise
        return self.result()

    def result(self) -> DeliveryResult:
        """Of one that is done."""
        assert self.is_done, "await it first"
        self._claim()
        if self.error is not None:
            raise self.error.with_traceback(None)  # kept, and raised to each who asks: else it would keep their frames
        return DeliveryResult(self.partition, self.offset_text, self.sequence_number, self.count)


class ChunkDelivery(Outcome):
    """The events of one call on their way. Await it for one `DeliveryResult` of them all, with the place of the first
    event; it raises if any of them was not stored, or may not be."""

    __slots__ = (
        "_asked", "_count", "_error", "_failed", "_left", "_offset", "_partition", "_sequence_number", "_settled",
        "_unclaimed", "_waiters",
    )  # fmt: skip

    def __init__(self, count: int, unclaimed: Callable[[ChunkDelivery], None]) -> None:
        """`unclaimed`: called with it when events of it fail with nobody to tell, also if others are on their way."""
        self._count = self._left = count
        self._unclaimed = unclaimed
        self._partition: str | None = None
        self._failed = 0
        self._error: HoldfastError | None = None
        self._offset: int | None = None
        self._sequence_number: int | None = None
        self._waiters: Waiters = {}
        self._asked, self._settled = False, not count

    @property
    def count(self) -> int:
        return self._count

    @property
    def failed(self) -> int:
        return self._failed

    @property
    def is_done(self) -> bool:
        return self._settled

    @property
    def error(self) -> HoldfastError | None:
        return self._error

    @property
    def claimed(self) -> bool:
        return self._asked

    @property
    def partition(self) -> str | None:
        return self._partition

    @property
    def offset(self) -> int | None:
        return self._offset

    @property
    def sequence_number(self) -> int | None:
        return self._sequence_number

    def goes_to(self, partition: str | None) -> None:
        """The first event does; None: the node chooses."""
        self._partition = partition

    def settle(self, part: Settled) -> None:
        """From the producer: so many more of them are."""
        self._left -= part.events
        assert self._left >= 0, "an event was settled twice"
        if part.error is not None:
            self._failed += part.events
            self._error = self._error or part.error
            if not self._asked:
                self._unclaimed(self)
        elif part.leads:
            self._offset, self._sequence_number = part.offset, part.sequence_number
            if self._partition is None:
                self._partition = part.partition
        self._finish_if_last()

    def without(self, events: int) -> None:
        """So many were not taken in: the call that was to do so ended before."""
        self._count -= events
        self._left -= events
        self._finish_if_last()

    def _claim(self) -> None:
        self._asked = True

    def _let_go(self) -> None:
        self._asked = False
        if self._error is not None:
            self._unclaimed(self)

    def _until_done(self) -> Generator[object, None, None]:
        return wait_among(self._waiters)

    def _finish_if_last(self) -> None:
        if self._left or self._settled:
            return
        error = self._error
        if error is not None and self._failed < self._count:
            error.add_note(f"{self._failed} of the {self._count} events failed; this is the first failure")
        self._settled = True
        wake(self._waiters)
