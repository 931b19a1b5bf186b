"""Streams between simulated nodes, in place of connections: frames one way, nothing back but the welcome and the end.
What is written is taken when it has arrived, so a stalled link lets frames wait, as flow control does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from grpc.aio import EOF  # type: ignore[attr-defined]

from cluster.rpc.handshake import WELCOME_KEY
from tests.simulation.checker import Violation
from tests.simulation.world.rpc.calls import Call, Wire, _Context
from tests.simulation.world.rpc.virtual_loop import EXPECTED

if TYPE_CHECKING:
    from tests.simulation.world.streams.node import StreamingNode

CALL: ContextVar[StreamCall | None] = ContextVar("stream", default=None)
"""That a frame comes from, for whoever hears it."""


class StreamCall(Call):
    caller: StreamingNode
    called: StreamingNode

    def __init__(self, wire: Wire, caller: StreamingNode, called: StreamingNode) -> None:
        self.number = wire.schedule.unique()
        self.promised: deque[bytes] = deque()
        """Messages that the caller has handed to it, and nobody has heard yet."""
        self._is_lost = False
        self._taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # of what was written last
        self._taken.set_result(None)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
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
            raise asyncio.InvalidStateError("the call is over")
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

    async def initial_metadata(self) -> tuple[tuple[str, str], ...]:
        await asyncio.wait([self._welcome, self._ended], return_when=asyncio.FIRST_COMPLETED)
        welcome = self._welcome.done() and self._welcome.exception() is None
        return ((WELCOME_KEY, "yes"),) if welcome else ()

    def done(self) -> bool:
        return self._over

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._ended.add_done_callback(callback)

    def __await__(self) -> Generator[Any, None, None]:
        return self._ended.__await__()

    def cancel(self) -> None:
        super().cancel()
        self._end(None)

    # ---- the other end

    def _serve(self, method: str) -> None:
        with self.called.own_life.entered():
            token = CALL.set(self)
            serving = self.called.network._inbound.serve(None, _StreamContext(self))
            name = f"node {self.called.id} hears node {self.caller.id}"
            self._task = asyncio.get_running_loop().create_task(serving, name=name)
            CALL.reset(token)
        self._task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._wire.carry(self, self._back, partial(self._end, None))
        elif not isinstance(error, EXPECTED):
            self._wire.schedule.loop.fail(Violation(f"{task.get_name()}: {error!r}"))

    # ---- ends

    def break_off(self) -> None:
        """In half of the cases what was under way still arrives, until the other end has noticed."""
        if not self._broken:
            self._is_lost = self._wire.schedule.randomness.random() < 0.5
        super().break_off()

    def end_here(self, error: BaseException) -> None:
        super().end_here(error)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._over = True
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
            self._ended.exception()  # nobody may wait for it any more


class _StreamContext(_Context):
    async def hand_over(self, take: Callable[[bytes], None]) -> None:
        while (message := await self.read()) is not EOF:
            take(message)


def open_call(wire: Wire, caller: StreamingNode, called: int) -> StreamCall:
    """What `OutboundLink` speaks through."""
    node: Any = wire.schedule.nodes[called]
    call = StreamCall(wire, caller, node)
    wire.add(call)
    return call
