"""One AMQP connection: proton's C transport on one side, a non-blocking socket on the other.

Only this file knows sockets and proton's buffers. It pushes input in pieces for which proton has room, and gathers
output into large writes: proton returns it frame by frame, and a system call costs more than a frame. Every connection
carries exactly one link, so an event needs no lookup of its owner.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import cproton
from cproton import ffi, lib

READ_BYTES = 256 * 1024  # most bytes of one read
WRITE_BYTES = 256 * 1024  # most bytes of one write
MAX_FRAME_BYTES = 64 * 1024  # the largest frame we take; a peer's own limit governs what we send
CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Url:
    """Address of a peer and of a link at it: amqp://[user:password@]host:port/address"""

    host: str
    port: int
    address: str
    user: str | None = None
    password: str | None = None
    hostname: str | None = None  # the peer's name in open and SASL, if a redirect gave it another one

    @classmethod
    def parse(cls, text: str) -> Url:
        parts = urlsplit(text)
        address = unquote(parts.path[1:])  # one slash is the separator; the address may begin with another
        if parts.scheme != "amqp" or not parts.hostname or not address:
            raise ValueError(f"not a usable url: {text!r} (expected amqp://host:port/address)")
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password else None
        return cls(parts.hostname, parts.port or 5672, address, user, password)


class PeerError(Exception):
    """The peer refused or ended the conversation; the message says which condition it named."""


class Wire:
    """An AMQP connection: bytes in, events out. The endpoint (a sender or receiver) sets `on_event`."""

    def __init__(self, url: Url, container_id: str, desired_capabilities: tuple[str, ...] = ()) -> None:
        self.url = url
        self.closed = False
        self.on_event: Callable[[int, Any], None] = lambda kind, event: None
        self._collector = lib.pn_collector()
        self.connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        lib.pn_connection_collect(self.connection, self._collector)
        cproton.pn_connection_set_container(self.connection, container_id)
        cproton.pn_connection_set_hostname(self.connection, url.hostname or url.host)
        if desired_capabilities:
            _put_symbols(lib.pn_connection_desired_capabilities(self.connection), desired_capabilities)
        self._log_in(url)
        lib.pn_transport_set_max_frame(self._transport, MAX_FRAME_BYTES)
        lib.pn_transport_bind(self._transport, self.connection)
        lib.pn_connection_open(self.connection)
        self.session = lib.pn_session(self.connection)
        lib.pn_session_open(self.session)
        self._input = bytearray(READ_BYTES)
        self._input_c = ffi.from_buffer(self._input)
        self._output = bytearray(WRITE_BYTES)
        self._output_view = memoryview(self._output)
        self._output_c = ffi.from_buffer(self._output)
        self._output_start = self._output_end = 0
        self.socket = socket.create_connection((url.host, url.port), timeout=CONNECT_TIMEOUT_S)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _log_in(self, url: Url) -> None:
        sasl = lib.pn_sasl(self._transport)
        if url.user is None:
            cproton.pn_sasl_allowed_mechs(sasl, "ANONYMOUS")
            return
        lib.pn_sasl_set_allow_insecure_mechs(sasl, True)
        cproton.pn_connection_set_user(self.connection, url.user)
        cproton.pn_connection_set_password(self.connection, url.password or "")
        cproton.pn_sasl_allowed_mechs(sasl, "PLAIN")

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def wants_write(self) -> bool:
        """True while output waits for the socket."""
        return self._output_end > self._output_start

    def on_readable(self) -> None:
        """Read once; pass the bytes to proton and its events to the endpoint."""
        try:
            size = self.socket.recv_into(self._input)
        except BlockingIOError:
            return
        except ConnectionError as error:
            self.closed = True
            raise PeerError(f"the peer broke the connection: {error}") from error
        if not size:
            lib.pn_transport_close_tail(self._transport)
            self.dispatch()
            self.closed = True
            raise PeerError(f"the peer closed the connection: {self.condition()}")
        done = 0
        while done < size:
            taken = lib.pn_transport_push(self._transport, self._input_c + done, size - done)
            if taken <= 0:
                self.dispatch()
                self.closed = True
                raise PeerError(f"the peer ended the conversation: {self.condition()}")
            done += taken
            self.dispatch()

    def dispatch(self) -> None:
        """Pass every collected event to the endpoint."""
        collector, on_event = self._collector, self.on_event
        peek, pop, kind_of, null = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type, ffi.NULL
        while (event := peek(collector)) != null:
            on_event(kind_of(event), event)
            pop(collector)

    def flush(self) -> None:
        """Write until proton has no more output or the socket is full."""
        while True:
            if self._output_start == self._output_end and not self._gather():
                return
            view = self._output_view[self._output_start : self._output_end]
            try:
                self._output_start += self.socket.send(view)
            except BlockingIOError:
                return
            except ConnectionError as error:
                self.closed = True
                raise PeerError(f"the peer broke the connection: {error}") from error

    def _gather(self) -> bool:
        transport, at = self._transport, 0
        while at < WRITE_BYTES:
            pending = lib.pn_transport_pending(transport)
            if pending <= 0:
                break
            taken = lib.pn_transport_peek(transport, self._output_c + at, min(pending, WRITE_BYTES - at))
            lib.pn_transport_pop(transport, taken)
            at += taken
        self._output_start, self._output_end = 0, at
        return at > 0

    def tick(self, now_ms: int) -> None:
        """Let proton keep the connection alive; call it more often than any peer's idle timeout."""
        lib.pn_transport_tick(self._transport, now_ms)

    def close(self) -> None:
        """Send a close if the socket takes it at once, then close the socket."""
        if not self.closed:
            lib.pn_connection_close(self.connection)
            self.flush()
            self.closed = True
        self.socket.close()

    def condition(self) -> str:
        """Describe why the peer or proton ended the connection."""
        for condition in (
            lib.pn_connection_remote_condition(self.connection),
            lib.pn_session_remote_condition(self.session),
            lib.pn_transport_condition(self._transport),
        ):
            if lib.pn_condition_is_set(condition):
                return describe(condition)
        return "no reason given"


