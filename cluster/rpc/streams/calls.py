"""Both ends of a stream, with the manners of a gRPC call: a Hello, a welcome, messages one way, a status at the end.

`InboundLinks` serves a `StreamContext` and `OutboundLink` speaks through a `StreamCall` as they would with gRPC's own,
so what is decided about who is let in and told why stands in one place for streams and calls.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Generator, Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from cluster.rpc import options
from cluster.rpc.calls.methods import EOF
from cluster.rpc.handshake import COPY_KEY, WELCOME_KEY
from cluster.rpc.peer_tls import PeerTls, uris_of
from cluster.rpc.rpc_pb2 import StreamEnd
from cluster.rpc.shared_port import dial
from cluster.rpc.streams.connection import END, MESSAGE, WELCOME, Buffer, ConnectionLost, MessageConnection
from cluster.rpc.wire_ranges import parsed

Metadata = Iterable[tuple[str, str | bytes]]

CODES = {code.value[0]: code for code in grpc.StatusCode}

LOOK_S = 0.2
"""Period at which a dialler looks whether it is heard."""
LEAVING_S = 1.0
"""The time a dialler has to close a connection of which it was told that it is over."""


class StreamEnded(Exception):
    """In the task that serves it: the stream is over, and its dialler knows why."""


def failed(code: grpc.StatusCode, detail: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), detail, None)


class StreamContext:
    """The listener's end."""

    def __init__(self, connection: MessageConnection, peer: str) -> None:
        self._connection = connection
        self._peer = peer
        self._copy = ""

    def peer(self) -> str:
        """The address of the dialler."""
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """By gRPC's names: what the dialler's certificate says."""
        return {"peer_uri": uris_of(self._connection.transport)}

    async def read(self) -> Any:
        """The next message, or EOF."""
        got = await self._connection.read()
        return EOF if got is None or got[0] != MESSAGE else got[1]

    async def hand_over(self, take: Callable[[Buffer], None]) -> None:
        """Each further message goes to `take` as soon as it has come. Returns when there will be no more."""
        await self._connection.hand_over(take)

    async def send_initial_metadata(self, _: Metadata) -> None:
        """Says that the dialler is let in."""
        self._connection.let_in()
        try:
            await self._connection.write(WELCOME, b"")
        except ConnectionLost as error:
            raise StreamEnded(str(error)) from error

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._copy = next((str(value) for key, value in metadata if key == COPY_KEY), "")

    async def abort(self, code: grpc.StatusCode, detail: str) -> None:
        """Raises StreamEnded."""
        await self.end(code, detail)
        raise StreamEnded(detail)

    async def end(self, code: grpc.StatusCode, detail: str = "") -> None:
        """Tells the dialler, if it is still there, and lets it hang up."""
        end = StreamEnd(code=code.value[0], detail=detail, copy=self._copy)
        try:
            async with asyncio.timeout(LEAVING_S):
                await self._connection.write(END, end.SerializeToString())
                await self._connection.wait_lost()
        except (ConnectionLost, TimeoutError):
            return  # it was told, or does not listen


async def serve_stream(serve: Callable[[Any, Any], Any], connection: MessageConnection, peer: str) -> None:
    """Until the stream is over."""
    context = StreamContext(connection, peer)
    try:
        await serve(None, context)
        await context.end(grpc.StatusCode.OK)
    except StreamEnded:
        return
    finally:
        connection.abort()


class StreamCall:
    """The dialler's end: dials with the first write."""

    def __init__(self, node: int, address: str, tls: PeerTls | None) -> None:
        self._node, self._address, self._tls = node, address, tls
        self._loop = asyncio.get_running_loop()
        self._connection: MessageConnection | None = None
        self._welcome: asyncio.Future[bool] = self._loop.create_future()
        self._status: asyncio.Future[None] = self._loop.create_future()
        self._hearing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look_due_s = 0.0

    async def write(self, *messages: Buffer) -> None:
        """Returns when there is room for more. Raises AioRpcError: nobody was reached; InvalidStateError: it is over,
        and `await` says why."""
        if self._status.done():
            raise asyncio.InvalidStateError("the stream is over")
        if self._connection is None:
            try:
                self._connection = await dial(self._address, self._node, self._tls)
            except (OSError, ssl.SSLError, ConnectionLost) as error:
                raise failed(grpc.StatusCode.UNAVAILABLE, str(error) or repr(error)) from error
            self._hearing = self._loop.create_task(self._hear(self._connection), name=f"answers-of-{self._node}")
        try:
            await self._connection.write(MESSAGE, *messages)
        except ConnectionLost as error:
            raise self._lost(error) from error

    @property
    def has_room(self) -> bool:
        """It is connected, and takes more at once."""
        return self._connection is not None and self._connection.has_room

    def put(self, *messages: Buffer) -> None:
        """For who has seen that there is room. Raises as `write` does."""
        assert self._connection is not None, "it has room"
        if self._status.done():
            raise asyncio.InvalidStateError("the stream is over")
        try:
            self._connection.put(MESSAGE, *messages)
        except ConnectionLost as error:
            raise self._lost(error) from error

    def _lost(self, error: ConnectionLost) -> asyncio.InvalidStateError:
        self._end(failed(grpc.StatusCode.UNAVAILABLE, str(error)))
        return asyncio.InvalidStateError(str(error))

    async def initial_metadata(self) -> tuple[tuple[str, str], ...]:
        """Once the peer has decided: with WELCOME_KEY, or empty."""
        return ((WELCOME_KEY, "yes"),) if await self._welcome else ()

    def done(self) -> bool:
        return self._status.done()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._status.add_done_callback(callback)

    def __await__(self) -> Generator[Any, None, None]:
        return self._status.__await__()

    def cancel(self) -> None:
        """Hangs up."""
        self._end(failed(grpc.StatusCode.CANCELLED, "it is given up here"))

    async def _hear(self, connection: MessageConnection) -> None:
        try:
            while (got := await connection.read()) is not None:
                kind, message = got
                if kind == WELCOME and not self._welcome.done():
                    self._welcome.set_result(True)
                    connection.heard_s = self._loop.time()
                    self._look_later()
                elif kind == END:
                    self._end(_status_in(parsed(StreamEnd, bytes(message))))
                else:
                    self._end(failed(grpc.StatusCode.INTERNAL, f"the peer answers with what is no answer ({kind})"))
            self._end(failed(grpc.StatusCode.UNAVAILABLE, connection.lost or "it is closed"))
        except DecodeError as error:
            self._end(failed(grpc.StatusCode.INTERNAL, f"the peer says in no known way that it is over: {error}"))

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
            self._end(failed(grpc.StatusCode.UNAVAILABLE, f"no answer for {options.NO_ANSWER_S} s"))
        else:
            self._look_later()

    def _end(self, error: grpc.aio.AioRpcError | None) -> None:
        if not self._welcome.done():
            self._welcome.set_result(False)
        if not self._status.done():
            if error is None:
                self._status.set_result(None)
            else:
                self._status.set_exception(error)
                self._status.exception()  # nobody may wait for it any more
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.abort()
        if self._hearing is not None and self._hearing is not asyncio.current_task():
            self._hearing.cancel()


def _status_in(end: StreamEnd) -> grpc.aio.AioRpcError | None:
    code = CODES.get(end.code, grpc.StatusCode.UNKNOWN)
    return None if code is grpc.StatusCode.OK else failed(code, end.detail, ((COPY_KEY, end.copy),) if end.copy else ())
