"""Accepts the connections of a listener with TLS or behind proxies, and serves each by its first bytes.

Problem: a client may begin with TLS, or ask for TLS in AMQP's own words (section 5.2 of the specification), or be at
the wrong port; a proxy says for whom it comes (`proxy_header.py`). asyncio cannot do the second and the last, and
answers nothing to the third.
Rules never broken: the first bytes are looked at, and left where they are, so that the connection's protocol reads
them; everything up to AMQP's open has one deadline; connections that are not served yet count, and there is a bound.
Rejected: starting TLS on a transport that has read already. Bytes that a client sent in one piece with its request
would be lost to the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from typing import Literal

from holdfast.amqp.framing.handshake import TLS_HEADER, TLS_HELLO, stranger
from node.listener.connections.proxy_header import (
    FIXED_BYTES,
    BadHeader,
    Network,
    client_of,
    is_among,
    is_header,
    rest_bytes,
)
from node.listener.limits.unauthenticated_connections import UnauthenticatedConnections
from node.listener.log_limiter import LogLimiter
from node.security.tls import ServerTls

log = logging.getLogger("holdfast.listener")

HEAD_BYTES = 8
UNREAD_BYTES = 64 * 1024
NO_DESCRIPTORS_PAUSE_S = 1.0
"""Pause after the system has refused a descriptor: connections that end meanwhile give theirs back."""

OTHERS_CAME = "others came while it had not opened; connect again"

Mode = Literal["on", "start", "any"]

Client = tuple[str, int]
"""Address and port."""


class TlsAcceptor:
    """`serve(deadline_s, client)` makes the protocol of a connection that has until then to open. `client`: its address
    and port, as a proxy says them; None: those of the socket. `tls` None: none is served. `proxies`: networks of
    proxies that are believed, and that must say for whom they come."""

    def __init__(
        self,
        serve: Callable[[float, Client | None], asyncio.Protocol],
        tls: ServerTls | None,
        mode: Mode,
        notes: LogLimiter,
        *,
        handshake_s: float,
        backlog: int,
        proxies: Collection[Network] = (),
    ) -> None:
        self._serve = serve
        self._tls = tls
        self._mode = mode
        self._notes = notes
        self._handshake_s = handshake_s
        self._backlog = backlog
        self._proxies = proxies
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: UnauthenticatedConnections[asyncio.Task[None]] = UnauthenticatedConnections()
        self._accepting: list[asyncio.Task[None]] = []
        self.sockets: list[socket.socket] = []

    async def open(self, host: str, port: int) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            listening = socket.socket(family, socket.SOCK_STREAM)
            self.sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(self._backlog)
            listening.setblocking(False)
            self._accepting.append(loop.create_task(self._accept(listening)))

    async def close(self) -> None:
        """Stop listening, and end the connections that are not served yet; the others stay."""
        tasks = [*self._accepting, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self.sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                arrived, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._notes.write("no more connections can be taken now: %s", error)
                    await asyncio.sleep(NO_DESCRIPTORS_PAUSE_S)
                continue
            task = loop.create_task(self._let_in(arrived))
            self._tasks.add(task)
            task.add_done_callback(self._let_go)
            self._count(task, str(address[0]))

    def _count(self, task: asyncio.Task[None], address: str) -> None:
        """Count a connection that is not served yet, and cut the one that must make room."""
        too_many = self._strangers.add(task, address)
        if too_many is not None:
            self._notes.write("a connection is cut: %s", OTHERS_CAME)
            too_many.cancel()

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._strangers.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a bug ends a connection at the door", exc_info=error)

    async def _let_in(self, arrived: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._handshake_s
        handed_on = False
        peer: Client = ("?", 0)
        client: Client | None = None
        try:
            arrived.setblocking(False)
            peer = arrived.getpeername()[:2]
            async with asyncio.timeout_at(deadline_s):
                client = await self._client(arrived, peer) if self._proxies else None
                if client is not None:
                    peer = client
                context = await self._way_in(arrived, peer)
                if context is None:
                    return
                handed_on = True
                if not context:
                    self._out_of_reach()
                left_s = deadline_s - loop.time()
                await loop.connect_accepted_socket(
                    lambda: self._serve(deadline_s, client),
                    arrived,
                    ssl=context or None,
                    ssl_handshake_timeout=max(0.0, left_s) + 1.0 if context else None,  # the timeout here is first
                )
        except TimeoutError:
            self._notes.write("connection from %s is cut: it did not begin in time", peer)
        except BadHeader as problem:
            self._notes.write("%s is sent away: %s", peer, problem)
        except ssl.SSLError as error:
            self._notes.write("TLS with %s failed: %s", peer, error.reason or error)
        except OSError:
            pass  # it went away by itself
        finally:
            if not handed_on:
                arrived.close()

    def _out_of_reach(self) -> None:
        """Let nobody cancel this task: a connection that was made would not hear that it is lost. The listener counts
        it from now on."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.discard(task)
            self._strangers.remove(task)

    async def _client(self, arrived: socket.socket, peer: Client) -> Client | None:
        """The client that a proxy says it comes for; None: the peer itself. Raises BadHeader."""
        head = await self._peek(arrived)
        if not is_among(peer[0], self._proxies):
            if is_header(head):
                raise BadHeader("it sent a PROXY header, and is no proxy of this listener: see listener.proxies")
            return None
        fixed = await _read(arrived, FIXED_BYTES)
        found = client_of(fixed, await _read(arrived, rest_bytes(fixed)))
        task = asyncio.current_task()
        if found is not None and task is not None:
            self._strangers.remove(task)
            self._count(task, found[0])
        return found

    async def _way_in(self, arrived: socket.socket, peer: object) -> ssl.SSLContext | Literal[False] | None:
        """The context to serve the connection with, False for none; None: it is sent away."""
        if self._tls is None:
            return False
        head = await self._peek(arrived)
        if len(head) < HEAD_BYTES:
            return None
        if self._mode != "start" and TLS_HELLO.startswith(head[:2]):
            return self._tls.context()
        if self._mode == "on":
            self._notes.write("%s came to a port for TLS without TLS: %s", peer, self._without_tls(head))
            with contextlib.suppress(OSError):
                arrived.recv(UNREAD_BYTES)  # else closing would reset the connection, and lose the answer
                arrived.send(TLS_HEADER)  # what is served here, as the specification wants it said
            return None
        if head == TLS_HEADER:
            arrived.recv(HEAD_BYTES)
            await asyncio.get_running_loop().sock_sendall(arrived, TLS_HEADER)
            return self._tls.context()
        return False

    @staticmethod
    def _without_tls(head: bytes) -> str:
        return "AMQP; connect with TLS" if head.startswith(b"AMQP") else stranger(head)

    async def _peek(self, arrived: socket.socket) -> bytes:
        """The first eight bytes, which stay unread; fewer: there will be no more. Every protocol that is served here
        begins with as many, and the kernel does not wake us before they are there: a client that sends them one by one,
        or never, costs nothing."""
        loop = asyncio.get_running_loop()
        arrived.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, HEAD_BYTES)
        while True:
            await _readable(loop, arrived)
            with contextlib.suppress(BlockingIOError):
                head = arrived.recv(HEAD_BYTES, socket.MSG_PEEK)
                arrived.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                return head


async def _read(arrived: socket.socket, size: int) -> bytes:
    """Exactly so many bytes. Raises BadHeader if they do not come."""
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < size:
        piece = await loop.sock_recv(arrived, size - len(found))
        if not piece:
            raise BadHeader(f"it went away within its header, of which {len(found)} bytes had come")
        found += piece
    return found


def _readable(loop: asyncio.AbstractEventLoop, arrived: socket.socket) -> Awaitable[None]:
    ready = loop.create_future()

    def told() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(arrived, told)
    ready.add_done_callback(lambda _: loop.remove_reader(arrived))
    return ready
