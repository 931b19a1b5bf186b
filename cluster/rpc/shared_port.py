"""The port for other nodes, on which streams and gRPC calls come in.

The problem: streams are no gRPC calls (`raft_transport/connection.py` says why), and a second port for them would be
one more address of each node to configure, to open in firewalls, and to forget in a cut. gRPC takes no connection that
somebody else has accepted. The rules: a connection that begins with `GREETING` gets it back, and then it is a stream,
under TLS where nodes have certificates, and before anything else is said. All other connections are handed on, byte by
byte, to gRPC, which listens for this process alone and does its own TLS. Their number is bounded; one that says nothing
is closed. So are the TLS handshakes of streams, which take the event loop a millisecond each: one that fails keeps its
place for a while. Rejected: to look into the ClientHello for an ALPN name. It would have to be parsed before TLS does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import IPv6Network, ip_address
from typing import Any

from cluster.rpc import options
from cluster.rpc.peer_tls import PeerTls
from cluster.rpc.raft_transport.connection import MessageConnection
from cluster.rpc.raft_transport.errors import StreamLost

log = logging.getLogger("holdfast.rpc")

GREETING = b"holdfast stream\n"
"""First bytes of a stream: no TLS record and no HTTP/2 begins so."""

BACKLOG = 1024
"""Backlog of the listening socket."""


def host_and_port(address: str) -> tuple[str | None, int]:
    """Split `host:port` or `[address]:port`; the host is None for all."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") or None, int(port)


async def dial(address: str, node: int, tls: PeerTls | None) -> MessageConnection:
    """Open a connection for a stream to the node. Raises OSError, StreamLost."""
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
            if encrypted is None or encrypted.is_closing():  # which uvloop does not call a failure
                raise StreamLost("the connection ended in its handshake")
            connection.connection_made(encrypted)
        return connection
    except BaseException:
        transport.abort()
        raise


class _Greeted(asyncio.Protocol):
    """Protocol of the dialler, until the greeting has come back."""

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
            self.answer.set_exception(StreamLost(reason))
            self.answer.exception()  # the dialler may have gone


HANDSHAKES, FAILED_HANDSHAKE_S = 4, 0.2
"""TLS handshakes of one host under way; and how long one that failed counts as one of them: 20 in a second."""
ALL_HANDSHAKES = 32
"""Limit of TLS handshakes under way for all hosts together."""

STUCK_S = 10.0
"""A peer that takes nothing of an answer for so long is not waited for."""

LINGER_S = 2.0
"""Time for the last bytes of gRPC to be taken."""

LINE_S = 1.0
"""Period of lines in the log about connections that are not taken."""


