"""Events on their way, asked for by a thread that waits."""

from __future__ import annotations

from typing import Generic, TypeVar

from holdfast.client.errors import TimeoutExpiredError
from holdfast.client.loop_thread import LoopThread
from holdfast.client.produce.chunks import delivery, single_events
from holdfast.client.produce.chunks.delivery import DeliveryResult, Outcome

D = TypeVar("D", bound=Outcome)


class _Waiting(Generic[D]):
    def __init__(self, background: LoopThread, inner: D) -> None:
        self._background, self._inner = background, inner

    @property
    def is_done(self) -> bool:
        return self._inner.is_done

    @property
    def partition(self) -> str | None:
        return self._inner.partition

    @property
    def sequence_number(self) -> int | None:
        return self._inner.sequence_number

    def result(self, timeout_s: float | None = None) -> DeliveryResult:
        """Wait for it; raises if some of it was not stored, or may not be."""

        async def wait() -> DeliveryResult:
            return await self._inner

        if self._inner.is_done:  # also when the client is closed by now
            return self._inner.result()
        try:
            return self._background.run(wait, timeout_s)
        except TimeoutError:
            raise TimeoutExpiredError(f"{self._what} not confirmed within {timeout_s:g} s") from None

    @property
    def _what(self) -> str:
        return "the event was" if self._inner.count == 1 else f"the {self._inner.count} events were"


class Delivery(_Waiting[single_events.Delivery]):
    """One event on its way."""


class ChunkDelivery(_Waiting[delivery.ChunkDelivery]):
    """The events of one call on their way."""

    @property
    def count(self) -> int:
        return self._inner.count
