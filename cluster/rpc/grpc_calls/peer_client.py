"""Asking one other node: the facade over its append streams, readers and single questions.

One channel per peer, apart from the Raft stream's, so that bulk reads do not delay heartbeats; it connects on first
use and reconnects by itself. Every call carries this node's Hello.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from cluster.raft import FetchReply, FetchRequest
from cluster.rpc import options
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.admission_report import Callers
from cluster.rpc.api import GroupUnknown, Members, NotLeaderHere, PartitionTypes, SealedBatch, Unavailable
from cluster.rpc.grpc_calls.append_client import AppendStream
from cluster.rpc.grpc_calls.methods import (
    callers_call,
    confirm_call,
    execute_call,
    fetch_call,
    group_call,
    hand_over_call,
    info_call,
    join_call,
    open_producer_call,
    producers_call,
    replicas_call,
    report_call,
)
from cluster.rpc.grpc_calls.producer_codec import (
    failed,
    info_of,
    open_request,
    opened,
)
from cluster.rpc.grpc_calls.read_client import GrpcReader, NoReader
from cluster.rpc.handshake import METADATA_KEY
from cluster.rpc.load_report import LoadReport, report_from_pb

log = logging.getLogger("holdfast.rpc")

NOT_SENT_CODES = frozenset(
    {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED}
)
"""Refused before anything was handled."""


def _plainly(address: str) -> Any:
    return grpc.aio.insecure_channel(address, options=options.channel_options())


class GrpcPeerClient:
    def __init__(
        self,
        node: int,
        hello: Callable[[], pb.Hello],
        address: Callable[[], str],
        types: PartitionTypes,
        *,
        open_channel: Callable[[str], Any] | None = None,
        version: Callable[[], object] = lambda: None,
    ) -> None:
        """`version`: of the credentials that `open_channel` uses; another one is a reason to connect anew."""
        self.node = node
        self._open = open_channel or _plainly
        self._version = version
        self._hello = hello
        self._address = address
        self._types = types
        self._channel: Any = None
        self._fetch_channel: Any = None
        self._fetch_place: tuple[str, object] = ("", None)
        self._channel_place: tuple[str, object] = ("", None)
        self._closing: list[asyncio.Future[None]] = []  # channels to addresses that are not used any more
        self._appends: dict[int, AppendStream] = {}
        self._closed = ""  # why

    @property
    def _metadata(self) -> tuple[tuple[str, bytes]]:
        """Hello of this node, made anew for each call, since it may change while the node runs."""
        return ((METADATA_KEY, self._hello().SerializeToString()),)

    def append(
        self, group: int, batch: SealedBatch, done: Callable[[Any], None], begins: tuple[int, int] | None = None
    ) -> None:
        stream = self._appends.get(group)
        if stream is None or stream.closed:
            if self._closed:
                done(self._types.Failed("not_leader", True, self._closed, None))
                return
            stream = AppendStream(self._open_channel(), self._metadata, self.node, group, self._types)
            self._appends[group] = stream
            stream.on_closed = self._forget
        stream.append(batch, done, begins)

    def open_reader(
        self, group: int, start: Any, wake: Callable[[], None], owner: Any = None, *, uncommitted: bool = False
    ) -> GrpcReader | NoReader:
        if self._closed:
            return NoReader(self._types.ReadError("unavailable", self._closed, True, None), wake)
        return GrpcReader(
            self._open_channel(),
            self._metadata,
            self.node,
            group,
            start,
            wake,
            self._types,
            owner=owner,
            uncommitted=uncommitted,
        )

    async def info(self, group: int) -> Any:
        reply = await self._ask(info_call, pb.InfoRequest(group=group), options.INFO_TIMEOUT_S)
        if reply.HasField("failure"):
            if reply.failure.kind == "group_unknown":
                raise GroupUnknown(group, self.node)
            raise Unavailable(f"node {self.node}: {reply.failure.detail}", sent=True)
        return self._types.PartitionDescription(
            partition=reply.partition,
            earliest_offset=reply.earliest_offset if reply.HasField("earliest_offset") else None,
            latest_offset=reply.latest_offset if reply.HasField("latest_offset") else None,
            next_offset=reply.next_offset,
            events=reply.events,
            bytes=reply.bytes,
            leader=reply.leader or None,
            replicas=tuple(reply.replicas),
            last_timestamp_ms=reply.last_timestamp_ms if reply.HasField("last_timestamp_ms") else None,
            # A leader that knows no transactions does not tell: then everything is decided.
            stable_offset=reply.stable_offset if reply.HasField("stable_offset") else reply.next_offset,
            open_transactions=reply.open_transactions,
            aborted_transactions=reply.aborted_transactions,
        )

    async def open_producer(self, group: int, wish: Any) -> Any:
        try:
            reply = await self._ask(open_producer_call, open_request(group, wish), options.OPEN_PRODUCER_TIMEOUT_S)
        except Unavailable as error:
            kind = "unknown" if error.sent else "not_leader"
            return self._types.Failed(kind, True, str(error), None)
        if reply.HasField("failure"):
            return failed(reply.failure, self._types)
        return opened(reply, self._types)

    async def producers(self, group: int, after: int, limit: int) -> list[Any]:
        request = pb.ProducersRequest(group=group, after=after, limit=limit)
        reply = await self._ask(producers_call, request, options.INFO_TIMEOUT_S)
        if reply.HasField("failure"):
            if reply.failure.kind == "group_unknown":
                raise GroupUnknown(group, self.node)
            raise Unavailable(f"node {self.node}: {reply.failure.detail}", sent=True)
        return [info_of(field, self._types) for field in reply.producers]

    async def ask(self, group: int, question: Any) -> Any:
        request = pb.GroupRequest(group=group, question=self._types.encode_question(question))
        try:
            reply = await self._ask(group_call, request, options.GROUP_TIMEOUT_S)
        except Unavailable as error:
            kind = "unknown" if error.sent else "not_leader"
            return self._types.Failed(kind, True, str(error), None)
        if reply.HasField("failure"):
            return failed(reply.failure, self._types)
        try:
            return self._types.decode_answer(reply.answer)
        except ValueError as error:  # of a node of another version: it may have been done
            return self._types.Failed("unknown", True, f"node {self.node} answered what cannot be read: {error}", None)

    async def execute(self, command: bytes, timeout_s: float = 10.0) -> bytes:
        reply = await self._ask(execute_call, pb.AdminRequest(command=command), timeout_s)
        if reply.HasField("failure"):
            if reply.failure.kind == "not_leader":
                raise NotLeaderHere(reply.failure.leader or None)
            raise Unavailable(f"node {self.node}: {reply.failure.detail}", sent=True)
        return bytes(reply.result)

    async def confirm(self, timeout_s: float) -> int:
        """The metadata leader's word on how far the metadata go; raises NotLeaderHere, Unavailable."""
        reply = await self._ask(confirm_call, pb.ConfirmRequest(), timeout_s)
        if reply.HasField("failure"):
            raise NotLeaderHere(reply.failure.leader or None)
        return int(reply.index)

    async def replicas(self, groups: Sequence[int]) -> list[pb.ReplicaState]:
        """Ask for the states of the node's replicas; raises Unavailable."""
        reply = await self._ask(replicas_call, pb.ReplicasRequest(groups=groups), options.INFO_TIMEOUT_S)
        return list(reply.states)

    async def callers(self, known: AbstractSet[int]) -> Callers:
        """Ask which of the known nodes the node lets in, and which not; raises Unavailable."""
        reply = await self._ask(callers_call, pb.CallersRequest(), options.INFO_TIMEOUT_S)
        accepted, refused = (
            frozenset(node for node in named if node in known)  # however many it names
            for named in (reply.accepted, reply.refused)
        )
        return Callers(accepted, refused)

    async def join(self) -> Members:
        """Ask for the members of the cluster, as a node that joins it; raises Unavailable, also if it may not."""
        reply = await self._ask(join_call, pb.JoinRequest(), options.INFO_TIMEOUT_S)
        return Members(reply.cluster_id, {one.node: one.address for one in reply.nodes})

    async def report(self) -> LoadReport:
        """Ask how full the node is, and how large the groups that it leads; raises Unavailable."""
        reply = await self._ask(report_call, pb.ReportRequest(), options.INFO_TIMEOUT_S)
        try:
            return report_from_pb(reply)
        except DecodeError as error:
            raise Unavailable(f"node {self.node} answered what cannot be read: {error}", sent=True) from error

    async def hand_over(self, moves: Iterable[pb.AwaitedMove], successors: Iterable[int]) -> list[int]:
        request = pb.HandOverRequest(moves=moves, successors=successors)
        return list((await self._ask(hand_over_call, request, options.INFO_TIMEOUT_S)).groups)

    async def fetch(self, request: FetchRequest) -> FetchReply:
        """A piece of a snapshot, over a connection that carries nothing else; raises Unavailable."""
        if self._closed:
            raise Unavailable(self._closed, sent=False)
        place = self._place()
        if self._fetch_channel is not None and self._fetch_place != place:
            self._closing.append(asyncio.ensure_future(self._fetch_channel.close(None)))
            self._fetch_channel = None
        if self._fetch_channel is None:
            self._fetch_place = place
            self._fetch_channel = self._open(place[0])
        call = fetch_call(self._fetch_channel)
        asked = call(request, timeout=options.FETCH_TIMEOUT_S, metadata=self._metadata)
        piece: FetchReply = await self._reply(asked)
        return piece

    def refuse(self, why: str) -> None:
        """Ask no more: what is asked from now on is answered with the reason."""
        self._closed = self._closed or why

    async def close(self) -> None:
        self.refuse("this node is stopping")
        if self._fetch_channel is not None:
            await self._fetch_channel.close(None)
        for stream in list(self._appends.values()):
            await stream.close()
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None
        await asyncio.gather(*self._closing)

    def _place(self) -> tuple[str, object]:
        return self._address(), self._version()

    def _open_channel(self) -> Any:
        if self._closed:
            raise Unavailable(self._closed, sent=False)
        place = self._place()
        if self._channel is None or place != self._channel_place:
            if self._channel is not None:  # what is under way on it ends like any lost connection
                self._closing.append(asyncio.ensure_future(self._channel.close(None)))
            self._channel = self._open(place[0])
            self._channel_place = place
        return self._channel

    async def _ask(self, method: Callable[[Any], Any], request: Any, timeout_s: float) -> Any:
        channel = self._open_channel()
        await self._connected(channel, timeout_s)
        return await self._reply(method(channel)(request, timeout=timeout_s, metadata=self._metadata))

    async def _reply(self, asked: Any) -> Any:
        """The reply to a question. gRPC tells its caller that it was cancelled where only the channel was closed, and
        not that it was where the call ended at that moment: the first would end the caller's task, the second would
        keep it from ending."""
        try:
            reply = await asked
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from error
            if isinstance(error, asyncio.CancelledError):
                detail = f"node {self.node} did not answer: the connection to it was closed here"
                raise Unavailable(detail, sent=True) from error
            raise Unavailable(
                f"node {self.node} did not answer ({error.code().name.lower()}: {error.details()})",
                sent=error.code() not in NOT_SENT_CODES,
            ) from error
        if reply is None:  # gRPC's word for what the deserializer raised: it is in the log
            raise Unavailable(f"node {self.node} answered what cannot be read", sent=True)
        return reply

    async def _connected(self, channel: Any, timeout_s: float) -> None:
        """Connect before a question is put: only then is it certain that a failure to connect has sent nothing."""
        try:
            async with asyncio.timeout(min(timeout_s, options.HELLO_TIMEOUT_S)):
                while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        raise Unavailable(f"node {self.node} at {self._address()} cannot be reached", sent=False)
                    await channel.wait_for_state_change(state)
        except TimeoutError as error:
            raise Unavailable(f"node {self.node} at {self._address()} does not answer", sent=False) from error
        except grpc.aio.UsageError as error:
            raise Unavailable(f"node {self.node}: the connection to it was closed here", sent=False) from error

    def _forget(self, stream: AppendStream) -> None:
        if self._appends.get(stream.group) is stream:
            del self._appends[stream.group]
