"""Nodes, partitions and wires for the tests of cluster.rpc: real gRPC on free loopback ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from cluster.raft import FetchRequest, NotLeader
from cluster.raft.replication.message_encoding import IncomingMessage
from cluster.rpc import LoadReport, PeerNetwork, PeerTls, options
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.grpc_calls import methods
from cluster.rpc.handshake import METADATA_KEY
from cluster.rpc.raft_transport.frame_writer import FRAME_HELLO, submessage
from cluster.rpc.raft_transport.stream_protocol import DiallerEnd
from cluster.rpc.rpc_pb2 import Hello
from holdfast.records.record_batch import Numbering, RecordBatch
from node import peer_codec
from node.partition import api
from node.partition.consumer_groups.group_state import Owned
from tests.ports import free_port

WAIT_S = 90.0
"""For what must happen at all."""
SOON_S = 15.0
"""For what is due in a second or two: a busy machine may take so long, a bound of another kind would take longer."""


def notice_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noticed all the same was noticed by something else, and at once."""
    monkeypatch.setattr(options, "KEEPALIVE_TIMEOUT_MS", 30_000)
    monkeypatch.setattr(options, "SILENCE_S", 30.0)
    monkeypatch.setattr(options, "NO_ANSWER_S", 30.0)


async def until(condition: Callable[[], Any], what: str, within_s: float = WAIT_S) -> float:
    """Waits for the condition, returns the seconds it took."""
    now = asyncio.get_running_loop().time
    start = now()
    while not condition():
        assert now() - start < within_s, f"waited {within_s} s in vain for: {what}"
        await asyncio.sleep(0.002)
    return now() - start


class MemoryPartition:
    """A partition in memory that its test controls: answers can be held back, leadership can be lost."""

    partition = "0"

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.records: list[Sequence[bytes]] = []  # of each append, as they came
        self.held: list[Callable[[], None]] | None = None  # a list: answers wait in it
        self.failure: api.Failed | None = None
        self.readers: list[MemoryReader] = []
        self.requests = 0
        self.appended: list[RecordBatch] = []
        self.begins: list[api.Begins | None] = []
        self.publisher: tuple[int, int, int] | None = None  # of what is appended
        self.duplicates = 0
        self.places: tuple[tuple[int, int], ...] = ()
        self.offset: int | None = None  # told instead of the true one
        self.wishes: list[api.ProducerRequest] = []
        self.owners: list[api.ReaderClaim | None] = []
        self.questions: list[api.Question] = []

    @property
    def next_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def append(self, batch: RecordBatch, done: api.AppendDone, begins: api.Begins | None = None) -> None:
        self.requests += 1
        self.appended.append(batch)
        self.begins.append(begins)
        if self.failure is not None:
            done(self.failure)
            return
        self.records.append(batch.messages())
        time_ms = 1000 + self.requests
        if self.publisher is not None:
            batch = batch.numbered(Numbering(*self.publisher))
        batch = batch.placed(self.next_offset, time_ms, 0, len(batch))
        self.batches.append(batch)
        for reader in list(self.readers):
            reader.wake()
        offset = batch.offset if self.offset is None else self.offset
        outcome = api.Appended(offset, time_ms, self.duplicates, self.places)
        if self.held is None:
            done(outcome)
        else:
            self.held.append(lambda: done(outcome))

    def open_reader(
        self,
        start: api.Start,
        wake: Callable[[], None],
        owner: api.ReaderClaim | None = None,
        *,
        uncommitted: bool = False,
    ) -> MemoryReader:
        reader = MemoryReader(self, start, wake, uncommitted=uncommitted)
        self.readers.append(reader)
        self.owners.append(owner)
        return reader

    async def ask(self, question: api.Question) -> api.Answer | api.Failed:
        self.questions.append(question)
        return self.failure or Owned(17, 4, -1)

    async def open_producer(self, wish: api.ProducerRequest) -> api.ProducerOpened | api.Failed:
        self.wishes.append(wish)
        return self.failure or api.ProducerOpened(wish.producer_id or 2**62, wish.epoch or 0, 2**31 - 1)

    async def producers(self, after: int, limit: int) -> list[api.ProducerInfo]:
        every = [
            api.ProducerInfo(5, 0, None, None, 1000, 0),
            api.ProducerInfo(2**63 - 1, 2**15 - 1, 2**31 - 1, 0, 1000, 7),
        ]
        return [one for one in every if one.producer_id > after][:limit]

    async def info(self) -> api.PartitionDescription:
        return api.PartitionDescription(
            partition=self.partition,
            earliest_offset=0 if self.batches else None,
            latest_offset=self.next_offset - 1 if self.batches else None,
            next_offset=self.next_offset,
            events=self.next_offset,
            bytes=sum(batch.size for batch in self.batches),
            leader=None,
            replicas=(1, 2, 3),
            last_timestamp_ms=self.batches[-1].head.time_ms if self.batches else None,
        )


class MemoryReader:
    def __init__(
        self, partition: MemoryPartition, start: api.Start, wake: Callable[[], None], *, uncommitted: bool
    ) -> None:
        self.error: api.ReadError | None = None
        self.uncommitted = uncommitted
        self.start = start
        self.wake = wake
        self.polled_bytes = 0
        self._partition = partition
        match start:
            case api.Earliest():
                self.position = 0
            case api.Latest():
                self.position = partition.next_offset
            case api.After(offset):
                self.position = offset + 1
            case api.AfterTime(timestamp_ms, offset):
                later = [batch.offset for batch in partition.batches if batch.head.time_ms > timestamp_ms]
                self.position = max(offset + 1, later[0] if later else partition.next_offset)

    def poll(self, max_events: int, max_bytes: int, whole: bool = False) -> list[RecordBatch]:
        out: list[RecordBatch] = []
        for batch in self._partition.batches:
            if batch.next_offset <= self.position or self.error is not None:
                continue
            own = batch.part(max(0, self.position - batch.offset), len(batch))
            part, size = own.within(max_events, max_bytes, whole=whole, at_least_one=not out)
            if part is None:
                break
            out.append(part)
            self.polled_bytes += size
            self.position = part.next_offset
            max_events -= len(part)
            max_bytes -= size
            if max_events <= 0 or max_bytes <= 0:
                break
        return out

    def fail(self, error: api.ReadError) -> None:
        self.error = error
        self.wake()

    def close(self) -> None:
        if self in self._partition.readers:
            self._partition.readers.remove(self)


