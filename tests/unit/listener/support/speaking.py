"""Frames by hand over a socket: for attaches and transfers that no engine would write. One session, channel 0."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from holdfast.amqp import Described, decode_value, encode_value, uint, ulong
from holdfast.amqp.framing.handshake import AMQP_HEADER, frame, performative

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ANSWER_WITHIN_S = 90


class ScriptedSpeaker:
    """`said`: the performatives that came back, as (code, fields), in order."""

    def __init__(self, port: int) -> None:
        self.said: list[tuple[int, list[Any]]] = []
        self._port = port
        self._rest = b""
        self._sent = 0  # messages; their delivery ids

    async def __aenter__(self) -> ScriptedSpeaker:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(AMQP_HEADER)
        self.write(OPEN, ["speaker", "localhost", uint(1 << 16)])
        self.write(BEGIN, [None, uint(0), uint(1 << 20), uint(1 << 20)])
        await self.until(lambda: any(code == BEGIN for code, _ in self.said))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    def write(self, code: int, fields: list[Any], payload: bytes = b"") -> None:
        self._writer.write(frame(0, performative(code, fields) + payload))

    async def until(self, reached: Any) -> None:
        """Until what came back makes it true; the peer's close, or its silence, is a failure."""
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while not reached():
                over = [fields for code, fields in self.said if code in (END, CLOSE)]
                assert not over, f"session or connection ended: {over}"
                data = await self._reader.read(65536)
                assert data, f"the node hung up; it said {self.said[-3:]}"
                self._take(data)

    def _take(self, data: bytes) -> None:
        stream = self._rest + data.removeprefix(AMQP_HEADER)
        pos = 0
        while pos + 8 <= len(stream):
            (size,) = struct.unpack_from(">I", stream, pos)
            if pos + size > len(stream):
                break
            if size > 8:
                value, _ = decode_value(stream, pos + 8, pos + size)
                assert isinstance(value, Described)
                self.said.append((int(value.descriptor), list(value.value)))  # type: ignore[call-overload]
            pos += size
        self._rest = stream[pos:]

    # ---------------------------------------------------------------------------------------------- links

    def attach(self, name: str, handle: int, receiver: bool, source: Any, target: Any, properties: Any = None) -> None:
        fields = [name, uint(handle), receiver, None, None, source, target, None, None, None if receiver else uint(0)]
        self.write(ATTACH, [*fields, None, None, None, properties])

    async def verdict(self, name: str) -> str | None:
        """The condition with which the link was refused, None if it was attached. `sync` must follow the attach."""
        await self.until(lambda: self._handle_of(name) is not None)
        place = next(at for at, (code, fields) in enumerate(self.said) if code == ATTACH and fields[0] == name)
        handle = self.said[place][1][1]
        for code, fields in self.said[place + 1 :]:
            if code == ATTACH and fields[1] == handle:
                return None  # the number serves another link
            if code == DETACH and fields[0] == handle:
                error = fields[2] if len(fields) > 2 else None
                assert error is not None, f"{name} was closed without an error"
                return str(error.value[0])
        return None

    def _handle_of(self, name: str) -> int | None:
        return next((fields[1] for code, fields in self.said if code == ATTACH and fields[0] == name), None)

    async def sync(self, log: str, name: str, handle: int) -> None:
        """A good link on the same session is attached and closed: everything before it has been answered."""
        self.attach(name, handle, True, Described(ulong(0x28), [log]), Described(ulong(0x29), []))
        await self.until(lambda: self._handle_of(name) is not None)
        self.write(DETACH, [uint(handle), True])
        ours, heard = self._handle_of(name), len(self.said)
        await self.until(lambda: any(code == DETACH and fields[0] == ours for code, fields in self.said[heard:]))

    def send(self, handle: int, payload: bytes) -> int:
        number = self._sent
        self._sent += 1
        self.write(TRANSFER, [uint(handle), uint(number), struct.pack(">I", number), uint(0), False], payload)
        return number

    async def outcome(self, number: int) -> tuple[int, str | None]:
        """(code of the state, condition) of a message."""

        def found() -> Any:
            for code, fields in self.said:
                if code == DISPOSITION and fields[1] <= number <= (fields[2] if fields[2] is not None else fields[1]):
                    return fields[4]
            return None

        await self.until(found)
        state = found()
        error = state.value[0] if state.value else None
        return int(state.descriptor), None if error is None else str(error.value[0])


def section(code: int, value: Any) -> bytes:
    return b"\x00\x53" + bytes((code,)) + encode_value(value)
