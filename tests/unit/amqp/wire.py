"""Two ends of a connection in memory: two engines (`LoopbackWire`), or an engine and hand-made frames (`RawPeer`)."""

from __future__ import annotations

import random
import struct
from typing import Any, TypeVar

from holdfast.amqp import (
    Described,
    Engine,
    Event,
    LinkRequested,
    Message,
    ReceiverLink,
    SenderLink,
    Transfers,
    decode_value,
    encode_message,
    encode_value,
    ubyte,
    uint,
    ulong,
)

E = TypeVar("E")

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


def only(events: list[Event], kind: type[E]) -> E:
    """The one event of a kind."""
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, f"expected one {kind.__name__} in {events}"
    return found[0]


def each(events: list[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def payloads_of(events: list[Event]) -> list[bytes]:
    return [payload for event in each(events, Transfers) for payload in event.payloads]


def message(body: bytes = b"hello") -> bytes:
    return encode_message(Message(body))


class LoopbackWire:
    """A client and a server engine and the bytes between them. chunk_bytes: how the bytes are cut (None: not at all);
    a Random cuts them anew each time."""

    def __init__(
        self, *, server: dict[str, Any] | None = None, client: dict[str, Any] | None = None, chunks: Any = None
    ) -> None:
        self.server = Engine("server", container_id="node-1", **(server or {}))
        self.client = Engine("client", container_id="client", **(client or {}))
        self.chunks = chunks
        self.client.open()

    def _carry(self, data: bytes, to: Engine) -> None:
        while data:
            size = len(data)
            if isinstance(self.chunks, random.Random):
                size = self.chunks.choice((1, 3, 8, 100, 1000, 10_000, 100_000))
            elif self.chunks:
                size = self.chunks
            to.receive(data[:size])
            data = data[size:]

    def exchange(self) -> None:
        """Until both have nothing more to say."""
        while True:
            up, down = self.client.data_to_send(), self.server.data_to_send()
            if not up and not down:
                return
            self._carry(up, self.server)
            self._carry(down, self.client)

    def talk(self) -> tuple[list[Event], list[Event]]:
        """exchange(), then what (server, client) noticed."""
        self.exchange()
        return self.server.events(), self.client.events()

    def producer(self, address: str = "log", *, credit: int = 100, **options: Any) -> tuple[SenderLink, ReceiverLink]:
        """An open link from client to server: (client's end, server's end)."""
        near = self.client.open_sender(address, **options)
        heard, _ = self.talk()
        far = only(heard, LinkRequested).link
        assert isinstance(far, ReceiverLink)
        far.accept()
        far.grant(credit)
        self.talk()
        return near, far

    def consumer(self, address: str = "log", *, credit: int = 100, **options: Any) -> tuple[ReceiverLink, SenderLink]:
        """An open link from server to client: (client's end, server's end)."""
        near = self.client.open_receiver(address, **options)
        near.grant(credit)
        heard, _ = self.talk()
        far = only(heard, LinkRequested).link
        assert isinstance(far, SenderLink)
        far.accept()
        self.talk()
        return near, far


def frame(channel: int, code: int, fields: list[Any], payload: bytes = b"", kind: int = 0) -> bytes:
    body = encode_value(Described(ulong(code), fields)) + payload
    return struct.pack(">IBBH", 8 + len(body), 2, kind, channel) + body


def frames(data: bytes) -> list[tuple[int, list[Any], bytes]]:
    """(code, fields, payload) of every frame in what an engine sent; protocol headers and empty frames are skipped."""
    found = []
    while data:
        if data[:4] == b"AMQP":
            data = data[8:]
            continue
        size, offset, _, _ = struct.unpack_from(">IBBH", data)
        body = data[offset * 4 : size]
        if body:
            value, after = decode_value(body)
            found.append((int(value.descriptor), value.value, body[after:]))
        data = data[size:]
    return found


class RawPeer:
    """A peer that says exactly what a test wants, to a server engine that has nobody else."""

    def __init__(self, engine: Engine | None = None, **options: Any) -> None:
        self.engine = engine if engine is not None else Engine("server", container_id="node-1", **options)

    def say(self, *what: bytes) -> list[Event]:
        """Sends bytes; returns what the engine noticed."""
        self.engine.receive(b"".join(what))
        return self.engine.events()

    def hear(self) -> list[tuple[int, list[Any], bytes]]:
        return frames(b"".join(iter(self.engine.data_to_send, b"")))

    def open(self) -> None:
        """Header, open and begin on channel 0."""
        self.say(AMQP_HEADER, frame(0, 0x10, ["raw"]), self.begin(0))
        self.hear()

    def begin(self, channel: int, remote: Any = None) -> bytes:
        return frame(channel, 0x11, [remote, uint(0), uint(2048), uint(2048)])

    def attach(
        self, name: str, handle: int = 0, *, receiver: bool = False, channel: int = 0, source: Any = None, **more: Any
    ) -> bytes:
        where = Described(ulong(0x28), ["log"]) if source is None else source
        target = more.get("target", Described(ulong(0x29), ["log"]))
        fields = [name, uint(handle), receiver, ubyte(more.get("snd", 2)), ubyte(0), where, target, None, None, uint(0)]
        return frame(channel, 0x12, fields)

    def transfer(
        self,
        number: int,
        payload: bytes,
        *,
        handle: int = 0,
        channel: int = 0,
        more: bool = False,
        stated: int | None = 0,
        **flags: bool,
    ) -> bytes:
        """`stated`: the message-format; None: of a frame that goes on with a message, which says no tag either."""
        settled, aborted = flags.get("settled", False), flags.get("aborted", False)
        named = [None, None] if stated is None else [b"%d" % number, uint(stated)]
        fields = [uint(handle), uint(number), *named, settled, more, None, None, False, aborted]
        return frame(channel, 0x14, fields, payload)

    def accepted(self, *, credit: int = 10, **attach: Any) -> ReceiverLink:
        """An open link on which the peer may send."""
        self.open()
        link = only(self.say(self.attach("raw-link", **attach)), LinkRequested).link
        assert isinstance(link, ReceiverLink)
        link.accept()
        link.grant(credit)
        self.hear()
        return link
