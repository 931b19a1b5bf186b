"""Calls between simulated nodes, in place of gRPC: the production code of both ends runs, on a wire made up here.

A call is a stream of bytes each way. What is written arrives in order, late, or not at all: a call ends with either of
its nodes, and with the links between them; what was under way is lost then, each end hears of it in its own time, and
the caller cannot know how far it came. A cut that nobody notices swallows what is written, and ends the call later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import NonCallableMock

import grpc
from grpc.aio import EOF  # type: ignore[attr-defined]

from cluster.rpc.grpc_calls.call_handlers import Services
from cluster.rpc.grpc_calls.methods import APPEND, READ
from cluster.rpc.grpc_calls.peer_client import GrpcPeerClient
from cluster.rpc.handshake import Who
from node import peer_codec
from tests.simulation.checker import Violation
from tests.simulation.world.rpc.virtual_loop import EXPECTED

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

NOTICED_WITHIN_S = 0.3
"""That the other end is gone."""
SWALLOWED_FOR_S = 2.0
"""What is written into a cut: so long at most, then a keepalive ends the call."""
HINT_IS_NEWS = 0.3
"""Of the questions who leads a group of others, so many are answered with who leads now, the rest as the last one; when
the faults are over, all."""


class _Pipe:
    """One direction of a call."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._more = asyncio.Event()
        self.end: BaseException | None = None
        self.due = 0.0

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._more.set()

    def break_off(self, error: BaseException) -> None:
        if self.end is None:
            self.end = error
            self._more.set()

    async def get(self) -> Any:
        while not self._items:
            if self.end is not None:
                raise self.end
            self._more.clear()
            await self._more.wait()
        return self._items.popleft()


