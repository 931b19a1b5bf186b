"""One TCP connection that carries the messages of a stream, each after a head of its length and its kind.

The problem: with gRPC under the streams, an entry was copied into it and out of it, framed for HTTP/2 in the thread of
the event loop, and woken for by two threads: of the work for events of 16 KiB, a quarter, and of what an idle cluster
costs, the larger part. Nothing of what it brings is used by a stream of which each side has one.
The rules: a large message is read into its own memory, and written from where it is; what came before it is not held
for it. A peer can make this node hold `max_bytes` for one message, which is little until it is let in, and beside it
`UNREAD_BYTES` that nobody has asked for, each message counted with what an object takes: then nothing more is read, and
the peer's writes wait. Of one that is not let in nothing is looked at after its first message; of any, so many
messages in a turn. The listener answers what comes with `HEARD`, a few times a second; by it the dialler knows
that the peer is there.
Rejected: one connection for all calls between two nodes, with frames that take turns. That is HTTP/2 again.
"""

from __future__ import annotations

import asyncio
import ctypes
import struct
from collections import deque
from collections.abc import Callable
from typing import cast

from cluster.rpc import options
from cluster.rpc.raft_transport.errors import StreamLost

MESSAGE, HEARD, WELCOME, END = range(4)
"""Kinds: the stream's own; and the listener's: that something came, that the dialler is let in, why it is over."""

_HEAD = struct.Struct("<IB")
HEAD_BYTES = _HEAD.size

BUFFER_BYTES = 256 * 1024
"""Size of the read buffer; small messages are cut out of it."""
STRANGERS_BUFFER_BYTES = 16 * 1024
"""Size of the read buffer before the dialler is let in."""
LARGE_BYTES = 64 * 1024
"""Size from which a message gets memory of its own as soon as its head has come."""
OVERHEAD_BYTES = 128
"""Memory of a message that waits, beside its bytes."""
MESSAGES_A_TURN = 1000
"""Limit of messages handed over in a turn: half a millisecond of work, beside that of their taker. A turn of an honest
peer is a frame or a few, and some entries."""

Buffer = bytes | bytearray

_MAKER = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)
_not_cleared = _MAKER(("PyByteArray_FromStringAndSize", ctypes.pythonapi))
"""Makes a `bytearray(size)` from None and a size, with whatever is in that memory: the caller must fill all of it. To
clear some MiB first is a twentieth of a follower's work."""


