"""What becomes of an event, or of many: asked for by awaiting, or told to a callback; either costs nothing when unused.

Rule never broken: each event is settled exactly once, as confirmed or with the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.amqp.messages.message import offset_text
from holdfast.client.errors import HoldfastError

Done = Callable[[HoldfastError | None], None]


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

    def _when_done(self) -> asyncio.Future[None]:
        """Of one that is not done: done when it is."""
        raise NotImplementedError

    def __await__(self) -> Generator[object, None, DeliveryResult]:
        self._claim()
        if not self.is_done:
            yield from asyncio.shield(self._when_done())
        return self.result()

    def result(self) -> DeliveryResult:
        """Of one that is done."""
        assert self.is_done, "await it first"
        self._claim()
        if self.error is not None:
            raise self.error
        return DeliveryResult(self.partition, self.offset_text, self.sequence_number, self.count)


class ChunkDelivery(Outcome):
    """The events of one call on their way. Await it for one `DeliveryResult` of them all, with the place of the first
    event; it raises if any of them was not stored, or may not be."""

    __slots__ = (
        "_asked", "_count", "_error", "_failed", "_future", "_left", "_offset", "_partition", "_sequence_number",
        "_settled", "_unclaimed",
    )  # fmt: skip

    def __init__(self, count: int, unclaimed: Callable[[ChunkDelivery], None]) -> None:
        """`unclaimed`: called with it, once, if it fails with nobody to tell."""
        self._count = self._left = count
        self._unclaimed = unclaimed
        self._partition: str | None = None
        self._failed = 0
        self._error: HoldfastError | None = None
        self._offset: int | None = None
        self._sequence_number: int | None = None
        self._future: asyncio.Future[None] | None = None
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

    def _when_done(self) -> asyncio.Future[None]:
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future

    def _finish_if_last(self) -> None:
        if self._left or self._settled:
            return
        error = self._error
        if error is not None and self._failed < self._count:
            error.add_note(f"{self._failed} of the {self._count} events failed; this is the first failure")
        self._settled = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        if error is not None and not self._asked:
            self._unclaimed(self)
