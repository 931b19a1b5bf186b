"""The stream this node opens to one peer, kept open for ever.

The problem: the messages of all groups for one peer go down one ordered stream, and the turn that produced them must
never wait for the network. The rules: what is sent together goes in one frame, at once if the connection has room, and
else, or if it is much, it waits in a queue with what comes after it; the queue is bounded in bytes, and when it is full
the *stream* is dropped, never a message inside it (Raft tolerates a lost connection, and assumes that what arrives on
one is without holes); a message is queued only while a stream is open, so nothing stale outlives a disconnection.
Rejected: one connection shared with the bulk reads of gateways, which would share its head of line.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from cluster.rpc import options
from cluster.rpc.raft_transport.errors import StreamError, StreamRefused
from cluster.rpc.raft_transport.frame_writer import (
    FRAME_ACTIVE,
    FRAME_CLOCK,
    FRAME_HELLO,
    FRAME_HINTS,
    FRAME_MESSAGES,
    Encodable,
    PartQueue,
    Taken,
    submessage,
)
from cluster.rpc.rpc_pb2 import ActiveVersion, Clock, Hello, LeaderHints

log = logging.getLogger("holdfast.rpc")


def _no_data(_: str) -> None:
    """A node without a directory."""


class OutboundLink:
    """The stream to one peer. `on_change(True)` when the peer has accepted a stream, `on_change(False)` when that
    stream has ended. `on_copy(why)` when the peer refuses this node because its data are a copy, `on_removed(why)`
    because it was removed. `dial(node, address)` gives a `DiallerEnd`."""

    def __init__(
        self,
        node: int,
        hello: Callable[[], Hello],
        address: Callable[[], str],
        on_change: Callable[[bool], None],
        dial: Callable[[int, str], Any],
        *,
        on_copy: Callable[[str], None] = _no_data,
        on_removed: Callable[[str], None] = _no_data,
        backlog_bytes: int = options.BACKLOG_BYTES,
        jitter: random.Random | None = None,
    ) -> None:
        self.node = node
        self._hello = hello
        self._address = address
        self._on_change = on_change
        self._on_copy = on_copy
        self._on_removed = on_removed
        self._dial = dial
        self._backlog_bytes = backlog_bytes
        self._jitter = jitter or random.Random()
        self._queue = PartQueue()
        self._flying_bytes = 0
        self._stream: Any = None  # accepted and not given up
        self._over: asyncio.Future[str | None] | None = None  # of the present stream: set when it is to end
        self._waiter: asyncio.Future[None] | None = None
        self._quiet = True  # nothing but heartbeats sent since the last look
        self._beats = False  # a heartbeat is in the queue
        self.last_error = "not dialled yet"
        self.dropped = 0  # messages given up because there was no stream, for status

    @property
    def open(self) -> bool:
        return self._stream is not None

    @property
    def backlog(self) -> int:
        return self._queue.bytes + self._flying_bytes

    def send(self, messages: Sequence[Encodable]) -> None:
        if self._stream is None:
            self.dropped += len(messages)
            return
        self._queue.push(FRAME_MESSAGES, messages)
        self._check_backlog()
        self._wake()

    def send_hints(self, hints: LeaderHints) -> None:
        if self._stream is not None:
            self._queue.push(FRAME_HINTS, (hints,))
            self._check_backlog()
            self._wake()

    def send_clock(self, clock: Clock) -> None:
        if self._stream is not None:
            self._queue.push(FRAME_CLOCK, (clock,))
            self._check_backlog()
            self._wake()

    def send_active(self, version: int) -> None:
        """Say the active version, before anything that is sent from now on."""
        if self._stream is not None:
            self._queue.push(FRAME_ACTIVE, (ActiveVersion(version=version),))
            self._check_backlog()
            self._wake()

    def heartbeat(self) -> None:
        """Called each heartbeat period: a stream that was quiet since the last call carries an empty frame."""
        if self._quiet and self._stream is not None and not self._queue and not self._flying_bytes:
            self._queue.push(FRAME_HINTS, (LeaderHints(),))
            self._beats = True
            self._wake()
        self._quiet = True

    async def run(self) -> None:
        backoff_s = options.BACKOFF_MIN_S
        while True:
            was_open, error = await self._session()
            if error != self.last_error:
                log.warning("link to node %d at %s: %s", self.node, self._address(), error)
            self.last_error = error
            backoff_s = options.BACKOFF_MIN_S if was_open else min(backoff_s * 2, options.BACKOFF_MAX_S)
            await asyncio.sleep(backoff_s * self._jitter.uniform(0.5, 1.0))

    async def _session(self) -> tuple[bool, str]:
        """Run one connection from dialling to its end; returns whether the peer accepted it, and why it ended."""
        stream = self._dial(self.node, self._address())
        accepted = False
        try:
            async with asyncio.timeout(options.HELLO_TIMEOUT_S):
                await stream.write(submessage(FRAME_HELLO, self._hello()))
                accepted = await stream.is_let_in()
            reason = await self._serve(stream) if accepted else None
            if reason is not None:
                return accepted, reason
            raise await stream.wait_over()
        except StreamRefused as error:
            if error.copy:
                self._on_copy(error.copy)
            if error.removed:
                self._on_removed(str(error))
            return accepted, f"refused: {error}"
        except StreamError as error:
            return accepted, str(error)
        except TimeoutError:
            return accepted, f"no welcome within {options.HELLO_TIMEOUT_S} s: the process hangs, or is something else"
        finally:
            stream.hang_up()

    async def _serve(self, stream: Any) -> str | None:
        """Serve while the stream stands. Returns why this side gave it up, or None when it has ended by itself."""
        over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._stream, self._over = stream, over
        self._queue.clear()
        self._flying_bytes = 0
        self.last_error = ""
        stream.on_over(lambda: _resolve(over, None))
        self._on_change(True)
        # Apart, since a write to a peer that takes nothing does not return, even when the stream was hung up.
        pumping = asyncio.get_running_loop().create_task(self._pump(stream))
        try:
            return await over
        finally:
            pumping.cancel()
            self._stream = None
            self._on_change(False)

    async def _pump(self, stream: Any) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                if not self._queue:
                    self._waiter = loop.create_future()
                    await self._waiter
                    continue
                taken = self._take()
                self._flying_bytes = taken.size
                await stream.write(taken.frame, *taken.beside)
                self._flying_bytes = 0
        except StreamError:
            return  # `wait_over` says why

    def _take(self) -> Taken:
        """The next frame."""
        taken = self._queue.take(options.FRAME_TARGET_BYTES)
        self._quiet = self._quiet and self._beats and taken.elements == 1
        self._beats = False
        return taken

    def _wake(self) -> None:
        """Something was pushed. While the pump is at work, it finds that by itself. Else what is no more than the
        transport may hold goes from here: to wake the pump takes a turn of the loop, a millisecond on a busy node."""
        waiter, stream = self._waiter, self._stream
        if waiter is None or waiter.done():
            return
        try:
            if stream is not None and stream.has_room and self._queue.bytes <= options.WRITE_BUFFER_BYTES:
                taken = self._take()
                stream.put(taken.frame, *taken.beside)
        except StreamError:
            return  # `wait_over` says why
        if self._queue:
            _resolve(waiter, None)

    def _check_backlog(self) -> None:
        if self.backlog > self._backlog_bytes:
            self._stream = None  # nothing more is taken; `_serve` ends the stream, outside of the sender's turn
            self._queue.clear()
            self._flying_bytes = 0
            if self._over is not None:
                reason = f"dropped: more than {self._backlog_bytes} bytes waited for a peer that takes nothing"
                _resolve(self._over, reason)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