class SharedPort:
    """The port for streams and gRPC calls. `serve(connection, peer)` is called for each stream."""

    def __init__(self, *, serve: Callable[[MessageConnection, str], Awaitable[None]], tls: PeerTls | None) -> None:
        self.grpc_address = f"unix-abstract:holdfast-{secrets.token_hex(16)}"
        """Address that gRPC is to listen on."""
        self._serve = serve
        self._tls = tls
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._here: dict[Caller, None] = {}
        self._strangers: dict[str, dict[Caller, None]] = {}  # of those, who was not let in yet; by host, each in order
        self._of_nodes: dict[str, dict[Caller, None]] = {}  # streams that were let in, by host
        self._is_over = False
        self._handshakes: dict[str, int] = {}
        self._said_s = float("-inf")

    async def listen(self, bind: str) -> int:
        """Listen, and return the port. Raises OSError."""
        host, port = host_and_port(bind)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Arrival(self), host, port, backlog=BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    def stop_listening(self) -> None:
        """Accept no more connections."""
        self._is_over = True
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """Accept no more connections, and give those that are open `STOP_GRACE_S` to leave."""
        self.stop_listening()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=options.STOP_GRACE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for caller in list(self._here):
            caller.transport.abort()

    @property
    def connections(self) -> int:
        """Number of connections that came in and have not ended."""
        return len(self._here)

    # -- for connections that come in

    def came(self, caller: Caller) -> None:
        """Take a connection in. Where there are too many, the host with most strangers loses its oldest: a flood pushes
        out itself. A stream that was let in is no stranger's; of calls gRPC alone knows that, but hosts of such streams
        come last."""
        self._here[caller] = None
        self._strangers.setdefault(caller.host, {})[caller] = None
        if len(self._here) > options.MAX_CONNECTIONS:
            crowds = [crowd for host, crowd in self._strangers.items() if host not in self._of_nodes]
            crowd = max(crowds or self._strangers.values(), key=len)
            oldest = next(iter(crowd))
            self.left(oldest)
            oldest.transport.abort()
            self._say(oldest.name, f"its host has most of {options.MAX_CONNECTIONS} connections")

    def left(self, caller: Caller) -> None:
        """Forget a connection. May be called more than once."""
        self._here.pop(caller, None)
        self._no_stranger(caller)
        of_host = self._of_nodes.get(caller.host, {})
        of_host.pop(caller, None)
        if not of_host:
            self._of_nodes.pop(caller.host, None)

    def _no_stranger(self, caller: Caller) -> None:
        of_host = self._strangers.get(caller.host, {})
        of_host.pop(caller, None)
        if not of_host:
            self._strangers.pop(caller.host, None)

    def _let_in(self, caller: Caller) -> None:
        """Note that a connection is a node's stream."""
        self._no_stranger(caller)
        self._of_nodes.setdefault(caller.host, {})[caller] = None

    def is_stream(self, caller: Caller) -> None:
        self._begin(caller, self._stream(caller))

    def is_call(self, caller: Caller, said: bytearray) -> None:
        """Treat the connection as a gRPC call. `said`: what came; more may come before it is taken over."""
        self._begin(caller, self._hand_on(caller, said))

    def _begin(self, caller: Caller, work: Any) -> None:
        if self._is_over:
            work.close()
            caller.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stream(self, caller: Caller) -> None:
        transport = caller.transport
        connection = MessageConnection(answers=True, on_let_in=partial(self._let_in, caller))
        try:
            if transport.is_closing():
                return
            transport.write(GREETING)
            if self._tls is None:
                transport.set_protocol(connection)
                connection.connection_made(transport)
                transport.resume_reading()
            else:
                await self._encrypt(caller, connection, self._tls)
            await self._serve(connection, caller.name)
        except (OSError, ValueError, RuntimeError) as error:  # ssl.SSLError is one; the others: of a closed handle
            self._say(caller.name, f"it dialled a stream, and is no node: {error}")
        finally:
            transport.abort()
            self.left(caller)

    async def _encrypt(self, caller: Caller, connection: MessageConnection, tls: PeerTls) -> None:
        """Put the connection under TLS. Raises OSError."""
        loop, host = asyncio.get_running_loop(), caller.host
        of_host = self._handshakes.get(host, 0)
        if of_host >= HANDSHAKES or sum(self._handshakes.values()) >= ALL_HANDSHAKES:
            raise OSError("too many handshakes are under way")
        self._handshakes[host] = of_host + 1
        try:
            context, most_s = tls.listener_context(), options.HELLO_TIMEOUT_S
            encrypted = await loop.start_tls(
                caller.transport, connection, context, server_side=True, ssl_handshake_timeout=most_s
            )
            if encrypted is None or encrypted.is_closing():  # which uvloop does not call a failure
                raise ConnectionResetError("the connection ended in its handshake")
        except BaseException:
            loop.call_later(FAILED_HANDSHAKE_S, self._handshake_over, host)
            raise
        self._handshake_over(host)
        connection.connection_made(encrypted)

    def _handshake_over(self, host: str) -> None:
        self._handshakes[host] -= 1
        if not self._handshakes[host]:
            del self._handshakes[host]

    def _say(self, peer: str, why: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._said_s >= LINE_S:
            self._said_s = now_s
            log.warning("a connection of %s is not taken: %s", peer, why)

    async def _hand_on(self, caller: Caller, said: bytearray) -> None:
        """Hand the connection to gRPC, which sees the caller's address as the name of the connection's other end."""
        transport = caller.transport
        if transport.is_closing():
            return
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.setblocking(False)
            inner.bind(f"\0{caller.name}~{self.grpc_address[-8:]}~{next(self._numbers)}".encode())
            inner.connect("\0" + self.grpc_address.removeprefix("unix-abstract:"))
            loop = asyncio.get_running_loop()
            inner_transport, _ = await loop.create_unix_connection(lambda: _Half(transport), sock=inner)
        except BaseException as error:
            inner.close()
            transport.abort()
            if not isinstance(error, OSError):
                raise
            self._say(caller.name, f"gRPC does not take it: {error}")  # it has as many as it takes, or has stopped
            return
        transport.set_protocol(_Half(inner_transport, partial(self.left, caller)))
        if transport.is_closing():
            inner_transport.abort()
            return
        inner_transport.write(bytes(said))
        transport.resume_reading()


def caller_at(peer: str) -> str:
    """The address of the caller that gRPC, or a stream, calls `peer`."""
    return peer.removeprefix("unix-abstract:").partition("~")[0]


class _Half(asyncio.Protocol):
    """Half of a connection that is handed on: it passes its bytes to the other half."""

    def __init__(self, other: Any, gone: Callable[[], None] = lambda: None) -> None:
        self._other = other
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._stuck: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self._other.write(data)

    def eof_received(self) -> bool:
        return False  # gRPC closes none by halves

    def pause_writing(self) -> None:
        """Stop reading the other end, and abort it after a while: nothing would notice that an unread end has ended."""
        with contextlib.suppress(RuntimeError):  # it is closing
            self._other.pause_reading()
        self._stuck = self._loop.call_later(STUCK_S, self._other.abort)

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
        with contextlib.suppress(RuntimeError):
            self._other.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
        self._other.close()  # what is on its way there still arrives, if it is taken soon
        self._loop.call_later(LINGER_S, self._other.abort)
        self._gone()


class Caller:
    """A connection that came in. Its addresses are read once: those of an ended connection cannot be read."""

    __slots__ = ("host", "name", "transport")

    def __init__(self, transport: Any) -> None:
        """Raises OSError, ValueError: it has left already."""
        peer = transport.get_extra_info("peername")
        if not peer:
            raise OSError("it has left")
        self.transport = transport
        address = ip_address(peer[0].partition("%")[0])
        self.host = str(address)
        """Address that a host has for itself alone: of IPv6 everybody has a network."""
        self.name = f"ipv4:{peer[0]}:{peer[1]}"
        """Address as gRPC would write it."""
        if address.version == 6:
            self.host = str(IPv6Network((address, 64), strict=False))
            self.name = f"ipv6:[{peer[0]}]:{peer[1]}"


class _Arrival(asyncio.Protocol):
    """Connection that has not said yet what it is."""

    def __init__(self, port: SharedPort) -> None:
        self._port = port
        self._said = bytearray()
        self._is_known = False
        self._transport: Any = None
        self._caller: Caller | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        try:
            self._caller = Caller(transport)
        except (OSError, ValueError):
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(options.HELLO_TIMEOUT_S, self._transport.abort)
        self._port.came(self._caller)

    def data_received(self, data: bytes) -> None:
        self._said += data
        is_part = GREETING.startswith(self._said)
        if self._caller is None or self._is_known or (is_part and len(self._said) < len(GREETING)):
            return
        self._is_known = True
        self._no_timer()
        self._transport.pause_reading()  # until somebody else reads
        if is_part:
            self._port.is_stream(self._caller)
        else:
            self._port.is_call(self._caller, self._said)

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def connection_lost(self, _: Exception | None) -> None:
        self._no_timer()
        if self._caller is not None:
            self._port.left(self._caller)
