"""The port for other nodes, on which streams and gRPC calls come in.

The problem: streams are no gRPC calls (`streams/connection.py` says why), and a second port for them would be one more
address of each node to configure, to open in firewalls, and to forget in a cut. gRPC takes no connection that somebody
else has accepted.
The rules: whoever begins with `GREETING` gets it back, and then it is a stream, under TLS where nodes have
certificates, and before anything else is said. All other connections are handed on, byte by byte, to gRPC, which
listens for this process alone and does its own TLS. Their number is bounded; one that says nothing is closed. So are
the handshakes of an address, which take the event loop a millisecond each: one that fails keeps its place for a while.
Rejected: to look into the ClientHello for an ALPN name. It would have to be parsed before TLS does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from cluster.rpc import options
from cluster.rpc.peer_tls import PeerTls
from cluster.rpc.streams.connection import ConnectionLost, MessageConnection

log = logging.getLogger("holdfast.rpc")

GREETING = b"holdfast stream\n"
"""No TLS record and no HTTP/2 begins so."""

BACKLOG = 1024
"""Of the listening socket."""


def host_and_port(address: str) -> tuple[str | None, int]:
    """Of `host:port`, `[address]:port`; the host is None for all."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") or None, int(port)


async def dial(address: str, node: int, tls: PeerTls | None) -> MessageConnection:
    """A connection for a stream to the node. Raises OSError, ssl.SSLError, ConnectionLost."""
    loop = asyncio.get_running_loop()
    host, port = host_and_port(address)
    transport, greeted = await loop.create_connection(lambda: _Greeted(loop), host or "localhost", port)
    try:
        transport.write(GREETING)
        await greeted.answer
        connection = MessageConnection(answers=False)
        if tls is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
        else:
            name = tls.host_of(node)
            encrypted = await loop.start_tls(
                transport, connection, tls.dialler_context(), server_hostname=name,
                ssl_handshake_timeout=options.HELLO_TIMEOUT_S,
            )  # fmt: skip
            assert encrypted is not None
            connection.connection_made(encrypted)
        return connection
    except BaseException:
        transport.abort()
        raise


