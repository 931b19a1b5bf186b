"""What happens on a connection before AMQP proper: protocol headers and SASL.

proton never sees these bytes. The proton package knows no mechanism beyond ANONYMOUS when built from source,
answers a TLS or HTTP greeting with whatever layer it happens to contain, and quotes up to a kilobyte of the
peer's bytes into its error. Here the rule is: a peer that opens with anything but a header we serve gets the
header that we do serve (AMQP 1.0 section 2.2) and is then disconnected; nothing else is ever said to it.

A mechanism is a function from the client's initial response to an identity or None (refused), enough for ANONYMOUS and
PLAIN; challenge-response mechanisms would extend `ServerSasl.on_frame`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.amqp.encoding.codec import (
    Described,
    decode_value,
    encode_value,
    symbol,
    symbol_array,
    symbols_of,
    ubyte,
    ulong,
)
from holdfast.amqp.errors import DECODE_ERROR, FRAMING_ERROR, UNAUTHORIZED_ACCESS, Error, MalformedMessage

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

MAX_SASL_FRAME_BYTES = 4096
"""No mechanism served here needs more; the peer is not authenticated yet, so it gets no larger buffer."""

_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44

Mechanism = Callable[[bytes], "str | None"]


def anonymous(initial_response: bytes) -> str | None:
    return "anonymous"


def frame(kind: int, performative: bytes) -> bytes:
    """One frame on channel 0. kind: 0 AMQP, 1 SASL."""
    return struct.pack(">IBBH", 8 + len(performative), 2, kind, 0) + performative


def performative(code: int, fields: list[Any]) -> bytes:
    return encode_value(Described(ulong(code), fields))


class HandshakeError(Exception):
    """The peer cannot be talked to. `error` says why; what is left to be sent is in the handshake's `output`."""

    def __init__(self, error: Error) -> None:
        super().__init__(str(error))
        self.error = error


class _Handshake:
    """Collects bytes; `receive` returns the AMQP bytes behind the handshake once `done`."""

    def __init__(self) -> None:
        self.done = False
        self.identity: str | None = None
        self.output = bytearray()
        self._input = bytearray()

    def receive(self, data: bytes) -> bytes:
        self._input += data
        while not self.done and self._step():
            pass
        if not self.done:
            return b""
        rest = bytes(self._input)
        self._input.clear()
        return rest

    def _step(self) -> bool:
        """Consumes one header or frame; False if more bytes are needed."""
        raise NotImplementedError

    def _take_header(self, *allowed: bytes) -> bytes | None:
        head = bytes(self._input[:8])
        if not any(header.startswith(head[: len(header)]) for header in allowed):
            self.output += allowed[0]
            raise HandshakeError(
                Error(FRAMING_ERROR, f"peer does not speak AMQP 1.0 here: its first bytes are {head!r}")
            )
        if len(head) < 8:
            return None
        del self._input[:8]
        return head

    def _take_frame(self) -> tuple[int, list[Any]] | None:
        if len(self._input) < 8:
            return None
        size, offset, kind, _ = struct.unpack_from(">IBBH", self._input)
        if kind != 1 or offset < 2 or not offset * 4 < size <= MAX_SASL_FRAME_BYTES:
            raise HandshakeError(Error(FRAMING_ERROR, "malformed SASL frame"))
        if len(self._input) < size:
            return None
        body = bytes(self._input[offset * 4 : size])
        del self._input[:size]
        try:
            value, _ = decode_value(body)
        except MalformedMessage as problem:
            raise HandshakeError(Error(DECODE_ERROR, f"malformed SASL frame: {problem}")) from None
        if not isinstance(value, Described) or not isinstance(value.value, list):
            raise HandshakeError(Error(DECODE_ERROR, "malformed SASL frame"))
        if not isinstance(value.descriptor, int):
            raise HandshakeError(Error(DECODE_ERROR, "unknown SASL frame"))
        return int(value.descriptor), value.value


class ServerHandshake(_Handshake):
    """Accepts the AMQP header alone (unless `required`), or a SASL exchange followed by it."""

    def __init__(self, mechanisms: Mapping[str, Mechanism], required: bool) -> None:
        super().__init__()
        self._mechanisms = mechanisms
        self._required = required
        self._state = "header"

    def _step(self) -> bool:
        if self._state == "header":
            allowed = (SASL_HEADER,) if self._required else (AMQP_HEADER, SASL_HEADER)
            header = self._take_header(*allowed)
            if header == SASL_HEADER:
                self.output += SASL_HEADER
                offer = b"\x00\x53\x40\xc0"  # described list holding one array of symbols
                names = symbol_array(self._mechanisms)
                self.output += frame(1, offer + bytes((len(names) + 1, 1)) + names)
                self._state = "init"
            elif header is not None:
                self._finish(header)
            return header is not None
        if self._state == "init":
            received = self._take_frame()
            if received is not None:
                self._on_init(*received)
            return received is not None
        header = self._take_header(AMQP_HEADER)
        if header is not None:
            self._finish(header)
        return header is not None

    def _finish(self, header: bytes) -> None:
        self._input[:0] = header  # proton wants to see it too
        self.done = True

    def _on_init(self, code: int, fields: list[Any]) -> None:
        if code != _INIT or not fields or not isinstance(fields[0], str):
            raise HandshakeError(Error(FRAMING_ERROR, "expected a SASL init"))
        response = fields[1] if len(fields) > 1 and isinstance(fields[1], bytes) else b""
        mechanism = self._mechanisms.get(fields[0])
        self.identity = mechanism(response) if mechanism is not None else None
        self.output += frame(1, performative(_OUTCOME, [ubyte(1 if self.identity is None else 0)]))
        if self.identity is None:
            raise HandshakeError(Error(UNAUTHORIZED_ACCESS, f"SASL mechanism {fields[0]} refused this client"))
        self._state = "amqp header"


class ClientHandshake(_Handshake):
    """Runs one SASL mechanism, then lets proton send its header."""

    def __init__(self, mechanism: str, initial_response: bytes, hostname: str | None) -> None:
        super().__init__()
        self._mechanism = mechanism
        self._init = performative(_INIT, [symbol(mechanism), initial_response, hostname])
        self._state = "header"
        self.output += SASL_HEADER

    def _step(self) -> bool:
        if self._state == "header":
            header = self._take_header(SASL_HEADER)
            self._state = "mechanisms" if header is not None else "header"
            return header is not None
        received = self._take_frame()
        if received is None:
            return False
        code, fields = received
        if self._state == "mechanisms" and code == _MECHANISMS:
            offered = symbols_of(fields[0] if fields else None)
            if self._mechanism not in offered:
                raise HandshakeError(
                    Error(UNAUTHORIZED_ACCESS, f"the server offers {offered}, not SASL {self._mechanism}")
                )
            self.output += frame(1, self._init)
            self._state = "outcome"
        elif self._state == "outcome" and code == _OUTCOME:
            if not fields or fields[0] != 0:
                raise HandshakeError(Error(UNAUTHORIZED_ACCESS, f"SASL {self._mechanism} was refused"))
            self.done = True
        else:
            raise HandshakeError(Error(FRAMING_ERROR, f"unexpected SASL frame 0x{code:02x}"))
        return True
