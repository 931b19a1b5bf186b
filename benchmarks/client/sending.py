"""Producers of the driver on our own client: idempotent, with the client's defaults except for the window.

If the plan has a window, the client takes that one and does not bound its latency.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns

from benchmarks.driver.library import AT_ONCE, LibrarySender, LinkEnd
from benchmarks.driver.stamp import GREETING
from holdfast.client import Delivery, HoldfastError, ProducerClient, ProducerOptions

CHUNK_EVENTS = 500


class ClientSender(LibrarySender):
    """Base of senders on our client, with connection and outcomes; subclasses pass the events to the client."""

    def __init__(self, end: LinkEnd, something: Callable[[], None]) -> None:
        """Prepare the sender. `something`: called when events were settled."""
        window = end.plan.window
        super().__init__(end, window)
        self._something = something
        self._partitions = [str(number) for number in range(end.plan.partitions)]
        options = ProducerOptions(idempotent=True)
        if window is not None:
            options = ProducerOptions(
                idempotent=True, window=window, max_buffered_events=window + 1, latency_target_s=None
            )
        self._producer = ProducerClient(f"{end.url.host}:{end.url.port}", end.url.address, options)

    async def start(self) -> None:
        await self._producer.start()
        for partition in self._partitions:
            await self._producer.send_and_confirm(GREETING, partition=partition)

    async def work(self) -> None:
        """Send some events that the window allows; return when the client has accepted them."""
        raise NotImplementedError

    async def close(self) -> None:
        await self._producer.abandon()


class EventSender(ClientSender):
    """A sender with one `send` and a callback for each event."""

    def __init__(self, end: LinkEnd, something: Callable[[], None]) -> None:
        super().__init__(end, something)
        self._done = [partial(self._on_settled, number) for number in range(end.plan.partitions)]

    async def work(self) -> None:
        number = min(self.room, AT_ONCE)
        if number <= 0:
            return
        place, bodies, now_ns = self.next_bodies(number)
        self._sent_ns[place].extend([now_ns] * number)
        send, partition, settled = self._producer.send, self._partitions[place], self._done[place]
        for body in bodies:
            await send(body, partition=partition, done=settled)

    def _on_settled(self, place: int, error: HoldfastError | None) -> None:
        if error is None:
            self.confirmed(place)
        else:
            self.refused(place, type(error).__name__, str(error))
        self._something()


class ChunkSender(ClientSender):
    """A sender with `send_many` of some hundred events; all have the latency of their chunk."""

    def __init__(self, end: LinkEnd, something: Callable[[], None]) -> None:
        super().__init__(end, something)
        self._confirming: set[asyncio.Task[None]] = set()

    @property
    def room(self) -> int:
        """Count of events that may be sent now; only whole chunks, except for the last one and in a smaller window."""
        room, smallest = super().room, min(CHUNK_EVENTS, self._left, self._window or CHUNK_EVENTS)
        return room if room >= smallest else 0

    async def work(self) -> None:
        number = min(self.room, CHUNK_EVENTS)
        if number <= 0:
            return
        place, bodies, now_ns = self.next_bodies(number)
        chunk = await self._producer.send_many(bodies, partition=self._partitions[place])
        confirming = asyncio.ensure_future(self._settle(chunk, now_ns))
        self._confirming.add(confirming)
        confirming.add_done_callback(self._confirming.discard)

    async def _settle(self, chunk: Delivery, sent_ns: int) -> None:
        try:
            await chunk
        except HoldfastError as error:
            self._outcomes.add(type(error).__name__, str(error), chunk.failed)
        good = chunk.count - chunk.failed
        self._settled += chunk.count
        self._acked += good
        self._tally.latencies_ns.extend(array("q", (perf_counter_ns() - sent_ns,)) * good)
        self._something()

    async def close(self) -> None:
        await super().close()  # now each chunk has its outcome
        await asyncio.gather(*self._confirming)


SENDERS: dict[str, Callable[[LinkEnd, Callable[[], None]], ClientSender]] = {
    "events": EventSender,
    "chunks": ChunkSender,
}
