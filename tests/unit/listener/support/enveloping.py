"""A sender whose every byte is the test's own: proton cannot state a message-format."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from holdfast.amqp import Described, Message, decode_value, encode_message, symbol, ubyte, uint, ulong
from holdfast.amqp.framing.performatives import BATCH_FORMAT
from tests.unit.amqp.wire import AMQP_HEADER, frame

WAIT_S = 90.0
FRAME_BYTES = 4000  # of a payload in a frame: large messages come in many
ACCEPTED, REJECTED = 0x24, 0x25


def envelope(*messages: bytes, **more: Any) -> bytes:
    """A batch: each message in a data section of its own."""
    return encode_message(Message(body=list(messages), **more))


class RawSender:
    """One link to a log, or to a partition of it. Use as `async with`."""

    def __init__(self, port: int, log: str, properties: dict[str, Any] | None = None, capability: str = "") -> None:
        self._port, self._log, self._properties, self._capability = port, log, properties, capability
        self.properties: dict[str, Any] = {}
        self.detached: Any = None
        self._sent = 0
        self._outcomes: dict[int, Any] = {}
        self._data = b""

    async def __aenter__(self) -> RawSender:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        opening: list[Any] = ["raw"]
        if self._capability:
            opening += [None] * 7 + [symbol(self._capability)]
        attach = [
            "raw", uint(0), False, ubyte(0), ubyte(0), Described(ulong(0x28), []), Described(ulong(0x29), [self._log]),
            None, None, uint(0), None, None, None, self._properties,
        ]  # fmt: skip
        begin = frame(0, 0x11, [None, uint(0), uint(2048), uint(2048)])
        self._writer.write(AMQP_HEADER + frame(0, 0x10, opening) + begin + frame(0, 0x12, attach))
        self._data = (await self._exactly(8))[8:]
        while True:
            code, fields = await self._next()
            if code == 0x12:
                self.properties = {str(key): value for key, value in (fields[13] or {}).items()} if fields[13:] else {}
            elif code == 0x13 and fields[4:5] != [None]:
                return self
            assert code != 0x16, fields

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def _exactly(self, count: int) -> bytes:
        while len(self._data) < count:
            async with asyncio.timeout(WAIT_S):
                data = await self._reader.read(65536)
            assert data, "the node hung up"
            self._data += data
        return self._data

    async def _next(self) -> tuple[int, list[Any]]:
        """The next frame with something in it."""
        while True:
            size = struct.unpack(">I", (await self._exactly(4))[:4])[0]
            body = (await self._exactly(size))[8:size]
            self._data = self._data[size:]
            if body:
                value, _ = decode_value(body)
                return int(value.descriptor), value.value

    def send(self, payload: bytes, *, batch: bool) -> int:
        """Returns the number to ask the outcome of by."""
        number, self._sent = self._sent, self._sent + 1
        parts = [payload[at : at + FRAME_BYTES] for at in range(0, len(payload), FRAME_BYTES)]
        for place, part in enumerate(parts):
            named = [b"%d" % number, uint(BATCH_FORMAT if batch else 0)] if place == 0 else [None, None]
            more = place < len(parts) - 1
            self._writer.write(frame(0, 0x14, [uint(0), uint(number), *named, False, more], part))
        return number

    async def outcome(self, number: int) -> Any:
        """`ACCEPTED`, or the error that it was rejected with."""
        while number not in self._outcomes:
            code, fields = await self._next()
            if code == 0x15:
                first, last = int(fields[1]), int(fields[2] if fields[2] is not None else fields[1])
                for one in range(first, last + 1):
                    self._outcomes[one] = fields[4]
            elif code == 0x16:
                self.detached = fields[2] if fields[2:] else None
        state = self._outcomes[number]
        if int(state.descriptor) == ACCEPTED:
            return ACCEPTED
        assert int(state.descriptor) == REJECTED, state
        condition, text = state.value[0].value[:2]
        return f"{condition}: {text}"

    async def end(self) -> str:
        """Why the node ended the link."""
        while self.detached is None:
            code, fields = await self._next()
            if code == 0x16:
                self.detached = fields[2]
        return str(self.detached.value[0])
