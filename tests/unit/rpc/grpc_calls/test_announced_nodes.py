"""A node that is announced and no member yet: it may join, and is asked to do nothing else first."""

from __future__ import annotations

import grpc
import pytest

from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.grpc_calls.methods import execute_call, join_call
from cluster.rpc.handshake import METADATA_KEY, Hello, hello_to
from tests.unit.rpc.support import TestNode, cluster_of, questions


def _announce_nine(member: TestNode) -> None:
    member.network._who.announced = lambda: [9]


def _as_nine() -> Hello:
    return hello_to(2, cluster="dev", self_id=9)


async def test_it_may_register_itself_and_nothing_else() -> None:
    async with cluster_of(1, 2, prepare=_announce_nine) as nodes:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{nodes[2].network.port}")
        asked = questions(channel, _as_nine())
        del asked["Raft messages"]  # those are refused to everybody on this way
        for call, ask in asked.items():
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await ask()
            assert refusal.value.code() is grpc.StatusCode.FAILED_PRECONDITION, call
        assert nodes[2].executed == []
        assert nodes[2].asked_to_hand_over == []
        metadata = ((METADATA_KEY, _as_nine().SerializeToString()),)
        with pytest.raises(grpc.aio.AioRpcError):
            await execute_call(channel)(pb.AdminRequest(command=b"register 1"), metadata=metadata)
        reply = await execute_call(channel)(pb.AdminRequest(command=b"register 9"), metadata=metadata)
        assert reply.result == b"done:register 9"
        assert nodes[2].executed == [b"register 9"]
        await channel.close(None)


async def test_it_is_told_in_the_log_why(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster_of(1, 2, prepare=_announce_nine) as nodes:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{nodes[2].network.port}")
        with pytest.raises(grpc.aio.AioRpcError):
            await questions(channel, _as_nine())["report"]()
        assert any("node 9 is announced, and not registered yet" in line for line in caplog.messages)
        await channel.close(None)


async def test_it_may_ask_to_join() -> None:
    async with cluster_of(1, 2, prepare=_announce_nine) as nodes:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{nodes[2].network.port}")
        metadata = ((METADATA_KEY, _as_nine().SerializeToString()),)
        with pytest.raises(grpc.aio.AioRpcError, match="in which no node joins"):  # of an older version
            await join_call(channel)(pb.JoinRequest(), metadata=metadata)
        await channel.close(None)


async def test_a_member_may_ask_whatever_is_announced() -> None:
    async with cluster_of(1, 2, prepare=_announce_nine) as nodes:
        assert await nodes[1].network.client(2).execute(b"anything") == b"done:anything"
