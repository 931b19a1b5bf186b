"""AMQP over WebSocket: the socket of a connection, where its peer began with HTTP.

A connection reads and writes as on any other socket; between it and the real one stands a `WebSocketPeer`. The library
`websockets` knows the protocol. Rules: input is opened in small slices, in the turns that all connections share; the
size of a message is bounded, and is small before the AMQP open, though nothing of AMQP depends on where one ends; a
peer that sends frames without data, or takes no answers to its pings, is cut. A page in a browser is let in only if it
comes from this very host, since a browser sends others' pages along with the rights that its machine has. Without TLS
the host must be an address or `localhost`: a name may be made to lead here by those whose page it is.

Source: AMQP over WebSockets (OASIS binding, working draft), RFC 6455. The path is that of Event Hubs; SDKs write it
with a slash at its end and without.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from websockets.exceptions import NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from node.listener.limits.fair_scheduling import Turns, clock_s

BEGIN = b"G"
"""First byte of such a peer: HTTP's GET. AMQP and TLS begin with others."""

PATHS = ("", "/$servicebus/websocket")
SUBPROTOCOLS = ("amqp", "AMQPWSB10", "binary")
"""Names that clients have for AMQP here. The first one that a client offers is taken; none need be offered."""

MAX_MESSAGE_BYTES = 1024 * 1024
"""Bytes of one WebSocket message. Clients send an AMQP frame in each, which has at most 64 KiB."""

MAX_FIRST_BYTES = 64 * 1024
"""The same before the AMQP open."""

SLICE_BYTES = 8 * 1024
"""Bytes of input that are opened at once: in the smallest frames, some milliseconds of work."""

MAX_IDLE_FRAMES = 1000
"""Frames without data, one after the other: pings and empty messages."""

MAX_UNREAD_BYTES = 256 * 1024
"""Bytes of answers to pings that the peer has not taken."""


class WebSocketPeer(asyncio.Transport, asyncio.Protocol):
    """The transport of a connection, and the protocol of the socket below it.

    Implements `fair_scheduling.InputWaiter`.
    """

    def __init__(
        self, connection: asyncio.Protocol, below: asyncio.Transport, turns: Turns, note: Callable[..., None]
    ) -> None:
        super().__init__()
        self._connection, self._below, self._turns, self._note = connection, below, turns, note
        self._protocol = ServerProtocol(select_subprotocol=_chosen, max_size=MAX_FIRST_BYTES)
        self._is_open = False
        self._waiting = bytearray()
        self._paused = False  # by the connection
        self._queued = False  # for a turn of its own
        self._reads = True  # from below
        self._idle_frames = 0

    def opened(self) -> None:
        """Note that the peer has said AMQP's open: it may send large messages."""
        self._protocol.max_message_size = MAX_MESSAGE_BYTES

    # ------------------------------------------------------------------------------------------------- from below

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        if self._queued:
            return
        while self._waiting and not (self._turns.input_over or self._paused):
            self._slice()
        self._wait_for_turn()

    def work_on(self) -> bool:
        """Open a slice of what waits. Returns whether more waits, and may be opened."""
        if self._waiting and not self._paused:
            self._slice()
        self._queued = bool(self._waiting) and not self._paused
        if not self._queued:
            self._read_or_pause()
        return self._queued

    def _wait_for_turn(self) -> None:
        if self._waiting and not self._queued and not self._paused:
            self._queued = True
            self._turns.wait_to_take(self)
        self._read_or_pause()

    def _read_or_pause(self) -> None:
        reads = not (self._waiting or self._paused)
        if self._below.is_closing() or reads == self._reads:
            return
        self._reads = reads
        if reads:
            self._below.resume_reading()
        else:
            self._below.pause_reading()

    def _slice(self) -> None:
        began_s = clock_s()
        data = bytes(self._waiting[:SLICE_BYTES])
        del self._waiting[:SLICE_BYTES]
        self._protocol.receive_data(data)
        events = self._protocol.events_received()
        self._turns.used_input(clock_s() - began_s)
        for event in events:
            if isinstance(event, Request):
                self._greet(event)
            elif isinstance(event, Frame):
                self._take(event)
        self._send()

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "AMQP is sent in binary messages")
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT) and frame.data:
            self._idle_frames = 0
            self._connection.data_received(bytes(frame.data))
        else:
            self._idle_frames += 1
            if self._idle_frames > MAX_IDLE_FRAMES or self._below.get_write_buffer_size() > MAX_UNREAD_BYTES:
                self._note("a WebSocket is cut: frames without data, or answers that it does not take")
                self._waiting.clear()
                self._below.abort()

    def _greet(self, request: Request) -> None:
        response = self._answer(request)
        self._protocol.send_response(response)
        self._is_open = response.status_code == http.HTTPStatus.SWITCHING_PROTOCOLS
        if not self._is_open:
            self._note(
                "HTTP without a WebSocket that is served here: %s", response.body.decode(errors="replace").strip()[:200]
            )

    def _answer(self, request: Request) -> Response:
        try:
            path = urlsplit(request.path).path.rstrip("/")
            origin = request.headers.get("Origin")
            is_own = origin is None or self._is_own(urlsplit(origin).netloc, request.headers.get("Host") or "")
        except (ValueError, LookupError) as error:  # LookupError: a header that stands twice
            return self._protocol.reject(http.HTTPStatus.BAD_REQUEST, f"the request cannot be read: {error}\n")
        if path not in PATHS:
            return self._protocol.reject(http.HTTPStatus.NOT_FOUND, f"there is {PATHS[1]}, for AMQP by WebSocket\n")
        if not is_own:
            text = "a page of another site may not connect from a browser; serve it from this host\n"
            return self._protocol.reject(http.HTTPStatus.FORBIDDEN, text)
        return self._protocol.accept(request)

    def _is_own(self, site: str, host: str) -> bool:
        """Tell whether a page is of the host that it came to."""
        if site != host:
            return False
        if self._below.get_extra_info("ssl_object") is not None:
            return True  # the certificate is for that name
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or _is_address(name)

    def eof_received(self) -> bool | None:
        if not self._is_open:
            return False
        return self._connection.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._waiting.clear()
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # ------------------------------------------------------------------------------------------------- from above

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_open and not self._below.is_closing():
            self._protocol.send_binary(bytes(data))
            self._send()

    def close(self) -> None:
        if self._is_open and not self._below.is_closing():
            self._is_open = False
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            self._send()
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._paused = True
        self._read_or_pause()

    def resume_reading(self) -> None:
        self._paused = False
        self._wait_for_turn()

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._below.write(data)
            else:  # the library's word for the end
                self._is_open = False
                self._below.close()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _chosen(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    if not offered:
        return None
    for name in offered:
        if name in SUBPROTOCOLS:
            return name
    raise NegotiationError(f"AMQP is called {', '.join(SUBPROTOCOLS)} here")


def websocket_below(
    connection: asyncio.Protocol, below: asyncio.Transport, turns: Turns, note: Callable[..., None]
) -> WebSocketPeer:
    """Put a WebSocket between a connection and its socket. The caller hands it the bytes that have come already."""
    peer = WebSocketPeer(connection, below, turns, note)
    below.set_protocol(cast(asyncio.BaseProtocol, peer))
    return peer
