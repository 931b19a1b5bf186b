"""What becomes of an event: asked for by awaiting, or told to a callback; either costs nothing when unused.

Rule never broken: a delivery is settled exactly once, as confirmed or with the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass

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


class Delivery:
    """One event on its way. Await it for the `DeliveryResult`; it raises if the event was not stored, or may not be."""

    __slots__ = (
        "_asked",
        "_done",
        "_error",
        "_future",
        "_settled",
        "content",
        "event",
        "offset",
        "partition",
        "sequence_number",
    )

    def __init__(
        self, content: bytes, partition: str | None = None, done: Done | None = None, event: Event | None = None
    ) -> None:
        self.content = content  # bytes of the message (without the number, where it gets one)
        self.partition = partition
        self.event = event
        self.sequence_number: int | None = None
        self.offset: int | None = None
        self._done = done
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
        return self._done is not None or self._asked

    def __await__(self) -> Generator[object, None, DeliveryResult]:
        self._asked = True
        if not self._settled:
            if self._future is None:
                self._future = asyncio.get_running_loop().create_future()
            yield from asyncio.shield(self._future)
        return self.result()

    def result(self) -> DeliveryResult:
        """Of a delivery that is done."""
        assert self._settled, "await it first"
        self._asked = True
        if self._error is not None:
            raise self._error
        return DeliveryResult(self.partition, self.offset_text, self.sequence_number, 1)

    @property
    def offset_text(self) -> str | None:
        """As consumers see it."""
        return None if self.offset is None else offset_text(self.offset)

    def settle(self, error: HoldfastError | None) -> None:
        """From the producer, once."""
        assert not self._settled, "an event was settled twice"
        self._settled, self._error = True, error
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        if self._done is not None:
            try:
                self._done(error)
            except Exception as problem:  # noqa: BLE001 - the program's own fault must not end the connection
                context = {"message": "a callback of a delivery failed", "exception": problem}
                asyncio.get_running_loop().call_exception_handler(context)
