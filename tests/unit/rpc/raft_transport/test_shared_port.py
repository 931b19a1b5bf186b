"""One port for streams and for calls, and for whoever comes with something else."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import socket
import struct
from unittest import mock

import grpc
import pytest

from cluster.rpc import options, shared_port
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.api import Unavailable
from cluster.rpc.grpc_calls.methods import callers_call
from cluster.rpc.handshake import METADATA_KEY, hello_to
from cluster.rpc.raft_transport.errors import StreamLost, StreamRefused
from cluster.rpc.raft_transport.frame_writer import FRAME_HELLO, submessage
from cluster.rpc.raft_transport.stream_protocol import DiallerEnd
from cluster.rpc.shared_port import GREETING, host_and_port
from cluster.versions import OLDEST
from tests.unit.rpc.support import SOON_S, MemoryPartition, TestNode, cluster_of, stream_to, until


async def ends(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other end has closed the connection."""
    async with asyncio.timeout(SOON_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("said", [b"", GREETING[:5]], ids=["nothing", "half a greeting"])
async def test_who_does_not_say_what_it_wants_is_sent_away(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    async with cluster_of(1, 2) as nodes:
        monkeypatch.setattr(options, "HELLO_TIMEOUT_S", 0.3)
        reader, writer = await asyncio.open_connection("127.0.0.1", nodes[1].network.port)
        writer.write(said)
        assert await ends(reader) == b""
        writer.close()
        await until(lambda: nodes[1].network._shared_port.connections == 1, "the peer's stream only", SOON_S)


async def test_a_greeting_in_pieces_is_one() -> None:
    async with cluster_of(1, 2) as nodes:
        reader, writer = await asyncio.open_connection("127.0.0.1", nodes[1].network.port)
        for byte in GREETING:
            writer.write(bytes((byte,)))
            await writer.drain()
        assert await reader.readexactly(len(GREETING)) == GREETING
        writer.close()


async def test_what_comes_before_it_is_handed_on_is_handed_on_once_and_whole() -> None:
    """The event loop may read more of a connection before whoever takes it over has its turn."""
    async with cluster_of(1) as nodes:
        got = bytearray()

        class Grpc(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                got.extend(data)

        path, connections = "\0" + secrets.token_hex(8), []

        def connected() -> Grpc:
            connections.append(Grpc())
            return connections[-1]

        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            server = await asyncio.get_running_loop().create_unix_server(connected, sock=listening)
            nodes[1].network._shared_port.grpc_address = f"unix-abstract:{path[1:]}"
            read = shared_port._Arrival.data_received

            def in_pieces(self: shared_port._Arrival, data: bytes) -> None:
                for byte in data:
                    read(self, bytes((byte,)))

            with mock.patch.object(shared_port._Arrival, "data_received", in_pieces):
                _, writer = await asyncio.open_connection("127.0.0.1", nodes[1].network.port)
                writer.write(b"PRI * HTTP/2.0\r\n")
                await until(lambda: got, "what was said", SOON_S)
                writer.write(b"more")
                await until(lambda: got.endswith(b"more"), "the rest", SOON_S)
            assert got == b"PRI * HTTP/2.0\r\nmore"
            assert len(connections) == 1
            writer.close()
            server.close()


async def test_more_behind_a_greeting_than_it_is_no_stream() -> None:
    """It goes to gRPC, which knows no such protocol."""
    async with cluster_of(1, 2) as nodes:
        reader, writer = await asyncio.open_connection("127.0.0.1", nodes[1].network.port)
        writer.write(GREETING + b"\0\0\0\0\0")
        assert GREETING not in await ends(reader)
        writer.close()
        assert nodes[1].events == [("up", 2)]


async def test_a_node_of_an_older_protocol_is_told_so() -> None:
    """Its stream is a gRPC call."""
    async with cluster_of(1, 2) as nodes:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{nodes[1].network.port}")
        call = channel.stream_unary("/cluster.rpc.Peers/Link")()
        hello = hello_to(1, cluster="dev", self_id=2)
        hello.protocol, hello.oldest, hello.newest = OLDEST - 1, 0, 0
        await call.write(submessage(FRAME_HELLO, hello))
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call
        assert refusal.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        call = channel.stream_unary("/cluster.rpc.Peers/Link")()
        await call.write(submessage(FRAME_HELLO, hello_to(1, cluster="dev", self_id=2)))
        with pytest.raises(grpc.aio.AioRpcError, match="no gRPC calls"):
            await call
        await channel.close(None)


async def test_who_dials_something_else_is_told_that_it_is_none() -> None:
    async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"AMQP\0\1\0\0")
        await writer.drain()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    call = stream_to(server.sockets[0].getsockname()[1])
    with pytest.raises(StreamLost, match="no Holdfast node of this version"):
        await call.write(b"")
    call.hang_up()
    server.close()


@pytest.mark.parametrize("others", [1, 5], ids=["of one host", "of a host each"])
async def test_a_flood_of_connections_pushes_out_no_stream_of_a_node(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(options, "HELLO_TIMEOUT_S", 60.0)
    async with cluster_of(1, 2) as nodes:
        monkeypatch.setattr(options, "MAX_CONNECTIONS", 4)
        port, here = nodes[1].network.port, nodes[1].network._shared_port
        await until(lambda: "127.0.0.1" in here._of_nodes, "a stream of a node", SOON_S)
        call = await asyncio.open_connection("127.0.0.1", port)  # of the node's host
        await until(lambda: here.connections == 2, "it", SOON_S)
        flood = []
        for number in range(20):
            address = f"127.0.0.{10 + number % others}"
            flood.append(await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))
        for reader, _ in flood[:18]:
            assert await ends(reader) == b""
        assert here.connections == 4
        call[1].write(GREETING)
        assert await call[0].readexactly(len(GREETING)) == GREETING
        assert nodes[1].events == [("up", 2)]
        for _, writer in [call, *flood]:
            writer.close()
        await until(lambda: here.connections == 1, "the node's stream alone", SOON_S)


async def test_who_leaves_at_once_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """Of a connection that was reset nobody can tell any more where it came from."""
    async with cluster_of(1, 2) as nodes:
        here = nodes[1].network._shared_port

        def come_and_go() -> None:
            for number in range(300):
                with socket.socket() as leaving:
                    leaving.connect(("127.0.0.1", nodes[1].network.port))
                    leaving.send((b"", GREETING, b"PRI * HTTP/2.0\r\n", GREETING + bytes(5))[number % 4])
                    leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        await asyncio.to_thread(come_and_go)
        await until(lambda: here.connections == 1, "the node's stream alone", SOON_S)
        await until(lambda: len(here._tasks) == 1, "its task alone", SOON_S)
        assert list(here._of_nodes) == ["127.0.0.1"]
        assert here._strangers == {}
        assert nodes[1].events == [("up", 2)]
        assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_who_takes_nothing_of_an_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_port, "STUCK_S", 0.2)
    async with cluster_of(1) as nodes:

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(bytes(1 << 16))
                    await writer.drain()

        path = "\0" + secrets.token_hex(8)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            server = await asyncio.start_unix_server(talk, sock=listening)
            nodes[1].network._shared_port.grpc_address = f"unix-abstract:{path[1:]}"
            with socket.create_connection(("127.0.0.1", nodes[1].network.port)) as caller:
                caller.send(b"PRI * HTTP/2.0\r\n")
                await until(lambda: nodes[1].network._shared_port.connections == 1, "it to come", SOON_S)
                await until(lambda: nodes[1].network._shared_port.connections == 0, "it to be left", SOON_S)
            server.close()


async def test_too_many_connections_push_out_the_oldest_of_the_host_with_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not the node that has few."""
    async with cluster_of(1) as nodes:
        monkeypatch.setattr(options, "MAX_CONNECTIONS", 4)
        monkeypatch.setattr(options, "HELLO_TIMEOUT_S", 60.0)
        port, here = nodes[1].network.port, nodes[1].network._shared_port
        neighbour = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for reader, _ in flood[:2]:
            assert await ends(reader) == b""
        assert here.connections == 4
        for reader, writer in [neighbour, *flood[2:]]:
            writer.write(GREETING)
            assert await reader.readexactly(len(GREETING)) == GREETING
        for _, writer in [neighbour, *flood]:
            writer.close()
        await until(lambda: here.connections == 0, "nobody", SOON_S)
        assert here._strangers == {}


async def test_calls_pass_whatever_their_size_and_the_log_has_the_address_of_who_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster_of(1, 2) as nodes:
        nodes[1].groups[5] = MemoryPartition()
        appended = b""
        async with asyncio.timeout(60):
            while not appended:  # a process that gets no core for seconds takes the other one for gone
                with contextlib.suppress(Unavailable):
                    appended = await nodes[2].network.client(1).execute(bytes(10 << 20))
        assert appended == b"done:" + bytes(10 << 20)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{nodes[1].network.port}")
        metadata = ((METADATA_KEY, hello_to(1, cluster="other", self_id=2).SerializeToString()),)
        with pytest.raises(grpc.aio.AioRpcError):
            await callers_call(channel)(pb.CallersRequest(), metadata=metadata)
        await channel.close(None)
        assert re.search(r"refused \(\w+\): ipv4:127\.0\.0\.1:\d+: node 2 of cluster .other.", caplog.text)


async def test_a_call_whose_grpc_is_gone_is_closed() -> None:
    async with cluster_of(1) as nodes:
        nodes[1].network._shared_port.grpc_address = "unix-abstract:nobody-listens-here"
        reader, writer = await asyncio.open_connection("127.0.0.1", nodes[1].network.port)
        writer.write(b"PRI * HTTP/2.0\r\n")
        assert await ends(reader) == b""
        writer.close()
        await until(lambda: nodes[1].network._shared_port.connections == 0, "nothing left", SOON_S)


async def test_a_listener_that_answers_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes what it is sent, and says nothing: its process stands still, or what we hear of it is lost."""
    monkeypatch.setattr(options, "SILENCE_S", 30.0)
    async with cluster_of(1, 2) as nodes:
        monkeypatch.setattr(options, "HEARD_PERIOD_S", 60.0)
        await until(lambda: ("down", 2) in nodes[1].events, "it to be left")
        await until(lambda: "no answer for" in caplog.text, "the reason", SOON_S)


async def test_a_refused_dialler_hangs_up_and_nothing_is_left_of_it() -> None:
    async with cluster_of(1, 2) as nodes:
        port, here = nodes[1].network.port, nodes[1].network._shared_port
        before = here.connections
        call = stream_to(port)
        await call.write(submessage(FRAME_HELLO, hello_to(1, cluster="other", self_id=2)))
        assert not await call.is_let_in()
        assert isinstance(await call.wait_over(), StreamRefused)
        await until(lambda: here.connections == before, "the connection to end", SOON_S)


async def test_a_refused_dialler_that_does_not_hang_up_is_cut_off() -> None:
    async with cluster_of(1, 2) as nodes:
        reader, writer = await asyncio.open_connection("127.0.0.1", nodes[1].network.port)
        writer.write(GREETING)
        await reader.readexactly(len(GREETING))
        hello = submessage(FRAME_HELLO, hello_to(1, cluster="other", self_id=2))
        writer.write(len(hello).to_bytes(4, "little") + b"\0" + hello)
        assert b"why" in await ends(reader)
        writer.close()


@pytest.mark.parametrize(
    ("address", "meant"),
    [("127.0.0.1:7101", ("127.0.0.1", 7101)), ("[::1]:7101", ("::1", 7101)), (":7101", (None, 7101))],
)
def test_addresses(address: str, meant: tuple[str | None, int]) -> None:
    assert host_and_port(address) == meant


async def test_nodes_meet_over_ipv6() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 on loopback")
        port = probe.getsockname()[1]
    first = TestNode(1, {1: f"[::1]:{port}", 2: "127.0.0.1:1"})
    await first.network.start()
    call = DiallerEnd(1, f"[::1]:{port}", None)
    await call.write(submessage(FRAME_HELLO, hello_to(1, cluster="dev", self_id=2)))
    assert await call.is_let_in()
    call.hang_up()
    await first.network.stop()
