"""Handshake on a connection before AMQP proper: protocol headers and SASL.

proton never sees these bytes. The proton package knows no mechanism beyond ANONYMOUS when built from source,
answers a TLS or HTTP greeting with whatever layer it happens to contain, and quotes up to a kilobyte of the
peer's bytes into its error. Here the rule is: a peer that opens with anything but a header we serve gets the
header that we do serve (AMQP 1.0 section 2.2) and is then disconnected; nothing else is ever said to it.

Until a peer is authenticated nothing of AMQP proper is read: no session, no link, and at most `MAX_PRELUDE_BYTES` of
anything. Mechanisms, and how one takes its time, are in `sasl.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, cast

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
from holdfast.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    Error,
    MalformedMessage,
)
from holdfast.amqp.framing.sasl import (
    Answer,
    Challenge,
    ClientExchange,
    Login,
    LoginAccepted,
    LoginDenied,
    LoginLater,
    Mechanism,
    OneStep,
    ServerExchange,
)

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

MAX_SASL_FRAME_BYTES = 8192
"""Tokens of an identity provider have a few KiB; the peer is not authenticated yet, so it gets no larger buffer."""

MAX_PRELUDE_BYTES = 64 * 1024
"""Limit of everything before the peer is authenticated: a dozen rounds of the longest exchange."""

MAX_ROUNDS = 8
"""Messages of a client in one exchange. SCRAM takes two, a refused token two."""

_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44

TLS_HELLO = b"\x16\x03"
_PROXY = (b"\r\n\r\n\x00\r\n", b"PROXY ")
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"PRI ", b"HTTP", b"DELE", b"CONN")

Mechanisms = Mapping[str, Mechanism] | Callable[[], Mapping[str, Mechanism]]
"""Mechanisms that are offered, or a function that finds them when the peer asks."""


def anonymous() -> ServerExchange:
    return OneStep(lambda _: "anonymous")


def stranger(head: bytes) -> str:
    """Guess what a peer is that does not begin as AMQP 1.0 does, and what would help; for a log."""
    if head.startswith(TLS_HELLO):
        return "a TLS hello on a port without TLS: connect without TLS, or to a TLS listener"
    if head.startswith(_HTTP):
        return f"HTTP ({head!r}) on an AMQP port"
    if head.startswith(TLS_HEADER[: len(head)]) and len(head) > 4:
        return "asked to start TLS, which this port does not offer: connect without TLS, or to a TLS listener"
    if head.startswith(_PROXY):
        return "a PROXY header, not expected here: name its proxy in listener.proxies, and let it send one header"
    return f"its first bytes are {head!r}"


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
    """Collects bytes; `receive` returns the AMQP bytes after the handshake once `done`."""

    def __init__(self) -> None:
        self.done = False
        self.identity: object = None
        self.output = bytearray()
        self.work: Callable[[], object] | None = None
        """Work to be run in a thread; its result belongs to `worked`. Until then nothing is read."""
        self._input = bytearray()
        self._heard = 0

    def receive(self, data: bytes) -> bytes:
        self._input += data
        self._heard += len(data)
        return self._go_on()

    def worked(self, result: object) -> bytes:
        """Take the result of the work; returns, like `receive`, the bytes after the handshake."""
        self.work = None
        self._on_result(result)
        return self._go_on()

    def _on_result(self, result: object) -> None:
        raise NotImplementedError

    def _go_on(self) -> bytes:
        while not self.done and self.work is None and self._step():
            pass
        if not self.done:
            if self._heard > MAX_PRELUDE_BYTES:
                told = f"more than {MAX_PRELUDE_BYTES} bytes before the connection was authenticated"
                raise HandshakeError(Error(RESOURCE_LIMIT_EXCEEDED, told))
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
                Error(FRAMING_ERROR, f"peer does not speak AMQP 1.0 here: {self._what_is_wrong(head)}")
            )
        if len(head) < 8:
            return None
        del self._input[:8]
        return head

    def _what_is_wrong(self, head: bytes) -> str:
        return stranger(head)

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
    """Accepts a SASL exchange and then AMQP; or AMQP alone where ANONYMOUS would do, unless SASL is `required`."""

    def __init__(self, mechanisms: Mechanisms, required: bool) -> None:
        super().__init__()
        self._ask = mechanisms if callable(mechanisms) else lambda: mechanisms
        self._offered: Mapping[str, Mechanism] = {}
        self._required = required
        self._state = "header"
        self._exchange: ServerExchange | None = None
        self._rounds = 0

    def _step(self) -> bool:
        if self._state == "header":
            if not self._offered and self._input:
                self._offered = self._ask()
            bare = not self._required and "ANONYMOUS" in self._offered
            header = self._take_header(*((AMQP_HEADER, SASL_HEADER) if bare else (SASL_HEADER,)))
            if header == SASL_HEADER:
                self.output += SASL_HEADER
                offer = b"\x00\x53\x40\xc0"  # described list holding one array of symbols
                names = symbol_array(self._offered)
                self.output += frame(1, offer + bytes((len(names) + 1, 1)) + names)
                self._state = "init"
            elif header is not None:
                self._finish(header)
            return header is not None
        if self._state in ("init", "response"):
            received = self._take_frame()
            if received is not None:
                self._on_frame(*received)
            return received is not None
        header = self._take_header(AMQP_HEADER)
        if header is not None:
            self._finish(header)
        return header is not None

    def _what_is_wrong(self, head: bytes) -> str:
        if head.startswith(AMQP_HEADER[: len(head)]) and len(head) > 4:
            return "it did not authenticate itself, which is needed here"
        return stranger(head)

    def _finish(self, header: bytes) -> None:
        self._input[:0] = header  # proton wants to see it too
        self.done = True

    def _on_frame(self, code: int, fields: list[Any]) -> None:
        if self._state == "response":
            if code != _RESPONSE or not fields or not isinstance(fields[0], bytes):
                raise HandshakeError(Error(FRAMING_ERROR, "expected a SASL response"))
            self._answer_to(fields[0])
            return
        if code != _INIT or not fields or not isinstance(fields[0], str):
            raise HandshakeError(Error(FRAMING_ERROR, "expected a SASL init"))
        mechanism = self._offered.get(fields[0])
        if mechanism is None:
            self._on_answer(LoginDenied(f"SASL mechanism {fields[0][:40]!r} is not offered"))
            return
        self._exchange = mechanism()
        self._answer_to(fields[1] if len(fields) > 1 and isinstance(fields[1], bytes) else b"")

    def _answer_to(self, data: bytes) -> None:
        assert self._exchange is not None
        self._rounds += 1
        self._on_answer(LoginDenied("too many messages") if self._rounds > MAX_ROUNDS else self._exchange.respond(data))

    def _on_result(self, result: object) -> None:
        self._on_answer(cast(Answer, result))

    def _on_answer(self, answer: Answer) -> None:
        match answer:
            case LoginLater(work):
                self.work = work
            case Challenge(data):
                self.output += frame(1, performative(_CHALLENGE, [data]))
                self._state = "response"
            case LoginAccepted(identity):
                self.identity = identity
                self.output += frame(1, performative(_OUTCOME, [ubyte(0)]))
                self._state = "amqp header"
            case LoginDenied(why, code):
                self.output += frame(1, performative(_OUTCOME, [ubyte(code)]))
                raise HandshakeError(Error(UNAUTHORIZED_ACCESS, f"this client was refused: {why}"))


class ClientHandshake(_Handshake):
    """Logs in by SASL, then lets proton send its header."""

    def __init__(self, login: Login, hostname: str | None) -> None:
        super().__init__()
        self._login = login
        self._hostname = hostname
        self._exchange: ClientExchange | None = None
        self._state = "header"
        self.output += SASL_HEADER

    def _what_is_wrong(self, head: bytes) -> str:
        return "it takes TLS only: connect with TLS" if head == TLS_HEADER else f"its first bytes are {head!r}"

    def _step(self) -> bool:
        if self._state == "header":
            header = self._take_header(SASL_HEADER)
            self._state = "mechanisms" if header is not None else "header"
            return header is not None
        received = self._take_frame()
        if received is None:
            return False
        try:
            self._on_frame(*received)
        except ValueError as problem:
            raise HandshakeError(Error(UNAUTHORIZED_ACCESS, str(problem))) from None
        return True

    def _on_frame(self, code: int, fields: list[Any]) -> None:
        if self._state == "mechanisms" and code == _MECHANISMS:
            self._exchange = self._login(symbols_of(fields[0] if fields else None))
            self._state = "init"
            self._say(self._exchange.first())
        elif self._state == "outcome" and code == _CHALLENGE and self._exchange is not None:
            data = fields[0] if fields else b""
            if not isinstance(data, bytes):
                raise HandshakeError(Error(DECODE_ERROR, "malformed SASL challenge"))
            self._say(self._exchange.respond(data))
        elif self._state == "outcome" and code == _OUTCOME and self._exchange is not None:
            if not fields or fields[0] == 1:
                raise ValueError(f"SASL {self._exchange.name} was refused: the credentials are wrong")
            if fields[0] != 0:
                told = f"the server cannot tell now whether SASL {self._exchange.name} holds"
                raise HandshakeError(Error(RESOURCE_LIMIT_EXCEEDED, told))
            self._exchange.succeeded(fields[1] if len(fields) > 1 and isinstance(fields[1], bytes) else b"")
            self.done = True
        else:
            raise HandshakeError(Error(FRAMING_ERROR, f"unexpected SASL frame 0x{code:02x}"))

    def _say(self, data: bytes | LoginLater) -> None:
        assert self._exchange is not None
        if isinstance(data, LoginLater):
            self.work = data.work
        elif self._state == "init":
            self.output += frame(1, performative(_INIT, [symbol(self._exchange.name), data, self._hostname]))
            self._state = "outcome"
        else:
            self.output += frame(1, performative(_RESPONSE, [data]))

    def _on_result(self, result: object) -> None:
        if isinstance(result, Exception):
            raise HandshakeError(Error(UNAUTHORIZED_ACCESS, str(result)))
        self._say(cast(bytes, result))
