"""AMQP over WebSocket: the socket of a connection, where its peer began with HTTP.

A connection reads and writes as on any other socket; between it and the real one stands a `WebSocketPeer`. The library
`websockets` knows the protocol. Rules: the size of a message is bounded, though nothing of AMQP depends on where one
ends; a page in a browser is let in only if it comes from this very host, since a browser sends others' pages along with
the rights that its machine has.

Source: AMQP over WebSockets (OASIS binding, working draft), RFC 6455. The path is that of Event Hubs; SDKs write it
with a slash at its end and without.
"""

from __future__ import annotations

import asyncio
import http
from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from websockets.exceptions import NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

BEGIN = b"G"
"""First byte of such a peer: HTTP's GET. AMQP and TLS begin with others."""

PATHS = ("", "/$servicebus/websocket")
SUBPROTOCOLS = ("amqp", "AMQPWSB10", "binary")
"""Names that clients have for AMQP here. The first one that a client offers is taken; none need be offered."""

MAX_MESSAGE_BYTES = 1024 * 1024
"""Bytes of one WebSocket message. Clients send an AMQP frame in each, which has at most 64 KiB."""


class WebSocketPeer(asyncio.Transport, asyncio.Protocol):
    """The transport of a connection, and the protocol of the socket below it."""

    def __init__(self, connection: asyncio.Protocol, below: asyncio.Transport, note: Callable[..., None]) -> None:
        super().__init__()
        self._connection, self._below, self._note = connection, below, note
        self._protocol = ServerProtocol(select_subprotocol=_chosen, max_size=MAX_MESSAGE_BYTES)
        self._is_open = False

    # ------------------------------------------------------------------------------------------------- from below

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._greet(event)
            elif isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.CONT):
                self._connection.data_received(bytes(event.data))
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "AMQP is sent in binary messages")
        self._send()

    def _greet(self, request: Request) -> None:
        response = self._answer(request)
        self._protocol.send_response(response)
        self._is_open = response.status_code == http.HTTPStatus.SWITCHING_PROTOCOLS
        if not self._is_open:
            self._note(
                "HTTP without a WebSocket that is served here: %s", response.body.decode(errors="replace").strip()[:200]
            )

    def _answer(self, request: Request) -> Response:
        path = urlsplit(request.path).path.rstrip("/")
        if path not in PATHS:
            return self._protocol.reject(http.HTTPStatus.NOT_FOUND, f"there is {PATHS[1]}, for AMQP by WebSocket\n")
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
            text = "a page of another site may not connect from a browser; serve it from this host\n"
            return self._protocol.reject(http.HTTPStatus.FORBIDDEN, text)
        return self._protocol.accept(request)

    def eof_received(self) -> bool | None:
        if not self._is_open:
            return False
        return self._connection.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
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
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._below.write(data)
            else:  # the library's word for the end
                self._is_open = False
                self._below.close()


def _chosen(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    if not offered:
        return None
    for name in offered:
        if name in SUBPROTOCOLS:
            return name
    raise NegotiationError(f"AMQP is called {', '.join(SUBPROTOCOLS)} here")


def websocket_below(connection: asyncio.Protocol, below: asyncio.Transport, note: Callable[..., None]) -> WebSocketPeer:
    """Put a WebSocket between a connection and its socket. The caller hands it the bytes that have come already."""
    peer = WebSocketPeer(connection, below, note)
    below.set_protocol(cast(asyncio.BaseProtocol, peer))
    return peer
