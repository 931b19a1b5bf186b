"""A reader of a partition on another node.

The problem: the link that reads asks for events when it has credit; the other node must be a little ahead of it, and
never far. The rules: this side holds at most its window and one batch (in bytes, with an overhead per event), and what
`poll` has taken out is granted again, a quarter of the window at a time; batches pass as they are stored, and are
opened only for a link that looks into them; one that was damaged on its way ends the reader, and its successor begins
there. `wake` is called once after a `poll` that returned nothing, when that has changed, and once when `error` was set.
Rejected: relying on HTTP/2 flow control (its bytes lie unparsed in memory that nobody counts, and a message larger than
the window is let through whole).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from cluster.rpc import options
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.api import PartitionTypes, PlacedBatch
from cluster.rpc.grpc_calls.methods import EOF, read_call

OWNERSHIP_LOST = ("stolen", "lapsed", "revoked")
"""Kinds of errors that end a reader in favour of another one."""

FOR_GOOD = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED})
"""Another reader at the same place would end so, too: what serves it there met a defect (that is what gRPC means by the
first), or does not understand the question."""

log = logging.getLogger("holdfast.rpc")


def encode_open(
    start: Any, types: PartitionTypes, group: int, window_bytes: int, owner: Any, uncommitted: bool
) -> pb.ReadOpen:
    request = encode_start(start, types, group, window_bytes)
    request.uncommitted = uncommitted
    if owner is not None:
        request.owner_key, request.owner_claim = owner.key, owner.claim
    return request


def encode_start(start: Any, types: PartitionTypes, group: int, window_bytes: int) -> pb.ReadOpen:
    if isinstance(start, types.Earliest):
        return pb.ReadOpen(group=group, window_bytes=window_bytes, earliest=True)
    if isinstance(start, types.Latest):
        return pb.ReadOpen(group=group, window_bytes=window_bytes, latest=True)
    if isinstance(start, types.After):
        return pb.ReadOpen(group=group, window_bytes=window_bytes, after_offset=start.offset)  # type: ignore[attr-defined]
    if isinstance(start, types.AfterTime):
        after_ms, first = start.timestamp_ms, start.offset + 1  # type: ignore[attr-defined]
        return pb.ReadOpen(group=group, window_bytes=window_bytes, after_time_ms=after_ms, from_offset=first)
    raise TypeError(f"not a start that a partition knows: {start!r}")


class NoReader:
    """Reader that failed from the start: `wake` is called once, soon."""

    resolved = False
    position = 0

    def __init__(self, error: Any, wake: Callable[[], None]) -> None:
        self.error = error
        self._waking = asyncio.get_running_loop().call_soon(wake)

    def poll(self, max_events: int, max_bytes: int, whole: bool = False) -> list[Any]:
        return []

    def close(self) -> None:
        self._waking.cancel()


class GrpcReader:
    def __init__(
        self,
        channel: Any,
        metadata: Any,
        node: int,
        group: int,
        start: Any,
        wake: Callable[[], None],
        types: PartitionTypes,
        window_bytes: int = options.READ_WINDOW_BYTES,
        owner: Any = None,
        uncommitted: bool = False,
    ) -> None:
        self.node = node
        self.error: Any = None
        self.resolved = False
        self._position = 0
        self._passed_to = 0  # where the reader stands on the other node, after all that is in the buffer
        self._wake = wake
        self._types = types
        self._window_bytes = window_bytes
        self._buffer: deque[tuple[PlacedBatch, int]] = deque()  # batches, and what each was charged
        self._consumed_bytes = 0
        self._starved = False  # the last poll returned nothing: wake when that changes
        self._closed = False
        self._credit_due = asyncio.Event()
        self._call = read_call(channel)(metadata=metadata)
        request = encode_open(start, types, group, window_bytes, owner, uncommitted)
        self._task = asyncio.get_running_loop().create_task(self._run(request), name=f"read-{node}-{group}")

    @property
    def position(self) -> int:
        return self._position

    @property
    def buffered_bytes(self) -> int:
        return sum(charged for _, charged in self._buffer)

    def poll(self, max_events: int, max_bytes: int, whole: bool = False) -> list[PlacedBatch]:
        out: list[PlacedBatch] = []
        while self._buffer and max_events > 0 and (max_bytes > 0 or not out):
            batch, charged = self._buffer[0]
            if not whole and not self._open(batch):
                break
            part, size = batch.within(max_events, max_bytes, whole=whole, at_least_one=not out)
            if part is None:
                break
            if part.next_offset == batch.next_offset:
                self._buffer.popleft()
                self._consume(charged)
            else:
                self._buffer[0] = batch.part(len(part), len(batch)), charged
            out.append(part)
            self._position = part.next_offset
            max_events -= len(part)
            max_bytes -= size
        self._starved = not out
        if not self._buffer:
            self._position = max(self._position, self._passed_to)
        return out

    def _open(self, batch: PlacedBatch) -> bool:
        """False: it is not what was sealed. The reader ends in front of it."""
        try:
            batch.check_content()
            batch.open()
        except ValueError as error:
            self._buffer.clear()
            self._damaged(error)
            return False
        return True

    def close(self) -> None:
        self._closed = True
        self._buffer.clear()
        self._call.cancel()
        self._task.cancel()

    def _consume(self, size: int) -> None:
        self._consumed_bytes += size
        if self._consumed_bytes * 4 >= self._window_bytes:
            self._credit_due.set()

    async def _run(self, request: pb.ReadOpen) -> None:
        granting = None
        try:
            await self._call.write(pb.ReadRequest(open=request))
            granting = asyncio.ensure_future(self._grant())
            while (reply := await self._call.read()) is not EOF:
                if reply is None:  # gRPC's word for what the deserializer raised: it is in the log
                    self._fail("defect", f"node {self.node} sent what cannot be read", False, None)
                else:
                    self._take(reply)
                if self.error is not None:
                    return
            self._ended(await self._call.code(), await self._call.details())
        except grpc.aio.AioRpcError as error:
            self._ended(error.code(), error.details())
        except asyncio.InvalidStateError:  # grpc: a write met the end of the call
            self._fail("unavailable", f"node {self.node}: connection lost", True, None)
        except asyncio.CancelledError:  # or gRPC's word for a channel that was closed here, for another one
            self._fail("unavailable", f"node {self.node}: the connection to it was closed here", True, None)
            raise
        finally:
            self._call.cancel()
            if granting is not None:
                granting.cancel()

    async def _grant(self) -> None:
        while True:
            await self._credit_due.wait()
            self._credit_due.clear()
            consumed, self._consumed_bytes = self._consumed_bytes, 0
            try:
                await self._call.write(pb.ReadRequest(credit_bytes=consumed))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the stream ended; its reading end says why

    def _take(self, reply: pb.ReadReply) -> None:
        told = False
        if reply.HasField("next_offset"):
            if not self.resolved:
                self.resolved = told = True
                self._position = reply.next_offset
            self._passed_to = reply.next_offset
        try:
            for data in reply.batches:
                batch = self._types.placed_batch(data)
                self._buffer.append((batch, charge_of(batch)))
        except ValueError as error:
            self._damaged(error)
        if reply.HasField("failure"):
            failure = reply.failure
            self._fail(failure.kind, failure.detail, failure.retriable, failure.leader or None)
        elif self._starved and (told or self._buffer or self._passed_to > self._position) and not self._closed:
            self._starved = False
            self._wake()

    def _ended(self, code: grpc.StatusCode, details: str | None) -> None:
        """End the reader when the call is over, and the other node has not said why."""
        for_good = code in FOR_GOOD
        detail = f"node {self.node}: {code.name.lower()}: {details}"
        self._fail("defect" if for_good else "unavailable", detail, not for_good, None)

    def _damaged(self, error: ValueError) -> None:
        self._fail("unavailable", f"what node {self.node} sent was damaged on its way: {error}", True, None)

    def _fail(self, kind: str, detail: str, retriable: bool, leader: int | None) -> None:
        if self.error is None and not self._closed:
            if kind in OWNERSHIP_LOST:
                self._buffer.clear()  # another one reads it now
            self.error = self._types.ReadError(kind, detail, retriable, leader)
            self._wake()


def charge_of(batch: PlacedBatch) -> int:
    """Bytes of the window that a batch takes, on both sides."""
    return batch.size + options.EVENT_OVERHEAD_BYTES * len(batch)
