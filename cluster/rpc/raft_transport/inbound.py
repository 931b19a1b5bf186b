"""The streams that peers open to this node.

The rules: nothing is delivered before a Hello that belongs here; a node has one inbound stream, the newest (an older
one is a leftover of a connection that its dialler has given up), and one of another process only when the one before
has ended (one that comes while another process speaks on is a copy, beside the original); a stream that is silent for
`SILENCE_S` is ended, so a black hole is noticed on this side too, and so is a peer that was stopped with its sockets
open. What cannot be read ends the stream and nothing else. What comes is delivered in the turn of the loop that read
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from cluster.raft.replication.message_encoding import IncomingMessage
from cluster.rpc import options
from cluster.rpc.call_validation import RPC
from cluster.rpc.handshake import Who, version_range_of
from cluster.rpc.peer_boot_counters import start_of
from cluster.rpc.raft_transport.connection import Buffer
from cluster.rpc.raft_transport.errors import StreamBroken, StreamError, StreamLost, StreamRefused
from cluster.rpc.raft_transport.frame_reader import FrameReader
from cluster.rpc.rpc_pb2 import Frame, Hello, LeaderHints
from cluster.stale_copy_detection import DirectoryStart, KnownStart
from cluster.versions import VersionRange

log = logging.getLogger("holdfast.rpc")


class InboundStream:
    """One accepted stream. `ended` is set when this side wants it closed, to what the dialler is told."""

    def __init__(
        self, node: int, incarnation: int, start: DirectoryStart, versions: VersionRange, now_s: float
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self.start = start
        self.versions = versions
        self.begun_s = self.heard_s = now_s
        self.ended: asyncio.Future[StreamError] = asyncio.get_running_loop().create_future()

    def end(self, error: StreamError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


@dataclass(slots=True)
class Newcomer:
    speaks: KnownStart  # the other process
    since_s: float


class InboundLinks:
    """Serves streams (`ListenerEnd`). `on_change(node, True|False)` when a node's inbound stream begins and ends."""

    def __init__(
        self,
        *,
        who: Who,
        on_hello: Callable[[Hello], None],
        on_change: Callable[[int, bool], None],
        on_messages: Callable[[int, list[IncomingMessage]], None],
        on_hints: Callable[[LeaderHints], None],
        on_clock: Callable[[int, int], None],
    ) -> None:
        self._who = who
        self._on_hello = on_hello
        self._on_change = on_change
        self._on_messages = on_messages
        self._on_hints = on_hints
        self._on_clock = on_clock
        self._streams: dict[int, InboundStream] = {}
        self._beside: dict[tuple[int, KnownStart], Newcomer] = {}  # came while another process of its node spoke

    def heard_s(self, node: int) -> float | None:
        """Time at which the node was heard last; None while it has no stream."""
        stream = self._streams.get(node)
        return None if stream is None else stream.heard_s

    def heard_for_s(self, node: int, now_s: float) -> float:
        """Seconds that the node's stream stands; 0.0: it has none."""
        stream = self._streams.get(node)
        return 0.0 if stream is None else now_s - stream.begun_s

    def start_of(self, node: int) -> DirectoryStart | None:
        stream = self._streams.get(node)
        return None if stream is None else stream.start

    def end_silent(self, now_s: float) -> None:
        for stream in list(self._streams.values()):
            if now_s - stream.heard_s > options.SILENCE_S:
                self._retire(stream, f"nothing heard from node {stream.node} for {options.SILENCE_S} s")
        self._judge_newcomers()

    def _judge_newcomers(self) -> None:
        for (node, start), newcomer in list(self._beside.items()):
            stream = self._streams.get(node)
            if stream is None or stream.start.known != newcomer.speaks:
                del self._beside[node, start]  # a restart that was faster than the end of the old stream
            elif stream.heard_s - newcomer.since_s > options.BESIDE_S:
                del self._beside[node, start]
                self._who.starts.went_on_beside(node, start.mark)
                log.error("node %d: two processes speak at once; the one that came later works on a copy", node)

    def postpone(self, late_s: float, now_s: float) -> None:
        """Take a standstill of this process into account, during which the peers' words stayed in the sockets. No peer
        was heard later than now: words read before this call have the time of after the standstill already, and put
        further, a process that has ended would seem to speak on beside its successor, which would be called a copy for
        ever."""
        for stream in self._streams.values():
            stream.heard_s = min(stream.heard_s + late_s, now_s)
        for newcomer in self._beside.values():
            newcomer.since_s = min(newcomer.since_s + late_s, now_s)

    def end_strangers(self) -> None:
        """End the streams of nodes that the cluster no longer knows as those that they say they are."""
        for stream in list(self._streams.values()):
            if self._who.is_stranger(stream.node, stream.incarnation):
                self._retire(stream, f"node {stream.node} has other data than the cluster knows it by")
            elif self._who.starts.fault(stream.node, stream.incarnation, stream.start) is not None:
                self._retire(stream, f"the cluster knows a later start of the data of node {stream.node}")
            elif (fault := stream.versions.fault(self._who.active())) is not None:
                self._retire(stream, f"node {stream.node}: {fault}")

    def end_removed(self, node: int) -> None:
        """End the stream of a node that is no peer any more."""
        stream = self._streams.get(node)
        if stream is not None:
            self._retire(stream, f"node {node} is no member of the cluster any more")

    def end_all(self) -> None:
        for stream in list(self._streams.values()):
            self._retire(stream, f"node {self._who.node} is stopping")

    async def serve(self, end: Any) -> None:
        """Hear one stream until it is over. Raises StreamError: what the dialler is to be told."""
        hello = self._judge(await first_hello(end.read), end)
        await self._who.welcome(hello)
        self._judge(hello, end)  # the disk took its time
        await end.welcome()
        self._judge(hello, end)  # and so did this; from here on nobody gets in between
        older = self._streams.get(hello.node)
        if older is not None:
            self._retire(older, "replaced by a newer stream of the same node")
        stream = InboundStream(
            hello.node,
            hello.incarnation,
            start_of(hello),
            version_range_of(hello),
            asyncio.get_running_loop().time(),
        )
        self._streams[hello.node] = stream
        self._who.starts.heard(hello.node, stream.start)
        self._who.copies.pop(hello.node, None)
        self._on_hello(hello)
        self._on_change(hello.node, True)
        await self._serve(stream, end)

    def _judge(self, hello: Hello | None, end: Any) -> Hello:
        """Returns the Hello of a dialler that is welcome. Raises StreamError for any other."""
        if not self._who.is_node(end, hello):
            raise StreamRefused(self._who.told(end, hello, self._who.mismatch(end, hello)))
        reason = self._who.refusal(hello)
        if hello is None or reason is not None:
            told = self._who.told(end, hello, reason or "")
            copy = None if hello is None else self._who.refused_copy(hello, reason or "")
            raise StreamRefused(told, copy or "", removed=hello is not None and self._who.is_told_removed(hello))
        if hello.node not in self._who.known:
            announced = f"node {hello.node} is announced, and has not registered yet"
            raise StreamLost(self._who.told(end, hello, announced))
        if (wait := self._who.has_to_wait(hello)) is not None:
            speaks = self._streams[hello.node].start.known
            newcomer = Newcomer(speaks, asyncio.get_running_loop().time())
            self._beside.setdefault((hello.node, start_of(hello).known), newcomer)
            raise StreamLost(self._who.told(end, hello, wait))
        return hello

    async def _serve(self, stream: InboundStream, end: Any) -> None:
        reading = asyncio.ensure_future(end.hand_over(partial(self._take, stream, FrameReader())))
        try:
            either: set[asyncio.Future[Any]] = {reading, stream.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if stream.ended.done():
                raise stream.ended.result()
            reading.result()
        finally:
            reading.cancel()
            self._retire(stream, "the peer closed it")

    def _take(self, stream: InboundStream, reader: FrameReader, data: Buffer) -> None:
        """The next piece of what the node says."""
        if stream.ended.done():
            return  # no longer the node's stream
        stream.heard_s = asyncio.get_running_loop().time()
        try:
            received = reader.add(data)
        except DecodeError as error:
            stream.end(StreamBroken(f"node {stream.node} sent a broken frame: {error}"))
            return
        if received is None:
            return
        try:
            self._tell(stream, *received)
        except Exception as error:  # what to do about it is not the connection's business
            log.exception("what node %d says led to a defect here: its stream is ended", stream.node)
            stream.end(StreamBroken(f"a defect of node {self._who.node}: {error!r}"))

    def _tell(self, stream: InboundStream, frame: Frame, messages: list[IncomingMessage]) -> None:
        if frame.HasField("active") and not self._is_active(stream, frame.active.version):
            return
        if messages:
            self._on_messages(stream.node, messages)
        if frame.HasField("hints") and RPC.fault(frame.hints) is None:  # advice: the next second brings others
            self._on_hints(frame.hints)
        if frame.HasField("clock") and RPC.fault(frame.clock) is None:
            self._on_clock(stream.node, frame.clock.wall_ms)

    def _is_active(self, stream: InboundStream, version: int) -> bool:
        """Take in the active version that a peer speaks of, which the messages beside it may need. False: this program
        does not know it, and hears that node no longer."""
        if (fault := self._who.versions.fault(version)) is not None:
            stream.end(StreamRefused(f"node {self._who.node}: {fault}"))
            return False
        self._who.on_active(version)
        return True

    def _retire(self, stream: InboundStream, reason: str) -> None:
        stream.end(StreamLost(reason))
        if self._streams.get(stream.node) is stream:
            del self._streams[stream.node]
            self._who.starts.silent(stream.node)
            self._on_change(stream.node, False)


async def first_hello(read: Callable[[], Awaitable[Buffer | None]]) -> Hello | None:
    """The Hello that a stream begins with; None if what comes is none that can be read, or nothing in time."""
    try:
        async with asyncio.timeout(options.HELLO_TIMEOUT_S):
            first = await read()
        hello = None if first is None else Frame.FromString(first).hello  # type: ignore[arg-type]  # any buffer
        return None if hello is None or RPC.fault(hello) is not None else hello
    except (DecodeError, TimeoutError):
        return None
