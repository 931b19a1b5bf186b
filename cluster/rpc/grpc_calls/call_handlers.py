"""Services of this node for its peers: adapters from the wire to the protocols of `api.py`, and nothing more.

The rules: a caller that does not belong is refused before its request is read; the memory a caller can take is bounded
(unanswered appends stop the reading of its stream, a reader is never ahead of its window); a failure that has a type
crosses the wire with it. The decision what a request means is the partition's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

from cluster.raft import FetchReply, FetchRequest, NotLeader
from cluster.rpc import options
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.admission_report import Callers
from cluster.rpc.api import AdminHost, PartitionHost, PartitionTypes, ServedReader
from cluster.rpc.grpc_calls.append_server import AppendSession
from cluster.rpc.grpc_calls.methods import EOF
from cluster.rpc.grpc_calls.producer_codec import (
    failure_field,
    failure_of,
    info_field,
    opened_reply,
    producer_request_from,
)
from cluster.rpc.grpc_calls.read_client import charge_of
from cluster.rpc.grpc_calls.request_validation import next_request, parse_request
from cluster.rpc.handshake import Who, hello_in
from cluster.rpc.load_report import report_to_pb
from cluster.versions import MEMBERS_CHANGE_FROM

log = logging.getLogger("holdfast.rpc")


class AdmittedNode(NamedTuple):
    """A node that was let in."""

    node: int
    has_only_to_join: bool


class Services:
    def __init__(
        self,
        *,
        who: Who,
        types: PartitionTypes,
        partitions: PartitionHost,
        admin: AdminHost,
        serve_fetch: Callable[[int, FetchRequest], FetchReply],
        callers: Callable[[], Callers],
    ) -> None:
        self._who = who
        self._self_id = who.node
        self._serve_fetch = serve_fetch
        self._callers = callers
        self._types = types
        self._partitions = partitions
        self._admin = admin

    async def append(self, _: Any, context: Any) -> None:
        await self._admit(context)
        await context.send_initial_metadata(())  # the welcome
        await AppendSession(context, self._partitions, self._types, self._self_id).run()

    async def read(self, _: Any, context: Any) -> None:
        await self._admit(context)
        first = await next_request(context, pb.ReadRequest)
        if first is EOF or not first.HasField("open"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message of a read must open it")
        request = first.open
        replica = self._partitions.partition(request.group)
        if replica is None:
            detail = f"node {self._self_id} has no replica of group {request.group}: look up the placement again"
            await context.write(_encoded(pb.ReadReply(failure=failure_field("unavailable", True, detail, None))))
            return
        await ReadSession(context, request.window_bytes).run(
            lambda wake: replica.open_reader(
                decode_start(request, self._types),
                wake,
                owner_of(request, self._types),
                uncommitted=request.uncommitted,
            )
        )

    async def info(self, data: bytes, context: Any) -> pb.InfoReply:
        await self._admit(context)
        request = await parse_request(context, pb.InfoRequest, data)
        replica = self._partitions.partition(request.group)
        if replica is None:
            detail = f"node {self._self_id} has no replica of group {request.group}"
            return pb.InfoReply(failure=failure_field("group_unknown", True, detail, None))
        try:
            info = await replica.info()
        except ConnectionError as error:  # it cannot be sure that it still leads
            return pb.InfoReply(failure=failure_field("unavailable", True, str(error), None))
        return pb.InfoReply(
            partition=info.partition,
            earliest_offset=info.earliest_offset,
            latest_offset=info.latest_offset,
            next_offset=info.next_offset,
            events=info.events,
            bytes=info.bytes,
            leader=info.leader or 0,
            replicas=info.replicas,
            last_timestamp_ms=info.last_timestamp_ms,
            stable_offset=info.stable_offset,
            open_transactions=info.open_transactions,
            aborted_transactions=info.aborted_transactions,
        )

    async def open_producer(self, data: bytes, context: Any) -> pb.OpenProducerReply:
        await self._admit(context)
        request = await parse_request(context, pb.OpenProducerRequest, data)
        replica = self._partitions.partition(request.group)
        if replica is None:
            detail = f"node {self._self_id} has no replica of group {request.group}: look up the placement again"
            return pb.OpenProducerReply(failure=failure_field("not_leader", True, detail, None))
        outcome = await replica.open_producer(producer_request_from(request, self._types))
        if isinstance(outcome, self._types.Failed):
            return pb.OpenProducerReply(failure=failure_of(outcome))
        return opened_reply(outcome)

    async def producers(self, data: bytes, context: Any) -> pb.ProducersReply:
        await self._admit(context)
        request = await parse_request(context, pb.ProducersRequest, data)
        replica = self._partitions.partition(request.group)
        if replica is None:
            detail = f"node {self._self_id} has no replica of group {request.group}"
            return pb.ProducersReply(failure=failure_field("group_unknown", True, detail, None))
        limit = min(request.limit, options.MAX_PRODUCERS_PER_REPLY)
        try:
            found = await replica.producers(request.after, limit)
        except NotLeader as error:
            return pb.ProducersReply(failure=failure_field("not_leader", True, str(error), error.leader))
        return pb.ProducersReply(producers=map(info_field, found))

    async def group(self, data: bytes, context: Any) -> pb.GroupReply:
        await self._admit(context)
        request = await parse_request(context, pb.GroupRequest, data)
        replica = self._partitions.replica(request.group)
        if replica is None:
            detail = f"node {self._self_id} has no replica of group {request.group}: look up the placement again"
            return pb.GroupReply(failure=failure_field("not_leader", True, detail, None))
        try:
            question = self._types.decode_question(request.question)
        except ValueError as error:
            reason = f"not a question that this version knows: {error}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        answer = await replica.ask(question)
        if isinstance(answer, self._types.Failed):
            return pb.GroupReply(failure=failure_of(answer))
        return pb.GroupReply(answer=self._types.encode_answer(answer))

    async def execute(self, data: bytes, context: Any) -> pb.AdminReply:
        caller = await self._admit(context, joins=True)
        request = await parse_request(context, pb.AdminRequest, data)
        if caller.has_only_to_join and not self._admin.registers(caller.node, request.command):
            await self._refuse_to_serve(caller, context)
        try:
            return pb.AdminReply(result=await self._admin.execute(request.command))
        except NotLeader as error:
            return pb.AdminReply(failure=failure_field("not_leader", True, str(error), error.leader))

    async def confirm(self, data: bytes, context: Any) -> pb.ConfirmReply:
        await self._admit(context)
        try:
            return pb.ConfirmReply(index=await self._admin.confirm())
        except NotLeader as error:
            return pb.ConfirmReply(failure=failure_field("not_leader", True, str(error), error.leader))

    async def replicas(self, data: bytes, context: Any) -> pb.ReplicasReply:
        await self._admit(context)
        request = await parse_request(context, pb.ReplicasRequest, data)
        return pb.ReplicasReply(states=self._admin.replica_states(request.groups))

    async def callers(self, data: bytes, context: Any) -> pb.CallersReply:
        await self._admit(context)
        await parse_request(context, pb.CallersRequest, data)
        accepted, refused = self._callers()
        return pb.CallersReply(accepted=sorted(accepted), refused=sorted(refused))

    async def join(self, data: bytes, context: Any) -> pb.JoinReply:
        await self._admit(context, joins=True)
        await parse_request(context, pb.JoinRequest, data)
        if (active := self._who.active()) < MEMBERS_CHANGE_FROM:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, _nobody_joins(active))
        members = self._admin.members()
        nodes = [pb.NodeAddress(node=node, address=address) for node, address in sorted(members.addresses.items())]
        return pb.JoinReply(cluster_id=members.cluster_id, nodes=nodes)

    async def report(self, data: bytes, context: Any) -> pb.ReportReply:
        await self._admit(context)
        await parse_request(context, pb.ReportRequest, data)
        return report_to_pb(self._admin.report())

    async def hand_over(self, data: bytes, context: Any) -> pb.HandOverReply:
        await self._admit(context)
        if len(data) > options.MAX_HAND_OVER_BYTES:
            reason = f"a question about leaderships has {options.MAX_HAND_OVER_BYTES} bytes at most: ask about fewer"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        request = await parse_request(context, pb.HandOverRequest, data)
        return pb.HandOverReply(groups=self._admin.hand_over(request.moves, request.successors))

    async def fetch(self, data: bytes, context: Any) -> FetchReply:
        caller = await self._admit(context)
        return self._serve_fetch(caller.node, await parse_request(context, FetchRequest, data))

    async def _admit(self, context: Any, *, joins: bool = False) -> AdmittedNode:
        """Admit the caller. `joins`: one that is no member yet may put this question."""
        hello = hello_in(context.invocation_metadata())
        if not self._who.is_node(context, hello):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, self._who.not_a_node(context, hello))
        reason = self._who.refusal(hello)
        if reason is not None or hello is None:
            told = self._who.told(context, hello, reason or "")
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, told)
            raise AssertionError("abort raises")
        if (wait := self._who.has_to_wait(hello)) is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._who.told(context, hello, wait))
        caller = AdmittedNode(int(hello.node), self._who.has_only_to_join(hello))
        if caller.has_only_to_join and not joins:
            await self._refuse_to_serve(caller, context)
        return caller

    async def _refuse_to_serve(self, caller: AdmittedNode, context: Any) -> None:
        told = self._who.told(context, hello_in(context.invocation_metadata()), _is_no_member(caller.node))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, told)


class ReadSession:
    """Session of one remote reader of one partition."""

    def __init__(self, context: Any, window_bytes: int) -> None:
        self._context = context
        self._window_bytes = min(window_bytes, options.MAX_MESSAGE_BYTES)
        self._woken = asyncio.Event()
        self._told = 0  # where the other side knows the reader to stand

    async def run(self, open_reader: Callable[[Callable[[], None]], ServedReader]) -> None:
        reader = open_reader(self._woken.set)
        crediting = asyncio.ensure_future(self._read_credit())
        try:
            await self._context.write(_encoded(pb.ReadReply(next_offset=reader.position)))
            self._told = reader.position
            await self._serve(reader, crediting)
        except grpc.aio.InternalError as error:  # gRPC raises it when the reader leaves while a reply is written
            self._context.set_code(grpc.StatusCode.UNAVAILABLE)
            self._context.set_details(f"a reply could not be written: {error}")
        finally:
            crediting.cancel()
            reader.close()

    async def _serve(self, reader: ServedReader, crediting: asyncio.Future[None]) -> None:
        while not crediting.done():
            self._woken.clear()
            batches = (
                reader.poll(options.READ_REPLY_EVENTS, min(self._window_bytes, options.READ_REPLY_BYTES), True)
                if self._window_bytes > 0
                else ()
            )
            if batches:
                reply = pb.ReadReply(batches=map(bytes, batches))
                self._window_bytes -= sum(map(charge_of, batches))
                self._told = batches[-1].next_offset
                self._tell_position(reader, reply)
                await self._context.write(_encoded(reply))
            elif reader.error is not None:
                error = reader.error
                failure = failure_field(error.kind, error.retriable, error.detail, error.leader)
                await self._context.write(_encoded(pb.ReadReply(failure=failure)))
                return
            elif reader.position > self._told:  # all that came was aborted: a draining reader has to know
                reply = pb.ReadReply()
                self._tell_position(reader, reply)
                await self._context.write(_encoded(reply))
            else:
                await self._woken.wait()

    def _tell_position(self, reader: ServedReader, reply: pb.ReadReply) -> None:
        if reader.position > self._told:
            self._told = reply.next_offset = reader.position

    async def _read_credit(self) -> None:
        try:
            while (request := await next_request(self._context, pb.ReadRequest)) is not EOF:
                self._window_bytes += request.credit_bytes
                self._woken.set()
        except grpc.aio.AbortError:
            return  # nonsense instead of credit: the caller has been told, the call is over
        finally:
            self._woken.set()  # the client has gone: let `_serve` see it


def _is_no_member(node: int) -> str:
    return f"node {node} is announced, and not registered yet: it may register, and ask for nothing else before"


def _nobody_joins(active: int) -> str:
    return (
        f"the cluster runs version {active}, in which no node joins: `holdfast cluster finalize` after the upgrade of "
        "all nodes; a node of this cluster that lost its data starts without cluster.join until then"
    )


def decode_start(request: pb.ReadOpen, types: PartitionTypes) -> Any:
    kind = request.WhichOneof("start")
    if kind == "after_offset":
        return types.After(request.after_offset)
    if kind == "after_time_ms":
        return types.AfterTime(request.after_time_ms, request.from_offset - 1)
    return types.Earliest() if kind == "earliest" else types.Latest()


def owner_of(request: pb.ReadOpen, types: PartitionTypes) -> Any:
    return types.ReaderClaim(request.owner_key, request.owner_claim) if request.owner_key else None


def _encoded(message: pb.ReadReply) -> bytes:
    return message.SerializeToString()