def describe(condition: Any) -> str:
    name = cproton.pn_condition_get_name(condition) or "no condition"
    return f"{name}: {cproton.pn_condition_get_description(condition) or 'no description'}"


def _put_symbols(data: Any, symbols: tuple[str, ...]) -> None:
    lib.pn_data_put_array(data, False, cproton.PN_SYMBOL)
    lib.pn_data_enter(data)
    for symbol in symbols:
        cproton.pn_data_put_symbol(data, symbol)
    lib.pn_data_exit(data)


def put_symbol_map(data: Any, entries: dict[str, str]) -> None:
    """Write a map of symbols to symbols (link properties) into a pn_data."""
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    for key, value in entries.items():
        cproton.pn_data_put_symbol(data, key)
        cproton.pn_data_put_symbol(data, value)
    lib.pn_data_exit(data)


def read_simple_map(data: Any) -> dict[str, str | int]:
    """Read a map whose values are strings, symbols or integers; other values are left out."""
    strings = {cproton.PN_STRING: cproton.pn_data_get_string, cproton.PN_SYMBOL: cproton.pn_data_get_symbol}
    integers = {
        cproton.PN_UBYTE: lib.pn_data_get_ubyte, cproton.PN_USHORT: lib.pn_data_get_ushort,
        cproton.PN_UINT: lib.pn_data_get_uint, cproton.PN_ULONG: lib.pn_data_get_ulong,
        cproton.PN_SHORT: lib.pn_data_get_short, cproton.PN_INT: lib.pn_data_get_int,
        cproton.PN_LONG: lib.pn_data_get_long,
    }  # fmt: skip
    readers = strings | integers
    found: dict[str, str | int] = {}
    lib.pn_data_rewind(data)
    if not lib.pn_data_next(data) or lib.pn_data_type(data) != cproton.PN_MAP:
        return found
    lib.pn_data_enter(data)
    while lib.pn_data_next(data):
        key_reader = strings.get(lib.pn_data_type(data))
        key = key_reader(data) if key_reader else None
        if not lib.pn_data_next(data):
            break
        value_reader = readers.get(lib.pn_data_type(data))
        if key is not None and value_reader:
            found[key] = value_reader(data)
    lib.pn_data_exit(data)
    return found