class _Greeted(asyncio.Protocol):
    """The dialler's, until the greeting has come back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[None] = loop.create_future()
        self._said = b""

    def data_received(self, data: bytes) -> None:
        self._said += data
        if self._said == GREETING and not self.answer.done():
            self.answer.set_result(None)
        elif not GREETING.startswith(self._said):
            self._fail("what listens there is no Holdfast node of this version")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the connection was closed before anything was said")

    def _fail(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionLost(reason))
            self.answer.exception()  # who dialled may have gone


HANDSHAKES, FAILED_HANDSHAKE_S = 4, 0.2
"""TLS handshakes of one address under way; and how long one that failed counts as one of them: 20 in a second."""

LINE_S = 1.0
"""Of the log, about connections that are not taken: one in so long."""


class SharedPort:
    """`serve(connection, peer)` for each stream."""

    def __init__(self, *, serve: Callable[[MessageConnection, str], Awaitable[None]], tls: PeerTls | None) -> None:
        self.grpc_address = f"unix-abstract:holdfast-{secrets.token_hex(16)}"
        """Where gRPC is to listen."""
        self._serve = serve
        self._tls = tls
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._here: dict[str, dict[Any, None]] = {}  # connections that came in, by address, each in order
        self.connections = 0
        self._handshakes: dict[str, int] = {}
        self._said_s = float("-inf")

    async def listen(self, bind: str) -> int:
        """The port. Raises OSError."""
        host, port = host_and_port(bind)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Arrival(self), host, port, backlog=BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    def stop_listening(self) -> None:
        """Nobody comes in any more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """The same, and who is in has `STOP_GRACE_S` to leave."""
        self.stop_listening()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=options.STOP_GRACE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in [transport for of_one in self._here.values() for transport in of_one]:
            transport.abort()

    # -- for connections that come in

    def came(self, transport: Any) -> None:
        """Where there are too many, the address with most of them loses its oldest: a flood pushes out itself."""
        self._here.setdefault(_address_of(transport), {})[transport] = None
        self.connections += 1
        if self.connections > options.MAX_CONNECTIONS:
            crowd = max(self._here.values(), key=len)
            oldest = next(iter(crowd))
            self._say(_name_of(oldest), f"its address has most of {options.MAX_CONNECTIONS} connections")
            self.left(oldest)
            oldest.abort()

    def left(self, transport: Any) -> None:
        """It may be said more than once."""
        address = _address_of(transport)
        of_one = self._here.get(address, {})
        if transport in of_one:
            del of_one[transport]
            self.connections -= 1
            if not of_one:
                del self._here[address]

    def is_stream(self, transport: asyncio.Transport) -> None:
        self._begin(self._stream(transport))

    def is_call(self, transport: asyncio.Transport, said: bytearray) -> None:
        """`said`: what came, to which there may come more before it is taken over."""
        self._begin(self._hand_on(transport, said))

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stream(self, transport: asyncio.Transport) -> None:
        peer = _name_of(transport)
        connection = MessageConnection(answers=True)
        try:
            if transport.is_closing():
                return
            transport.write(GREETING)
            if self._tls is None:
                transport.set_protocol(connection)
                connection.connection_made(transport)
                transport.resume_reading()
            else:
                await self._encrypt(transport, connection, self._tls)
            await self._serve(connection, peer)
        except OSError as error:  # ssl.SSLError is one
            self._say(peer, f"it dialled a stream, and is no node: {error}")
        finally:
            transport.abort()
            self.left(transport)

    async def _encrypt(self, transport: asyncio.Transport, connection: MessageConnection, tls: PeerTls) -> None:
        """Raises OSError."""
        loop, address = asyncio.get_running_loop(), _address_of(transport)
        under_way = self._handshakes.get(address, 0)
        if under_way >= HANDSHAKES:
            raise OSError("its address has too many handshakes under way")
        self._handshakes[address] = under_way + 1
        try:
            context, most_s = tls.listener_context(), options.HELLO_TIMEOUT_S
            encrypted = await loop.start_tls(
                transport, connection, context, server_side=True, ssl_handshake_timeout=most_s
            )
            assert encrypted is not None
        except BaseException:
            loop.call_later(FAILED_HANDSHAKE_S, self._handshake_over, address)
            raise
        self._handshake_over(address)
        connection.connection_made(encrypted)

    def _handshake_over(self, address: str) -> None:
        self._handshakes[address] -= 1
        if not self._handshakes[address]:
            del self._handshakes[address]

    def _say(self, peer: str, why: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._said_s >= LINE_S:
            self._said_s = now_s
            log.warning("a connection of %s is not taken: %s", peer, why)

    async def _hand_on(self, transport: asyncio.Transport, said: bytearray) -> None:
        """To gRPC, which sees the caller's address as the name of the connection's other end."""
        if transport.is_closing():
            return
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.setblocking(False)
            inner.bind(f"\0{_name_of(transport)}~{self.grpc_address[-8:]}~{next(self._numbers)}".encode())
            inner.connect("\0" + self.grpc_address.removeprefix("unix-abstract:"))
            loop = asyncio.get_running_loop()
            inner_transport, _ = await loop.create_unix_connection(lambda: _Half(transport), sock=inner)
        except OSError as error:  # gRPC has as many as it takes, or has stopped
            inner.close()
            transport.abort()
            self._say(_name_of(transport), f"gRPC does not take it: {error}")
            return
        transport.set_protocol(_Half(inner_transport, lambda: self.left(transport)))
        if transport.is_closing():
            inner_transport.abort()
            return
        inner_transport.write(bytes(said))
        transport.resume_reading()


def caller_at(peer: str) -> str:
    """The address of whom gRPC, or a stream, calls `peer`."""
    return peer.removeprefix("unix-abstract:").partition("~")[0]


class _Half(asyncio.Protocol):
    """Of a connection that is handed on: what comes here goes there."""

    def __init__(self, other: Any, gone: Callable[[], None] = lambda: None) -> None:
        self._other = other
        self._gone = gone

    def data_received(self, data: bytes) -> None:
        self._other.write(data)

    def eof_received(self) -> bool:
        return False  # gRPC closes none by halves

    def pause_writing(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is closing
            self._other.pause_reading()

    def resume_writing(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._other.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._other.close()  # what is on its way there still arrives
        self._gone()


class _Arrival(asyncio.Protocol):
    """Of a connection that has not said yet what it is."""

    def __init__(self, port: SharedPort) -> None:
        self._port = port
        self._said = bytearray()
        self._is_known = False
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._port.came(transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(options.HELLO_TIMEOUT_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._said += data
        is_part = GREETING.startswith(self._said)
        if self._is_known or (is_part and len(self._said) < len(GREETING)):
            return
        self._is_known = True
        self._no_timer()
        self._transport.pause_reading()  # until somebody else reads
        if is_part:
            self._port.is_stream(self._transport)
        else:
            self._port.is_call(self._transport, self._said)

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def connection_lost(self, _: Exception | None) -> None:
        self._no_timer()
        self._port.left(self._transport)


def _address_of(transport: Any) -> str:
    name = transport.get_extra_info("peername")
    return name[0] if name else ""


def _name_of(transport: Any) -> str:
    """The other end, as gRPC would write it."""
    name = transport.get_extra_info("peername")
    if not name:
        return "somebody who has left"
    return f"ipv6:[{name[0]}]:{name[1]}" if ":" in name[0] else f"ipv4:{name[0]}:{name[1]}"