class SimCall:
    """Both ends: the caller's is this object, with the methods of gRPC's; the other one is its `context`."""

    def __init__(self, wire: SimWire, caller: SimNode, called: SimNode, method: str, metadata: Any, codec: Any) -> None:
        self._wire = wire
        self.caller, self.called = caller, called
        self._lives = (caller.life, called.life)
        self._encode, self._decode = codec
        self._metadata = metadata
        self._there, self._back = _Pipe(), _Pipe()
        self._welcome = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[Any] | None = None
        self._over = False
        self._broken = False
        wire.carry(self, self._there, partial(self._serve, method))

    def is_between(self, one: int, other: int) -> bool:
        return {self.caller.id, self.called.id} == {one, other}

    def touches(self, node: SimNode) -> bool:
        return node in (self.caller, self.called)

    @property
    def stands(self) -> bool:
        lives = self.caller.is_running and self.called.is_running
        return not self._broken and lives and self._lives == (self.caller.life, self.called.life)

    # ---- the caller's end

    async def wait_for_connection(self) -> None:
        await asyncio.shield(self._welcome)

    async def write(self, message: Any) -> None:
        if self._over:
            raise asyncio.InvalidStateError("the call is over")
        data = message if self._encode is None else self._encode(message)
        self._wire.carry(self, self._there, lambda: self._there.put(data))

    async def read(self) -> Any:
        data = await self._back.get()
        return data if data is EOF else self._decode(data)

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._wire.carry(self, self._there, self.end_there)

    # ---- the other end, which is also what a handler gets as its context

    def _serve(self, method: str) -> None:
        services = self._wire.services(self.called)
        handler = services.append if method == APPEND else services.read
        with self.called.own_life.entered():
            self._task = asyncio.get_running_loop().create_task(handler(None, _Context(self)), name=f"serve {method}")
        self._task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._wire.carry(self, self._back, lambda: self._back.put(EOF))
        elif not isinstance(error, EXPECTED):
            self._wire.schedule.loop.fail(Violation(f"node {self.called.id}, {task.get_name()}: {error!r}"))

    def welcomed(self) -> None:
        if not self._welcome.done():
            self._welcome.set_result(None)

    # ---- ends

    def lost(self, why: str) -> Exception:
        """The error of this end, once it knows that the other one is gone."""
        return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, details=why)

    def break_off(self) -> None:
        """Nothing arrives any more; both ends hear of it, each in its time."""
        if not self._broken:
            self._broken = True
            self._wire.later(NOTICED_WITHIN_S, lambda: self.end_here(self.lost("connection lost")))
            self._wire.later(NOTICED_WITHIN_S, self.end_there)

    def swallowed(self) -> None:
        if not self._broken:
            self._broken = True
            self._wire.later(SWALLOWED_FOR_S, lambda: self.end_here(self.lost("keepalive watchdog timeout")))
            self._wire.later(SWALLOWED_FOR_S, self.end_there)

    def end_here(self, error: BaseException) -> None:
        self._over = True
        self._back.break_off(error)
        if not self._welcome.done():
            self._welcome.set_exception(error)
            self._welcome.exception()  # nobody may wait for it any more

    def end_there(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _Context:
    """As much of a servicer's context as `Services` uses."""

    def __init__(self, call: SimCall) -> None:
        self._call = call

    def invocation_metadata(self) -> Any:
        return self._call._metadata

    async def send_initial_metadata(self, _: Any) -> None:
        self._call._wire.carry(self._call, self._call._back, self._call.welcomed)

    async def read(self) -> Any:
        return await self._call._there.get()

    async def write(self, data: bytes) -> None:
        await self.send_initial_metadata(())
        self._call._wire.carry(self._call, self._call._back, lambda: self._call._back.put(data))

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        error = grpc.aio.AioRpcError(code, details=details)
        self._call._wire.carry(self._call, self._call._back, lambda: self._call.end_here(error))
        raise grpc.aio.AbortError("aborted")


class SimWire:
    """Of a schedule: all calls, and how what they say travels."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._calls: list[SimCall] = []

    def call(self, caller: SimNode, called: int, method: str, metadata: Any, codec: Any) -> SimCall:
        call = SimCall(self, caller, self.schedule.nodes[called], method, metadata, codec)
        self.add(call)
        return call

    def add(self, call: SimCall) -> None:
        """It ends with its nodes, and with the links between them."""
        self._calls = [call for call in self._calls if not call._broken]
        self._calls.append(call)

    def carry(self, call: SimCall, pipe: _Pipe, arrive: Callable[[], None]) -> None:
        schedule = self.schedule
        if not call.stands:
            call.break_off()
            return
        links = schedule.links[call.caller.id, call.called.id], schedule.links[call.called.id, call.caller.id]
        if any(link.is_cut for link in links):
            call.swallowed()
            return
        pipe.due = max(pipe.due, schedule.now + schedule.randomness.uniform(0.0002, schedule.latency_s))
        schedule.at(pipe.due, lambda: arrive() if call.stands else call.break_off())

    def later(self, within_s: float, action: Callable[[], None]) -> None:
        self.schedule.at(self.schedule.now + self.schedule.randomness.uniform(0.0, within_s), action)

    def link_down(self, one: int, other: int) -> None:
        for call in self._calls:
            if call.is_between(one, other):
                call.break_off()

    def node_ended(self, node: SimNode) -> None:
        for call in self._calls:
            if call.touches(node):
                call.break_off()

    def services(self, node: SimNode) -> Services:
        """Those of partitions. Whatever else a node serves is not asked for here, and fails when it is."""
        replicas, nothing_else = cast(Any, node.replicas), NonCallableMock()
        return Services(
            who=_who(node),
            types=peer_codec,
            partitions=replicas,
            admin=nothing_else,
            serve_fetch=nothing_else,
            callers=nothing_else,
        )


def _who(node: SimNode) -> Who:
    ids = node.schedule.node_ids
    return Who("simulated", node.id, frozenset(ids) - {node.id}, members=tuple(ids))


class _Channel:
    """What `append_call` and `read_call` make calls of."""

    def __init__(self, wire: SimWire, caller: SimNode, called: int) -> None:
        self._wire, self._caller, self._called = wire, caller, called

    def stream_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None
    ) -> Callable[..., SimCall]:
        assert method in (APPEND, READ)
        codec = (request_serializer, response_deserializer)
        return lambda *, metadata: self._wire.call(self._caller, self._called, method, metadata, codec)


class SimPeerClient(GrpcPeerClient):
    """The production client, with another wire below it."""

    def __init__(self, wire: SimWire, caller: SimNode, called: int) -> None:
        who = _who(caller)
        super().__init__(called, lambda: who.hello_to(called), lambda: f"node {called}", peer_codec)  # type: ignore[arg-type]
        self._wire_channel = _Channel(wire, caller, called)

    def _open_channel(self) -> Any:
        return self._wire_channel


class SimNetwork:
    """What a node's gateways ask: the peers, and who leads what."""

    def __init__(self, wire: SimWire, node: SimNode) -> None:
        self._wire, self._node = wire, node
        self._clients: dict[int, SimPeerClient] = {}
        self._told: dict[int, tuple[float, int | None]] = {}

    def client(self, peer: int) -> SimPeerClient:
        if peer not in self._clients:
            self._clients[peer] = self._new_client(peer)
        return self._clients[peer]

    def _new_client(self, peer: int) -> SimPeerClient:
        return SimPeerClient(self._wire, self._node, peer)

    def leader_of(self, group: int) -> int | None:
        """A hint: true, or what was true when it was asked for before. Streams bring it, so it lasts for a moment."""
        schedule = self._wire.schedule
        at_s, told = self._told.get(group, (-1.0, None))
        if at_s < schedule.now:
            leaders = [node.id for node in schedule.nodes.values() if node.leads(group)]
            is_news = schedule.randomness.random() < HINT_IS_NEWS or schedule.chaos_over
            if leaders and (told is None or is_news):
                told = schedule.randomness.choice(leaders)
            self._told[group] = schedule.now, told
        return told

    def set_leader(self, group: int, term: int, leader: int | None) -> None:
        """The others see who leads."""

    def drop_group(self, group: int) -> None:
        self._told.pop(group, None)


__all__ = ["SimNetwork", "SimPeerClient", "SimWire"]
