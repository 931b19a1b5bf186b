"""One gateway's appends to one partition, at the node that leads it.

The problem: the links behind a gateway pipeline, and submit again what was refused for the moment. What they sent
before they learned of a refusal, or of an outcome that nobody knows, must not get in front of it.

The rules: after the first such refusal everything else on the stream is refused too, and the gateway opens another
(`append_client.py`); no more is unanswered than `APPEND_UNANSWERED_BYTES` and one append, for the stream is not read on
before. What a batch holds is judged by the partition, like that of a client: the log keeps it for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cluster.rpc import options
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.api import PartitionHost, PartitionTypes
from cluster.rpc.grpc_calls.append_client import charge_of, refusal_behind
from cluster.rpc.grpc_calls.methods import EOF
from cluster.rpc.grpc_calls.producer_codec import failure_field, failure_of
from cluster.rpc.grpc_calls.request_validation import next_request
from cluster.rpc.raft_transport.frame_writer import APPEND_REPLIES, PartQueue


class AppendSession:
    def __init__(self, context: Any, partitions: PartitionHost, types: PartitionTypes, self_id: int) -> None:
        self._context = context
        self._partitions = partitions
        self._types = types
        self._failed_type = types.Failed
        self._self_id = self_id
        self._refusal: pb.Failure | None = None
        self._replies = PartQueue()
        self._unanswered_bytes = 0
        self._replied = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False

    async def run(self) -> None:
        writing = asyncio.ensure_future(self._write())
        try:
            await self._read()
        finally:
            self._ended = True
            writing.cancel()

    async def _read(self) -> None:
        while (frame := await next_request(self._context, pb.AppendFrame)) is not EOF:
            await self._take(frame)
            del frame  # megabytes that nobody needs any more while the next one is awaited

    async def _take(self, frame: pb.AppendFrame) -> None:
        for request in frame.requests:
            self._append(frame.group, request)
            while self._unanswered_bytes > options.APPEND_UNANSWERED_BYTES:
                self._room.clear()
                await self._room.wait()

    def _append(self, group: int, request: pb.AppendRequest) -> None:
        number = request.id
        if self._refusal is not None:
            self._push(pb.AppendReply(id=number, failure=self._refusal))
            return
        try:
            batch = self._types.record_batch(request.batch)
        except ValueError as problem:
            self._refuse(number, failure_field("malformed", False, f"{problem}; so says node {self._self_id}"))
            return
        size = charge_of(batch.size)
        self._unanswered_bytes += size

        def done(outcome: Any) -> None:
            self._unanswered_bytes -= size
            self._room.set()
            self._reply(number, outcome)

        # Looked up for each request: the replica may be closed, and opened anew, while the stream stands.
        replica = self._partitions.partition(group)
        if replica is None:
            self._unanswered_bytes -= size
            detail = f"node {self._self_id} has no replica of group {group}: look up the placement again, then retry"
            self._refuse(number, failure_field("not_leader", True, detail, None))
        else:
            replica.append(batch, done, (request.begins_for, request.timeout_ms) if request.begins_for else None)

    def _reply(self, request: int, outcome: Any) -> None:
        if isinstance(outcome, self._failed_type):
            self._refuse(request, failure_of(outcome))
        else:
            reply = pb.AppendReply(
                id=request,
                base_offset=outcome.base_offset,
                timestamp_ms=outcome.timestamp_ms,
                duplicates=outcome.duplicates,
            )
            for records, base_offset in outcome.places:
                reply.rows.add(records=records, base_offset=base_offset)
            self._push(reply)

    def _refuse(self, request: int, failure: pb.Failure) -> None:
        self._refusal = self._refusal or refusal_behind(failure, self._self_id)
        self._push(pb.AppendReply(id=request, failure=failure))

    def _push(self, reply: pb.AppendReply) -> None:
        if not self._ended:
            self._replies.push(APPEND_REPLIES, (reply,))
            self._replied.set()

    async def _write(self) -> None:
        while True:
            await self._replied.wait()
            self._replied.clear()
            while self._replies:
                frame = self._replies.take(options.FRAME_TARGET_BYTES, options.MAX_REPLIES_PER_FRAME).frame
                await self._context.write(frame)
