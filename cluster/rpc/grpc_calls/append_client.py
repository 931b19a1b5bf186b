"""Appends to one partition on another node: one stream, pipelined, answered by id.

The problem: a gateway passes on what many links send, thousands a second, and when the stream breaks it must know of
each request whether it may have been appended. The rules: every request is answered exactly once; it is `unknown` only
when it was handed to gRPC on a stream that the other node had accepted, else `not_leader` (certainly not appended,
retriable); the unanswered bytes are bounded (beyond: `overloaded`). Requests of one loop turn travel in one message,
since a message costs 50 us and a request 2. A batch goes as it is.

Nothing overtakes a request that was refused for the moment, or whose outcome is unknown: the other node refuses all
after it on the stream, this side refuses what comes until all of them are answered, and only the next stream takes
requests again.

Rejected: an `InFlightWindow`, as senders of the client have. A refusal is passed on at once, so nothing is kept here to
be sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from cluster.rpc import options
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.api import PartitionTypes, SealedBatch
from cluster.rpc.grpc_calls.methods import EOF, append_call
from cluster.rpc.grpc_calls.producer_codec import failed, failure_field
from cluster.rpc.raft_transport.frame_writer import APPEND_FRAME_REQUESTS, APPEND_REQUEST_BATCH, PartQueue, prefix

log = logging.getLogger("holdfast.rpc")

Done = Callable[[Any], None]

TRANSIENT_KINDS = frozenset({"not_leader", "overloaded"})
"""Failures after which the caller submits the same records again; so none of its later ones may be appended before."""


def refusal_behind(failure: pb.Failure, node: int) -> pb.Failure | None:
    """The refusal of all that follows a request which failed so. None: others are judged by themselves."""
    if failure.kind == "unknown":
        detail = f"node {node} lost leadership amid earlier records: retry, at the leader of the time"
        return failure_field("not_leader", True, detail)
    return failure if failure.kind in TRANSIENT_KINDS else None


class StreamEnded(Exception):
    """The other node ended the stream; the text says how."""


def charge(records: Sequence[bytes]) -> int:
    """Bytes of memory that the records stand for, as counted against windows on both sides."""
    return sum(map(len, records)) + options.EVENT_OVERHEAD_BYTES * len(records)


def charge_of(batch_bytes: int) -> int:
    """Bytes that a batch counts as while it waits: it stays in one piece."""
    return batch_bytes + options.EVENT_OVERHEAD_BYTES


class AppendStream:
    def __init__(self, channel: Any, metadata: Any, node: int, group: int, types: PartitionTypes) -> None:
        self.node = node
        self.group = group
        self.closed = False
        self.on_closed: Callable[[AppendStream], None] | None = None
        self._types = types
        self._queue = PartQueue()
        self._unanswered: dict[int, tuple[int, Done]] = {}  # charge and done, in the order of ids
        self._unanswered_bytes = 0
        self._last_id = 0
        self._handed_over = 0  # highest id that gRPC was given
        self._refusal: pb.Failure | None = None  # once it is there, the stream takes nothing
        self._group_field = pb.AppendFrame(group=group).SerializeToString()
        self._woken = asyncio.Event()
        self._call = append_call(channel)(metadata=metadata)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"append-{node}-{group}")

    def append(self, batch: SealedBatch, done: Done, begins: tuple[int, int] | None = None) -> None:
        if self._refusal is not None:
            done(failed(self._refusal, self._types))
            return
        size = charge_of(batch.size)
        if self._unanswered and self._unanswered_bytes + size > options.APPEND_UNANSWERED_BYTES:
            detail = f"{self._unanswered_bytes} bytes wait for an answer of node {self.node}; slow down, then try again"
            done(self._types.Failed("overloaded", True, detail, None))
            return
        self._last_id += 1
        self._unanswered[self._last_id] = size, done
        self._unanswered_bytes += size
        self._push(batch, begins)
        self._woken.set()

    def _push(self, batch: SealedBatch, begins: tuple[int, int] | None) -> None:
        """Queue records without copying them: the queue holds what the link holds."""
        begins_for, timeout_ms = begins or (0, 0)
        request = pb.AppendRequest(id=self._last_id, begins_for=begins_for, timeout_ms=timeout_ms)
        head, content = batch.pieces()
        front = request.SerializeToString() + prefix(APPEND_REQUEST_BATCH, len(head) + len(content)) + head
        self._queue.push_parts(APPEND_FRAME_REQUESTS, front, content)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._finish("this node is stopping")  # when the task was cancelled before its first step

    async def _run(self) -> None:
        reading = None
        reason = "the connection was given up"
        try:
            await self._call.wait_for_connection()  # the other node's welcome: only now is anything sent
            reading = asyncio.ensure_future(self._read())
            await self._write(reading)
            reason = "the stream was idle"
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name.lower()}: {error.details()}"
        except StreamEnded as ended:
            reason = str(ended)
        except asyncio.InvalidStateError:  # grpc: a write met the end of the call
            reason = "connection lost"
        finally:
            if reading is not None:
                reading.cancel()
            self._finish(reason)

    async def _write(self, reading: asyncio.Future[None]) -> None:
        """Write frames until the stream ends (raises its status) or nothing was asked for a while (returns)."""
        reading.add_done_callback(lambda _: self._woken.set())
        while True:
            while self._queue and not reading.done():
                frame, count, _ = self._queue.take(options.FRAME_TARGET_BYTES, lead=self._group_field)
                self._handed_over += count
                await self._call.write(frame)
            if reading.done():
                reading.result()
            self._woken.clear()
            try:
                async with asyncio.timeout(options.STREAM_IDLE_S):
                    await self._woken.wait()
            except TimeoutError:
                if not self._unanswered:
                    return

    async def _read(self) -> None:
        while (message := await self._call.read()) is not EOF:
            for reply in message.replies:
                self._answer(reply)
            if self.closed:
                raise StreamEnded("it refused records")
        code, details = await self._call.code(), await self._call.details()
        raise StreamEnded(f"{code.name.lower()}: {details}")

    def _answer(self, reply: pb.AppendReply) -> None:
        size, done = self._unanswered.pop(reply.id, (0, None))
        if done is None:
            raise StreamEnded(f"it answered a request that was not asked ({reply.id}): a defect of that node")
        self._unanswered_bytes -= size
        if reply.HasField("failure"):
            self._refusal = self._refusal or refusal_behind(reply.failure, self.node)
        if self._refusal is not None and not self._unanswered:
            self._retire()
        done(self._outcome(reply))

    def _outcome(self, reply: pb.AppendReply) -> Any:
        if reply.HasField("failure"):
            return failed(reply.failure, self._types)
        places = tuple((row.records, row.base_offset) for row in reply.rows) if reply.rows else ()
        return self._types.Appended(reply.base_offset, reply.timestamp_ms, reply.duplicates, places)

    def _retire(self) -> None:
        """Retire the stream: the next request goes over another one."""
        if not self.closed:
            self.closed = True
            if self.on_closed is not None:
                self.on_closed(self)

    def _finish(self, reason: str) -> None:
        self._retire()
        self._call.cancel()
        unanswered, self._unanswered = self._unanswered, {}
        self._unanswered_bytes = 0
        self._queue.clear()
        lost = f"node {self.node}: {reason}; the records may have been appended"
        kept = f"node {self.node}: {reason}; the records were not sent: retry, at the leader of the time"
        for request, (_, done) in unanswered.items():
            if request <= self._handed_over:
                done(self._types.Failed("unknown", True, lost, None))
            else:
                done(self._types.Failed("not_leader", True, kept, None))
