"""Ends of a stream: a Hello, a welcome, messages one way, and an error at the end (`errors.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError

from cluster.rpc import options
from cluster.rpc.call_validation import parsed
from cluster.rpc.peer_tls import PeerTls, uris_of
from cluster.rpc.raft_transport.connection import END, MESSAGE, WELCOME, Buffer, MessageConnection
from cluster.rpc.raft_transport.errors import StreamBroken, StreamError, StreamLost, from_end, to_end
from cluster.rpc.rpc_pb2 import StreamEnd
from cluster.rpc.shared_port import dial

LOOK_S = 0.2
"""Period at which a dialler looks whether it is heard."""
LEAVING_S = 1.0
"""The time a dialler has to close a connection of which it was told that it is over."""


class ListenerEnd:
    """The end that the dialler speaks to."""

    def __init__(self, connection: MessageConnection, peer: str) -> None:
        self._connection = connection
        self._peer = peer

    def peer(self) -> str:
        """The address of the dialler."""
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """URIs of the dialler's certificate, under the name by which `PeerTls` finds them in calls, too."""
        return {"peer_uri": uris_of(self._connection.transport)}

    async def read(self) -> Buffer | None:
        """The next message; None when there will be no more."""
        got = await self._connection.read()
        return None if got is None or got[0] != MESSAGE else got[1]

    async def hand_over(self, take: Callable[[Buffer], None]) -> None:
        """Each further message goes to `take` as soon as it has come. Returns when there will be no more."""
        await self._connection.hand_over(take)

    async def welcome(self) -> None:
        """Let the dialler in, and say so. Raises StreamLost."""
        self._connection.let_in()
        await self._connection.write(WELCOME, b"")

    async def end(self, error: StreamError) -> None:
        """Tell the dialler, if it is still there, and let it hang up."""
        try:
            async with asyncio.timeout(LEAVING_S):
                await self._connection.write(END, to_end(error).SerializeToString())
                await self._connection.wait_lost()
        except (StreamLost, TimeoutError):
            return  # it was told, or does not listen


async def serve_stream(
    serve: Callable[[ListenerEnd], Awaitable[None]], connection: MessageConnection, peer: str
) -> None:
    """Serve until the stream is over, and tell the dialler why it is."""
    end = ListenerEnd(connection, peer)
    try:
        await serve(end)
    except StreamError as error:
        await end.end(error)
    finally:
        connection.abort()


class DiallerEnd:
    """The end that speaks. It dials with the first write."""

    def __init__(self, node: int, address: str, tls: PeerTls | None) -> None:
        self._node, self._address, self._tls = node, address, tls
        self._loop = asyncio.get_running_loop()
        self._connection: MessageConnection | None = None
        self._welcome: asyncio.Future[bool] = self._loop.create_future()
        self._over: asyncio.Future[StreamError] = self._loop.create_future()
        self._hearing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look_due_s = 0.0

    async def write(self, *messages: Buffer) -> None:
        """Send messages; returns when there is room for more. Raises StreamError: the stream is over."""
        if self._over.done():
            raise self._over.result()
        if self._connection is None:
            try:
                self._connection = await dial(self._address, self._node, self._tls)
            except (OSError, StreamLost) as error:
                raise self._end(StreamLost(str(error) or repr(error))) from error
            except ValueError as error:  # of the port, or of the name's encoding: another node said where it is
                told = f"{self._address[:300]!r} is no address to dial ({error}): correct it at that node"
                raise self._end(StreamLost(told)) from error
            self._hearing = self._loop.create_task(self._hear(self._connection), name=f"answers-of-{self._node}")
        try:
            await self._connection.write(MESSAGE, *messages)
        except StreamLost as error:
            self._end(error)
            raise

    @property
    def has_room(self) -> bool:
        """True if the stream is connected and takes more at once."""
        return self._connection is not None and self._connection.has_room

    def put(self, *messages: Buffer) -> None:
        """Write without waiting, where the caller has seen that there is room. Raises as `write` does."""
        assert self._connection is not None, "it has room"
        if self._over.done():
            raise self._over.result()
        try:
            self._connection.put(MESSAGE, *messages)
        except StreamLost as error:
            self._end(error)
            raise

    async def is_let_in(self) -> bool:
        """Wait for the listener's decision. False also when the stream is over."""
        return await self._welcome and not self._over.done()

    async def wait_over(self) -> StreamError:
        """Wait for the end of the stream, and say why it came."""
        return await asyncio.shield(self._over)

    def on_over(self, callback: Callable[[], None]) -> None:
        self._over.add_done_callback(lambda _: callback())

    def hang_up(self) -> None:
        self._end(StreamLost("this node gave the stream up"))

    async def _hear(self, connection: MessageConnection) -> None:
        try:
            while (got := await connection.read()) is not None:
                kind, message = got
                if kind == WELCOME and not self._welcome.done():
                    self._welcome.set_result(True)
                    connection.heard_s = self._loop.time()
                    self._look_later()
                elif kind == END:
                    self._end(from_end(parsed(StreamEnd, bytes(message))))
                else:
                    self._end(StreamBroken(f"the peer answers with what is no answer ({kind})"))
            self._end(StreamLost(connection.lost or "the connection is closed"))
        except DecodeError as error:
            self._end(StreamBroken(f"the peer says in no known way that the stream is over: {error}"))

    def _look_later(self) -> None:
        self._look_due_s = self._loop.time() + LOOK_S
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        connection, now_s = self._connection, self._loop.time()
        assert connection is not None, "it was welcomed"
        late_s = now_s - self._look_due_s
        if late_s > LOOK_S:  # this process stood still: what the peer said meanwhile is still in the socket
            connection.heard_s = min(connection.heard_s + late_s, now_s)
        if now_s - connection.heard_s > options.NO_ANSWER_S:
            self._end(StreamLost(f"no answer for {options.NO_ANSWER_S} s"))
        else:
            self._look_later()

    def _end(self, error: StreamError) -> StreamError:
        """Returns the error with which the stream ended first."""
        if not self._over.done():
            self._over.set_result(error)
        if not self._welcome.done():
            self._welcome.set_result(False)
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.abort()
        if self._hearing is not None and self._hearing is not asyncio.current_task():
            self._hearing.cancel()
        return self._over.result()
