"""Whatever connects to the port between nodes, the nodes go on as before."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
import pytest_asyncio

from cluster.raft import RaftMessage
from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.grpc_calls.methods import execute_call, info_call
from cluster.rpc.handshake import METADATA_KEY, hello_to
from cluster.rpc.raft_transport.errors import StreamRefused
from cluster.rpc.raft_transport.frame_writer import FRAME_HELLO, submessage
from cluster.rpc.refusal_log import LINES, REASON_CHARACTERS, TOO_MANY, WHY, Refusals
from cluster.rpc.rpc_pb2 import Hello
from cluster.versions import NEWEST
from tests.unit.rpc.support import TestNode, cluster_of, questions, stream_to, until

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[dict[int, TestNode]]:
    async with cluster_of(1, 2) as nodes:
        yield nodes


async def unharmed(nodes: dict[int, TestNode]) -> None:
    """Nobody went down, and messages still pass."""
    assert nodes[1].events == [("up", 2)]
    assert nodes[2].events == [("up", 1)]
    before = len(nodes[2].heard)
    nodes[1].network.send(2, [RaftMessage(group=77)])
    await until(lambda: len(nodes[2].heard) == before + 1, "a message after the stranger")


def client_hello() -> bytes:
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="holdfast.invalid")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def garbage() -> bytes:
    seed = random.randrange(1 << 32)
    print(f"seed of the garbage: {seed}")
    return random.Random(seed).randbytes(100_000)


@pytest.mark.parametrize(
    "sends",
    [
        garbage,
        client_hello,
        lambda: b"AMQP\x00\x01\x00\x00",
        lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        lambda: HTTP2_PREFACE + garbage(),
        lambda: HTTP2_PREFACE + EMPTY_SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + garbage(),
    ],
    ids=["garbage", "tls", "amqp", "http1", "preface and garbage", "an enormous frame"],
)
async def test_foreign_bytes(pair: dict[int, TestNode], sends: Callable[[], bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", pair[2].network.port)
    writer.write(sends())
    try:
        async with asyncio.timeout(40):
            while await reader.read(1 << 16):
                pass
    except ConnectionError:
        pass
    writer.close()
    await unharmed(pair)


async def test_half_open_connections(pair: dict[int, TestNode]) -> None:
    """Two hundred that say nothing, and one that stops in the middle of its greeting."""
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", pair[2].network.port) for _ in range(201)))
    opened[0][1].write(HTTP2_PREFACE[:11])
    await unharmed(pair)
    for _, writer in opened:
        writer.close()


@pytest_asyncio.fixture
async def channel(pair: dict[int, TestNode]) -> AsyncIterator[grpc.aio.Channel]:
    opened = grpc.aio.insecure_channel(f"127.0.0.1:{pair[2].network.port}")
    yield opened
    await opened.close(None)


HELLOS = {
    "none": None,
    "another cluster": hello_to(2, cluster="prod", self_id=1),
    "a node that is none": hello_to(2, cluster="dev", self_id=9),
    "another node dialled": hello_to(3, cluster="dev", self_id=1),
    "another protocol": Hello(cluster="dev", node=1, dialled=2, protocol=NEWEST + 1),
}
"""Of callers who have no certificate to show: this is a cluster without TLS."""


async def refused(ask: Callable[[], Awaitable[Any]]) -> grpc.aio.AioRpcError:
    """How the node refuses a call. One that it ends before gRPC has sent the question fails here, in the client's own
    core, which does not say then what the node has said: such a call is made again."""
    for _ in range(10):
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await ask()
        if refusal.value.details() != "Internal error from Core":
            break
    return refusal.value


@pytest.mark.parametrize("what", HELLOS)
async def test_each_call_is_refused_and_teaches_nothing(
    pair: dict[int, TestNode], channel: grpc.aio.Channel, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "holdfast.rpc")
    references = set()
    for call, ask in questions(channel, HELLOS[what]).items():
        error = await refused(ask)
        told = error.details() or ""
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION, call
        assert re.fullmatch(WHY + "[0-9a-f]{8}", told), (call, told)
        assert error.trailing_metadata() == grpc.aio.Metadata(), call
        assert [line for line in caplog.messages if told[-8:] in line and "node 2" in line], call
        references.add(told[-8:])
    assert len([line for line in caplog.messages if line.startswith("refused")]) == len(references), "a line for each"
    assert len(references) < 3
    assert pair[2].executed == []
    await unharmed(pair)


async def test_a_hello_that_cannot_be_read(pair: dict[int, TestNode], channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=WHY):
        await info_call(channel)(pb.InfoRequest(group=1), metadata=((METADATA_KEY, b"\xff\xff"),))
    await unharmed(pair)


def test_lines_about_strangers_are_bounded_and_reasons_cut(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    refusals = Refusals(lambda: now_s)
    for number in range(LINES + 7):
        told = refusals.told(f"reason {number} " + "x" * 5000, "a stranger")
    assert told == WHY + TOO_MANY
    assert len(caplog.messages) == LINES
    assert max(map(len, caplog.messages)) < REASON_CHARACTERS + 100
    again = refusals.told("reason 3 " + "x" * 5000, "a stranger")
    assert again.removeprefix(WHY) in caplog.messages[3], "that has a line"
    now_s = 11.0
    assert TOO_MANY not in refusals.told("another reason", "a stranger")
    assert "refused: 7 callers more" in caplog.messages[LINES]
    assert refusals.told("the reason", "a node", proven=True) == "the reason"


async def test_a_stream_without_a_hello_or_with_garbage_for_one(
    pair: dict[int, TestNode], channel: grpc.aio.Channel
) -> None:
    for first in (b"", b"\xff\xff\xff", submessage(FRAME_HELLO, pb.Hello())):
        call = stream_to(pair[2].network.port)
        await call.write(first)
        assert isinstance(await call.wait_over(), StreamRefused)
    await unharmed(pair)


async def test_an_unknown_method(pair: dict[int, TestNode], channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await channel.unary_unary("/cluster.rpc.Admin/Destroy")(b"")
    assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await unharmed(pair)


async def test_a_message_beyond_the_limit_ends_its_stream(pair: dict[int, TestNode]) -> None:
    channel = grpc.aio.insecure_channel(
        f"127.0.0.1:{pair[2].network.port}", options=[("grpc.max_send_message_length", -1)]
    )
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await execute_call(channel)(pb.AdminRequest(command=bytes(65 << 20)))
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await channel.close(None)
    await unharmed(pair)
