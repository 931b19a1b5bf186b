"""What becomes of an event, or of many: asked for by awaiting, or told to a callback; either costs nothing when unused.

Rule never broken: each event is settled exactly once, as confirmed or with the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import ClassVar

from holdfast.amqp.messages.message import offset_text
from holdfast.client.errors import HoldfastError
from holdfast.client.events import Event

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


class Outcome:
    """What a `Delivery` and a `ChunkDelivery` share: they are awaited, and somebody hears of a failure."""

    __slots__ = ("_asked", "_error", "_future", "_settled", "offset", "partition", "sequence_number")

    failed: int
    """Events of it that were not stored, or may not be; once it is done."""

    def __init__(self, partition: str | None) -> None:
        self.partition = partition
        self.offset: int | None = None
        self.sequence_number: int | None = None
        self._future: asyncio.Future[None] | None = None
        self._error: HoldfastError | None = None
        self._asked = self._settled = False

    @property
    def is_done(self) -> bool:
        return self._settled

    @property
    def error(self) -> HoldfastError | None:
        """Why it failed, once it has."""
        return self._error

    @property
    def claimed(self) -> bool:
        """Somebody hears of a failure, or did."""
        return self._asked

    def __await__(self) -> Generator[object, None, DeliveryResult]:
        self._asked = True
        if not self._settled:
            if self._future is None:
                self._future = asyncio.get_running_loop().create_future()
            yield from asyncio.shield(self._future)
        return self.result()

    def result(self) -> DeliveryResult:
        """Of one that is done."""
        assert self._settled, "await it first"
        self._asked = True
        if self._error is not None:
            raise self._error
        return DeliveryResult(self.partition, self.offset_text, self.sequence_number, self.count)

    @property
    def count(self) -> int:
        """Events of it."""
        raise NotImplementedError

    @property
    def offset_text(self) -> str | None:
        """As consumers see it."""
        return None if self.offset is None else offset_text(self.offset)

    def _done_now(self, error: HoldfastError | None) -> None:
        self._settled, self._error = True, error
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Delivery(Outcome):
    """One event on its way. Await it for the `DeliveryResult`; it raises if the event was not stored, or may not be."""

    __slots__ = ("_done", "content", "event")

    events: ClassVar = 1
    failed = 1

    def __init__(
        self, content: bytes, partition: str | None = None, done: Done | None = None, event: Event | None = None
    ) -> None:
        # As in `Outcome`, which is not called: this is done for each event.
        self.content = content  # bytes of the message (without the number, where it gets one)
        self.partition = partition
        self.event = event
        self.offset = self.sequence_number = self._future = self._error = None
        self._done = done
        self._asked = self._settled = False

    @property
    def claimed(self) -> bool:
        return self._done is not None or self._asked

    @property
    def count(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return len(self.content)

    def settle(self, error: HoldfastError | None) -> None:
        """From the producer, once."""
        assert not self._settled, "an event was settled twice"
        self._settled, self._error = True, error
        event = self.event
        if event is not None:  # of an idempotent producer: it is free, or has its number for good
            event.being_published = False
            if error is None:
                event.published_sequence_number = self.sequence_number
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        if self._done is not None:
            try:
                self._done(error)
            except Exception as problem:  # noqa: BLE001 - the program's own fault must not end the connection
                context = {"message": "a callback of a delivery failed", "exception": problem}
                asyncio.get_running_loop().call_exception_handler(context)

    def stands_at(self, offset: int, partition: str) -> None:
        """Where it is stored."""
        self.offset = offset
        if self.partition is None:
            self.partition = partition


class ChunkDelivery(Outcome):
    """The events of one call on their way. Await it for one `DeliveryResult` of them all, with the place of the first
    event; it raises if any of them was not stored, or may not be."""

    __slots__ = ("_count", "_left", "_unclaimed", "failed")

    def __init__(self, count: int, unclaimed: Callable[[ChunkDelivery], None]) -> None:
        """`unclaimed`: called with it, once, if it fails with nobody to tell."""
        super().__init__(None)
        self._count = self._left = count
        self._unclaimed = unclaimed
        self.failed = 0
        if not count:
            self._done_now(None)

    @property
    def count(self) -> int:
        return self._count

    def settle_some(self, events: int, error: HoldfastError | None) -> None:
        """From the producer: so many more of them are settled, with one outcome."""
        self._left -= events
        assert self._left >= 0, "an event was settled twice"
        if error is not None:
            self.failed += events
            self._error = self._error or error
        self._finish_if_last()

    def without(self, events: int) -> None:
        """So many were not taken in: the call that was to do so ended before."""
        self._count -= events
        self._left -= events
        self._finish_if_last()

    def _finish_if_last(self) -> None:
        if self._left or self._settled:
            return
        error = self._error
        if error is not None and self.failed < self._count:
            error.add_note(f"{self.failed} of the {self._count} events failed; this is the first failure")
        self._done_now(error)
        if error is not None and not self._asked:
            self._unclaimed(self)
