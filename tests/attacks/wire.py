"""A peer that writes frames by hand, as fast as it can, and reads only to count them.

No engine stands between an attack and its target: what an honest engine would refuse to send is what is wanted here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast.amqp import Described, symbol, uint, ulong
from holdfast.amqp.framing.handshake import AMQP_HEADER, frame, performative

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)

RECEIVE_BYTES = 64 * 1024
"""That the system keeps of what a connection does not read."""

_HEAD = struct.Struct(">IBBH")


def opening(container: str = "attacker") -> bytes:
    """Everything up to a session, in one piece."""
    begin = [None, uint(0), uint(2**31 - 1), uint(2**31 - 1)]
    return AMQP_HEADER + frame(0, performative(OPEN, [container])) + frame(0, performative(BEGIN, begin))


def attach(
    name: str, handle: int, address: str, *, receives: bool = False, filters: Any = None, properties: Any = None
) -> bytes:
    """An attach of a peer that sends to the address; or receives from it."""
    source_fields: list[Any] = [address if receives else None]
    if filters is not None:
        source_fields += [None, None, None, None, None, None, filters]
    source = Described(ulong(0x28), source_fields)
    target = Described(ulong(0x29), [None if receives else address])
    count = None if receives else uint(0)
    fields: list[Any] = [name, uint(handle), receives, None, None, source, target, None, None, count]
    if properties is not None:
        fields += [None, None, None, properties]
    return frame(0, performative(ATTACH, fields))


def detach(handle: int) -> bytes:
    return frame(0, performative(DETACH, [uint(handle), True]))


def credit(handle: int, count: int) -> bytes:
    window = uint(2**31 - 1)
    return frame(0, performative(FLOW, [uint(0), window, uint(0), window, uint(handle), uint(0), uint(count)]))


def transfer(handle: int, number: int, payload: bytes, *, more: bool = False) -> bytes:
    fields = [uint(handle), uint(number), struct.pack(">I", number), uint(0), False, more]
    return frame(0, performative(TRANSFER, fields) + payload)


def begin(channel: int) -> bytes:
    """A session more, behind the one that `opening` begins."""
    return on_channel(channel, frame(0, performative(BEGIN, [None, uint(0), uint(2048), uint(2048)])))


def end(channel: int) -> bytes:
    return on_channel(channel, frame(0, performative(END, [])))


def on_channel(channel: int, whole: bytes) -> bytes:
    """The same frame in another session."""
    return whole[:6] + struct.pack(">H", channel) + whole[8:]


def earliest() -> Any:
    """A filter for all that a log has."""
    from tests.unit.listener.support.reading import start_at

    return {symbol(key): value for key, value in start_at("x", "@earliest").filter.items()}


class RawWire:
    """One connection. `seen` counts the performatives that came, by code; while `reading` is not set, what comes is
    left in the socket, which is a small one."""

    def __init__(self, port: int) -> None:
        self.seen: Counter[int] = Counter()
        self.ended = False
        self.reading = asyncio.Event()
        self.reading.set()
        self._port = port
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RawWire:
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        end.setblocking(False)
        await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", self._port))
        self._reader, self._writer = await asyncio.open_connection(sock=end)
        self._task = asyncio.create_task(self._read())
        await self.say(opening())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        self._writer.transport.abort()
        await asyncio.gather(self._task, return_exceptions=True)

    async def say(self, data: bytes) -> None:
        """Raises ConnectionError once the node has had enough."""
        self._writer.write(data)
        await self._writer.drain()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Until what came makes it true, or the node has closed the connection."""
        while not condition() and not self.ended:
            self._news.clear()
            await self._news.wait()

    async def _read(self) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := await self._reader.read(1 << 18):
                await self.reading.wait()
                buffer += data
                self._count(buffer)
                self._news.set()
        self.ended = True
        self._news.set()

    def _count(self, buffer: bytearray) -> None:
        pos = 0
        while pos + 8 <= len(buffer):
            if buffer[pos : pos + 4] == b"AMQP":
                pos += 8
                continue
            size, offset, _, _ = _HEAD.unpack_from(buffer, pos)
            if pos + size > len(buffer):
                break
            body = pos + 4 * offset
            if body + 3 <= pos + size:
                self.seen[buffer[body + 2]] += 1
            pos += size
        del buffer[:pos]


def frames(stream: bytes) -> list[bytes]:
    found, pos = [], 0
    while pos < len(stream):
        (size,) = struct.unpack_from(">I", stream, pos)
        found.append(stream[pos : pos + size])
        pos += size
    return found


def with_long_descriptor(whole: bytes) -> bytes:
    """The same performative with its descriptor as an eight byte ulong, which nobody sends and everybody may."""
    assert whole[8:10] == b"\x00\x53"
    return frame(0, b"\x00\x80" + bytes(7) + whole[10:])
