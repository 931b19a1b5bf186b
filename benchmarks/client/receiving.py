"""Consumers of the driver on our own client, each with a task that reads.

They read events as objects, from any start; or columns or arrays of a range, which is the log's content at the begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

from benchmarks.driver.bounded import Reading
from benchmarks.driver.library import LibraryReceiver, LinkEnd
from benchmarks.driver.measure import Window
from benchmarks.driver.wire import PeerError
from holdfast.client import ConsumerClient, EventBlock, RangeClient, Start

PARTITION = "0"


class ClientReceiver(LibraryReceiver):
    def __init__(self, end: LinkEnd, something: Callable[[], None]) -> None:
        """Prepare the receiver. `something`: called when events have come."""
        super().__init__(end)
        self._server, self._log, self._start = f"{end.url.host}:{end.url.port}", end.url.address, end.options.start
        self._something = something
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._connect()
        self._reading = asyncio.create_task(self._read())

    async def _connect(self) -> None:
        raise NotImplementedError

    async def _read(self) -> None:
        raise NotImplementedError

    async def _hang_up(self) -> None:
        raise NotImplementedError

    def counted(self, now_ns: int, window: Window) -> None:
        """Add events to the tally. Raises the error that ended the reading, if any."""
        if self._reading is not None and self._reading.done():
            self._reading.result()
        super().counted(now_ns, window)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._hang_up()


class EventReceiver(ClientReceiver):
    """A receiver of lists of events, which opens each event."""

    async def _connect(self) -> None:
        start = {"earliest": Start.earliest(), "latest": Start.latest()}.get(self._start) or Start.after(self._start)
        self._consumer = ConsumerClient(self._server, self._log, start=start, partitions=[PARTITION])
        await self._consumer.start()

    async def _read(self) -> None:
        while True:
            events = await self._consumer.receive(self._at_once)
            self.take([event.body for event in events])
            self._something()

    async def _hang_up(self) -> None:
        await self._consumer.close()


class BlockReceiver(ClientReceiver):
    """A receiver of blocks of events, which makes their columns or arrays."""

    def __init__(self, end: LinkEnd, something: Callable[[], None], reading: Reading) -> None:
        super().__init__(end, something)
        self._client = RangeClient(self._server)
        if self._start != "earliest":
            raise ValueError(f"{reading} are read from the start of a log, not from {self._start}")
        self._look = self._columns if reading == "columns" else _with_numpy(self._arrays)

    async def _connect(self) -> None:
        extents = {extent.partition: extent for extent in await self._client.extents(self._log)}
        self._extent = extents[PARTITION]

    async def _read(self) -> None:
        async for block in self._client.read(self._log, PARTITION, self._extent.start, self._extent.end):
            self._look(block)
            self._something()
        await asyncio.Event().wait()  # until it is closed: the run decides when all has come

    def _columns(self, block: EventBlock) -> None:
        bodies = block.columns().bodies
        self.take_between(len(bodies), bodies[0], bodies[-1], lambda: bodies)

    def _arrays(self, block: EventBlock) -> None:
        from holdfast.client.blocks.event_arrays import arrays_of

        found = arrays_of(block)
        if found is None:
            self._columns(block)
            return
        data, ends = memoryview(found.bodies).cast("B"), found.body_ends
        first, last = bytes(data[ends[0] : ends[1]]), bytes(data[ends[-2] : ends[-1]])
        self.take_between(
            len(block), first, last, lambda: [bytes(data[begin:end]) for begin, end in pairwise(ends.tolist())]
        )

    async def _hang_up(self) -> None:
        await self._client.close()


def _with_numpy(look: Callable[[EventBlock], None]) -> Callable[[EventBlock], None]:
    try:
        import numpy  # noqa: F401 - arrays need it, and the client does not depend on it
    except ImportError as error:
        raise PeerError("there is no numpy here (make .venv/.spark-installed brings it)") from error
    return look


def receiver(end: LinkEnd, something: Callable[[], None]) -> ClientReceiver:
    reading = end.plan.reading
    return EventReceiver(end, something) if reading == "events" else BlockReceiver(end, something, reading)
