"""Streams between simulated nodes, in place of connections: frames one way, nothing back but the welcome and the end.
What is written is taken when it has arrived, so a stalled link lets frames wait, as flow control does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.rpc.raft_transport.errors import StreamError, StreamLost
from tests.simulation.checker import Violation
from tests.simulation.world.rpc.calls import SimCall, SimWire
from tests.simulation.world.rpc.virtual_loop import EXPECTED

if TYPE_CHECKING:
    from tests.simulation.world.streams.node import StreamingNode

STREAM: ContextVar[SimStream | None] = ContextVar("stream", default=None)
"""That a frame comes from, for whoever hears it."""


class SimStream(SimCall):
    """The dialler's end, in place of a `DiallerEnd`."""

    caller: StreamingNode
    called: StreamingNode

    def __init__(self, wire: SimWire, caller: StreamingNode, called: StreamingNode) -> None:
        self.number = wire.schedule.unique()
        self.promised: deque[bytes] = deque()
        """Messages that the caller has handed to it, and nobody has heard yet."""
        self._is_lost = False
        self._taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # of what was written last
        self._taken.set_result(None)
        self._ended: asyncio.Future[StreamError] = asyncio.get_running_loop().create_future()
        super().__init__(wire, caller, called, "stream", None, (None, None))

    # ---- the caller's end

    @property
    def has_room(self) -> bool:
        """All that was written has arrived."""
        return self._taken.done()

    async def write(self, *messages: bytes) -> None:
        for message in messages:
            self.put(message)
            await self._taken

    def put(self, *messages: bytes) -> None:
        for message in messages:
            self._put(message)

    def _put(self, message: bytes) -> None:
        """What arrives has been read into memory of its own, as a connection does with a large message."""
        if self._over:
            raise StreamLost("the stream is over")
        self._taken = taken = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            self._there.put(bytearray(message))
            if not taken.done():
                taken.set_result(None)

        self._carry(arrive)

    def _carry(self, arrive: Callable[[], None]) -> None:
        schedule = self._wire.schedule
        link = schedule.links[self.caller.id, self.called.id]
        if not self.stands:
            self.break_off()
        elif link.is_cut:
            self.swallowed()
        else:
            latency_s = schedule.randomness.uniform(0.0002, schedule.latency_s)
            self._there.due = max(self._there.due, schedule.now + latency_s, link._stalled_until)
            schedule.at(self._there.due, lambda: arrive() if self._arrives else None)

    @property
    def _arrives(self) -> bool:
        """Who hears it need not know yet that the connection has broken."""
        return not self._is_lost and self.called.is_running and self.called.life == self._lives[1]

    async def is_let_in(self) -> bool:
        await asyncio.wait([self._welcome, self._ended], return_when=asyncio.FIRST_COMPLETED)
        return self._welcome.done() and self._welcome.exception() is None and not self._over

    def on_over(self, callback: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: callback())

    async def wait_over(self) -> StreamError:
        return await asyncio.shield(self._ended)

    def hang_up(self) -> None:
        self.cancel()
        self._end(StreamLost("it is given up here"))

    # ---- the other end

    def _serve(self, method: str) -> None:
        with self.called.own_life.entered():
            token = STREAM.set(self)
            serving = self._hear()
            name = f"node {self.called.id} hears node {self.caller.id}"
            self._task = asyncio.get_running_loop().create_task(serving, name=name)
            STREAM.reset(token)
        self._task.add_done_callback(self._served)

    async def _hear(self) -> None:
        try:
            await self.called.network._inbound.serve(_ListenerEnd(self))
        except StreamError as error:
            self._wire.carry(self, self._back, partial(self.end_here, error))
            raise

    def _served(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._wire.carry(self, self._back, partial(self.end_here, self.lost("the peer closed the stream")))
        elif not isinstance(error, EXPECTED):
            self._wire.schedule.loop.fail(Violation(f"{task.get_name()}: {error!r}"))

    # ---- ends

    def lost(self, why: str) -> StreamError:
        return StreamLost(why)

    def break_off(self) -> None:
        """In half of the cases what was under way still arrives, until the other end has noticed."""
        if not self._broken:
            self._is_lost = self._wire.schedule.randomness.random() < 0.5
        super().break_off()

    def end_here(self, error: BaseException) -> None:
        super().end_here(error)
        self._end(error)

    def _end(self, error: Any) -> None:
        self._over = True
        if not self._ended.done():
            self._ended.set_result(error)


class _ListenerEnd:
    def __init__(self, stream: SimStream) -> None:
        self._stream = stream

    async def read(self) -> Any:
        return await self._stream._there.get()

    async def hand_over(self, take: Callable[[bytes], None]) -> None:
        while True:
            take(await self.read())

    async def welcome(self) -> None:
        self._stream._wire.carry(self._stream, self._stream._back, self._stream.welcomed)


def dial(wire: SimWire, caller: StreamingNode, called: int) -> SimStream:
    """What `OutboundLink` speaks through."""
    node: Any = wire.schedule.nodes[called]
    stream = SimStream(wire, caller, node)
    wire.add(stream)
    return stream