class MessageConnection(asyncio.BufferedProtocol):
    """Either end of a connection. `write` is for one task, and so is what reads: `read`, and then `hand_over`; `put` is
    for any turn in which that task does not write."""

    def __init__(self, *, answers: bool, on_let_in: Callable[[], None] = lambda: None) -> None:
        """`answers`: this side is the one that says `HEARD`."""
        self.max_bytes = options.MAX_HELLO_BYTES
        self.heard_s = asyncio.get_running_loop().time()
        """Time when something came, or the system took what had been waiting for it: it has room when the peer reads.
        """
        self._on_let_in = on_let_in
        self._is_stranger = answers
        self._loop = asyncio.get_running_loop()
        self._answers = answers
        self._answered_s = float("-inf")
        self._transport: asyncio.Transport | None = None
        self._lost: str | None = None
        self._buffer = bytearray(STRANGERS_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0  # of what is in the buffer
        self._large: bytearray | None = None  # a message that comes into its own memory
        self._large_view = memoryview(b"")
        self._kind = MESSAGE  # of that
        self._missing = 0  # of that
        self._taker: Callable[[Buffer], None] | None = None  # of messages, as soon as they have come
        self._unread: deque[tuple[int, Buffer]] = deque()
        self._unread_bytes = 0
        self._reads = True
        self._discards = False
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._more: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def let_in(self) -> None:
        """Let the peer in: from here on it may send what it likes, up to the largest message."""
        self._is_stranger = False
        self._on_let_in()
        self.max_bytes = options.MAX_MESSAGE_BYTES
        kept = self._view[self._begin : self._end].tobytes()
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._view[: len(kept)] = kept
        self._begin, self._end = 0, len(kept)
        self._read_on()

    # -- for the ends of a stream

    async def read(self) -> tuple[int, Buffer] | None:
        """The next message with its kind; None when the connection has ended."""
        while not self._unread:
            if self._lost is not None:
                return None
            self._more = self._loop.create_future()
            await self._more
        kind, message = self._unread.popleft()
        self._unread_bytes -= len(message) + OVERHEAD_BYTES
        if not self._reads and self._unread_bytes < options.UNREAD_BYTES // 2:
            self._read_on()
        return kind, message

    async def hand_over(self, take: Callable[[Buffer], None]) -> None:
        """Hand the stream's messages to `take` in the loop turn in which they come. A task that reads them has them a
        turn later, and the turn of a busy node is a millisecond. Returns when there will be no more."""
        try:
            while True:
                if not self._unread:  # or what comes would overtake what had come before
                    self._taker = take
                got = await self.read()
                if got is None or got[0] != MESSAGE:
                    return
                take(got[1])
        finally:
            self._taker = None

    @property
    def has_room(self) -> bool:
        """True if the transport takes more at once."""
        return self._room is None

    async def write(self, kind: int, *messages: Buffer) -> None:
        """Send messages; returns when the transport has room for more. Raises StreamLost."""
        self.put(kind, *messages)
        if self._room is not None:
            await self._room
            if self._lost is not None:
                raise StreamLost(self._lost)

    def put(self, kind: int, *messages: Buffer) -> None:
        """Send messages, whether there is room or not. Raises StreamLost."""
        if self._lost is not None or self.transport.is_closing():
            raise StreamLost(self._lost or "it is closed here")
        parts: list[Buffer] = []
        for message in messages:
            parts += (_HEAD.pack(len(message), kind), message)
        self.transport.writelines(parts)

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "it is connected"
        return self._transport

    @transport.setter
    def transport(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(options.WRITE_BUFFER_BYTES)

    @property
    def lost(self) -> str | None:
        return self._lost

    def abort(self) -> None:
        """Close the connection without sending what waits."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_lost(self) -> None:
        """Wait until the connection has ended, and drop what comes meanwhile."""
        self._discards = True
        self._unread.clear()
        self._unread_bytes = 0
        self._read_on()
        await asyncio.shield(self._gone)

    # -- for the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        if not self._reads:
            self.transport.pause_reading()
        if self._lost is not None:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is None:
            self._lost = str(exc) if exc is not None else "the peer closed the connection"
        self._large, self._large_view = None, memoryview(b"")
        self._wake()
        self.resume_writing()
        if not self._gone.done():
            self._gone.set_result(None)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        self.heard_s = self._loop.time()
        if room is not None and not room.done():
            room.set_result(None)

    def get_buffer(self, _: int) -> memoryview:
        if self._large is not None:
            return self._large_view[-self._missing :]
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._discards:
            self._large, self._begin, self._end = None, 0, 0
        elif self._large is None:
            self._end += nbytes
            self._cut()
        else:
            self._missing -= nbytes
            if not self._missing:
                self._came(self._kind, self._large)
                self._large, self._large_view = None, memoryview(b"")
        self._heard()

    # -- inside

    def _cut(self) -> None:
        """Messages out of the buffer; what is left of it has room after it, or nothing is read."""
        left = MESSAGES_A_TURN
        while self._reads and self._end - self._begin >= HEAD_BYTES:
            left -= 1
            if left < 0:
                self._stop_reading()
                self._loop.call_soon(self._read_on)
                return
            size, kind = _HEAD.unpack_from(self._buffer, self._begin)
            if size > self.max_bytes:
                self._lost = f"the peer sends a message of {size} bytes; there are at most {self.max_bytes}"
                self.abort()
                self._wake()
                return
            begin, here = self._begin + HEAD_BYTES, self._end - self._begin - HEAD_BYTES
            if here >= size:
                self._begin = begin + size
                self._came(kind, self._view[begin : self._begin].tobytes())
            elif size >= min(LARGE_BYTES, len(self._buffer) - HEAD_BYTES):
                self._large = _not_cleared(None, size)
                self._large_view = memoryview(self._large)
                self._large_view[:here] = self._view[begin : self._end]
                self._kind, self._missing = kind, size - here
                self._begin = self._end = 0
                return
            else:
                break
        if self._begin == self._end:
            self._begin = self._end = 0
        elif not self._reads:
            return  # and cut on from here
        elif len(self._buffer) - self._end < LARGE_BYTES and self._begin:
            kept = self._view[self._begin : self._end].tobytes()
            self._view[: len(kept)] = kept
            self._begin, self._end = 0, len(kept)

    def _came(self, kind: int, message: Buffer) -> None:
        if kind == HEARD:
            return
        if self._taker is not None and kind == MESSAGE and not self._unread:
            self._taker(message)
            return
        self._unread.append((kind, message))
        self._unread_bytes += len(message) + OVERHEAD_BYTES
        if self._is_stranger or self._unread_bytes > options.UNREAD_BYTES:
            self._stop_reading()
        self._wake()

    def _stop_reading(self) -> None:
        self._reads = False
        if self._transport is not None:
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Take what is in the buffer, then read on, unless there is a reason not to."""
        is_full = self._unread_bytes > (0 if self._is_stranger else options.UNREAD_BYTES)
        if self._reads or self._lost is not None or (is_full and not self._discards):
            return
        self._reads = True
        if self._discards:
            self._begin = self._end = 0
        else:
            self._cut()
        if self._reads and self._transport is not None:
            self._transport.resume_reading()

    def _heard(self) -> None:
        self.heard_s = now_s = self._loop.time()
        transport = self._transport  # under TLS something may have come before this side has it
        if self._answers and now_s - self._answered_s >= options.HEARD_PERIOD_S and transport is not None:
            self._answered_s = now_s
            if self._room is not None:
                return  # it does not listen
            if not transport.is_closing():
                transport.write(_HEAD.pack(0, HEARD))

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)
