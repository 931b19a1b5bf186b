"""Single questions: how far a partition goes, and commands for the metadata group."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import grpc
import pytest

from cluster.raft import NotLeader
from cluster.rpc import GroupUnknown, NotLeaderHere, Unavailable
from tests.batches import batch_of
from tests.ports import free_port
from tests.unit.rpc.support import WAIT_S, CutWire, MemoryPartition, TestNode, cluster_of, until

GROUP = 17


async def test_info_says_of_an_empty_partition_that_it_has_no_offsets() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        info = await nodes[1].network.client(2).info(GROUP)
        assert info == await partition.info()
        assert (info.earliest_offset, info.latest_offset, info.next_offset, info.leader) == (None, None, 0, None)
        partition.append(batch_of([b"a", b"b"]), lambda _: None)
        info = await nodes[1].network.client(2).info(GROUP)
        assert info == await partition.info()
        assert (info.earliest_offset, info.latest_offset, info.next_offset) == (0, 1, 2)


async def test_info_of_an_unknown_group_or_from_a_dead_node_is_typed() -> None:
    async with cluster_of(1, 2) as nodes:
        with pytest.raises(GroupUnknown, match="no replica of group 99"):
            await nodes[1].network.client(2).info(99)
        await nodes[2].network.stop()
        with pytest.raises(Unavailable):
            await nodes[1].network.client(2).info(GROUP)


async def test_a_command_is_executed_by_the_leader_and_refused_by_others() -> None:
    async with cluster_of(1, 2) as nodes:
        assert await nodes[1].network.client(2).execute(b"create") == b"done:create"
        assert nodes[2].executed == [b"create"]
        nodes[2].admin_leader = 3
        with pytest.raises(NotLeaderHere) as refusal:
            await nodes[1].network.client(2).execute(b"create")
        assert refusal.value.leader == 3
        assert isinstance(refusal.value, NotLeader)
        nodes[2].admin_leader = None
        with pytest.raises(NotLeaderHere) as refusal:
            await nodes[1].network.client(2).execute(b"create")
        assert refusal.value.leader is None


async def test_a_node_that_is_not_there_did_certainly_nothing() -> None:
    node = TestNode(1, {1: f"127.0.0.1:{free_port()}", 2: f"127.0.0.1:{free_port()}"})
    await node.network.start()
    try:
        with pytest.raises(Unavailable) as failure:
            await node.network.client(2).execute(b"create")
        assert not failure.value.sent
    finally:
        await node.network.stop()
    with pytest.raises(Unavailable, match="stopping"):
        await node.network.client(2).execute(b"create")


async def test_nobody_joins_before_the_version_in_which_nodes_join_is_active() -> None:
    """What the one that joins writes and says is of that version: who hears it would go on to it."""
    async with cluster_of(1, 2) as nodes:
        nodes[2].network._who.active = lambda: 14
        with pytest.raises(Unavailable, match="runs version 14, in which no node joins"):
            await nodes[1].network.client(2).join()


async def test_who_asks_a_node_that_is_forgotten_meanwhile_hears_so_and_goes_on() -> None:
    """A task that asks other nodes for as long as this one runs must not end with the first that leaves."""
    asked: list[bytes] = []

    async def silent(command: bytes) -> NoReturn:
        asked.append(command)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with cluster_of(1, 2) as nodes:
        nodes[2].execute = silent  # type: ignore[method-assign]
        asking = asyncio.ensure_future(nodes[1].network.client(2).execute(b"create", WAIT_S))
        await until(lambda: asked, "the question to arrive")
        nodes[1].network.forget_peer(2)
        with pytest.raises(Unavailable, match="closed here") as failure:
            await asking
        assert failure.value.sent


async def test_who_waits_for_a_connection_to_a_node_that_is_forgotten_meanwhile_has_asked_nothing() -> None:
    async with CutWire(free_port()) as wire:
        wire.freeze()
        node = TestNode(1, {1: f"127.0.0.1:{free_port()}", 2: f"127.0.0.1:{wire.port}"})
        client: Any = node.network.client(2)
        asking = asyncio.ensure_future(client.execute(b"create", WAIT_S))
        await until(lambda: client._channel is not None, "the question to wait for a connection")
        await client.close()
        with pytest.raises(Unavailable) as failure:
            await asking
        assert not failure.value.sent


async def test_who_is_cancelled_as_the_call_ends_is_cancelled() -> None:
    """A node that stops waits for its tasks, and one that had heard of nothing but a lost call would ask again."""

    async def call() -> NoReturn:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            nothing: Any = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing) from None
        raise AssertionError("nobody sets it")

    node = TestNode(1, {1: f"127.0.0.1:{free_port()}", 2: f"127.0.0.1:{free_port()}"})
    client: Any = node.network.client(2)
    asking = asyncio.ensure_future(client._reply(call()))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