class TestNode:
    """A PeerNetwork that records what it hears."""

    __test__ = False

    def __init__(
        self,
        node: int,
        peers: Mapping[int, str],
        *,
        cluster: str = "dev",
        dial: Mapping[int, str] | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        self.node = node
        self.events: list[tuple[str, int]] = []
        self.heard: list[tuple[int, Any]] = []  # of RaftMessages and ReceivedAppends
        self.frames = 0
        self.groups: dict[int, MemoryPartition] = {}
        self.executed: list[bytes] = []
        self.admin_leader: int | None = node
        self.load = LoadReport()
        self.asked_to_hand_over: list[tuple[list[pb.AwaitedMove], list[int]]] = []
        self.network = PeerNetwork(
            node,
            cluster,
            peers[node],
            {**peers, **(dial or {})},
            on_messages=self._on_messages,
            on_up=lambda peer: self.events.append(("up", peer)),
            on_down=lambda peer: self.events.append(("down", peer)),
            types=peer_codec,
            partitions=self,
            admin=self,
            tls=tls,
        )

    def _on_messages(self, peer: int, messages: list[IncomingMessage]) -> None:
        self.frames += 1
        self.heard += [(peer, message) for message in messages]

    def replica(self, group: int) -> MemoryPartition | None:
        return self.partition(group)

    def partition(self, group: int) -> MemoryPartition | None:
        return self.groups.get(group)

    async def execute(self, command: bytes) -> bytes:
        if self.admin_leader != self.node:
            raise NotLeader(self.admin_leader)
        self.executed.append(command)
        return b"done:" + command

    def registers(self, node: int, command: bytes) -> bool:
        return command == b"register %d" % node

    def report(self) -> LoadReport:
        return self.load

    def hand_over(self, moves: Iterable[pb.AwaitedMove], successors: Collection[int]) -> list[int]:
        self.asked_to_hand_over.append((list(moves), list(successors)))
        return [move.group for move in moves]

    async def up(self, *peers: int) -> None:
        await until(lambda: all(self.network.is_up(peer) for peer in peers), f"node {self.node} to see {peers} up")


@asynccontextmanager
async def cluster_of(
    *nodes: int, prepare: Callable[[TestNode], object] = lambda _: None
) -> AsyncIterator[dict[int, TestNode]]:
    """Started nodes that see each other up; stopped in the end."""
    addresses = {node: f"127.0.0.1:{free_port()}" for node in nodes}
    started = {node: TestNode(node, addresses) for node in nodes}
    try:
        for member in started.values():
            prepare(member)
            await member.network.start()
        for member in started.values():
            await member.up(*(other for other in nodes if other != member.node))
        yield started
    finally:
        for member in started.values():
            await member.network.stop()


class CutWire:
    """A TCP proxy between a dialler and its target that can be frozen: bytes stop, connections stay open."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def __aenter__(self) -> CutWire:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def freeze(self) -> None:
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flowing.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        self.connections += 1
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.ensure_future(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


def stream_to(port: int) -> DiallerEnd:
    """Dialled by a stranger."""
    return DiallerEnd(1, f"127.0.0.1:{port}", None)


def questions(channel: Any, hello: Hello | None) -> dict[str, Callable[[], Any]]:
    """Each call that there is, with that Hello."""
    metadata = () if hello is None else ((METADATA_KEY, hello.SerializeToString()),)
    how: dict[str, Any] = {"timeout": 30, "metadata": metadata}

    async def raft() -> None:
        call = channel.stream_unary("/cluster.rpc.Peers/Link")(timeout=30)
        await call.write(b"" if hello is None else submessage(FRAME_HELLO, hello))
        await call

    async def stream(method: Callable[[Any], Any]) -> None:
        call = method(channel)(**how)
        await call.write(b"")
        if await call.read() is grpc.aio.EOF:  # type: ignore[attr-defined]
            raise AssertionError(f"it was let in: {await call.code()}")

    def ask(method: Callable[[Any], Any], request: Any) -> Callable[[], Any]:
        return lambda: method(channel)(request, **how)

    return {
        "Raft messages": raft,
        "append": lambda: stream(methods.append_call),
        "read": lambda: stream(methods.read_call),
        "info": ask(methods.info_call, pb.InfoRequest(group=5)),
        "open_producer": ask(methods.open_producer_call, pb.OpenProducerRequest(group=5)),
        "producers": ask(methods.producers_call, pb.ProducersRequest(group=5)),
        "group": ask(methods.group_call, pb.GroupRequest(group=5)),
        "execute": ask(methods.execute_call, pb.AdminRequest(command=b"depose")),
        "confirm": ask(methods.confirm_call, pb.ConfirmRequest()),
        "replicas": ask(methods.replicas_call, pb.ReplicasRequest()),
        "callers": ask(methods.callers_call, pb.CallersRequest()),
        "report": ask(methods.report_call, pb.ReportRequest()),
        "hand_over": ask(methods.hand_over_call, pb.HandOverRequest(successors=[1])),
        "fetch": ask(methods.fetch_call, FetchRequest(group=5)),
    }
