"""Commands reach the metadata group from any node, once, also when its leader falls meanwhile.

Three nodes in one process: real MultiRafts, real gRPC between them, disks in memory.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.metadata import (
    CommandProposer,
    MetadataMachine,
    MetadataView,
    NotConfirmed,
    Ok,
    Refusal,
    create_log,
    delete_log,
    register_node,
)
from cluster.metadata.codec import encode_result
from cluster.raft import METADATA_GROUP, MultiRaft, NotLeader, RaftOptions
from cluster.rpc import PeerNetwork
from node import peer_codec
from node.raft_loop import RaftLoop, TurnInput
from tests.ports import free_port
from tests.simulation.world.disk import SimDisk
from tests.unit.rpc.support import until


class Monotonic:
    def monotonic(self) -> float:
        return time.monotonic()


class Member:
    """One node, as far as metadata goes."""

    def __init__(self, node: int, addresses: dict[int, str]) -> None:
        self.node = node
        self.failures: list[BaseException] = []
        self.executions = 0
        disk, clock = SimDisk(), Monotonic()
        self.multiraft = MultiRaft(
            node, disk, clock, random.Random(), lambda to, m: self.network.send(to, m), RaftOptions()
        )
        machine = MetadataMachine()
        self.view = MetadataView(machine)
        self.group = self.multiraft.open_group(METADATA_GROUP, sorted(addresses), machine)
        self.coordinator = CommandProposer(
            self.group, node, lambda to, command, timeout_s: self.network.client(to).execute(command, timeout_s)
        )
        self.group.on_role_change = lambda _: self.coordinator.leader_changed()
        self.network = PeerNetwork(
            node,
            "dev",
            addresses[node],
            addresses,
            on_messages=self.multiraft.deliver,
            on_up=self._up,
            on_down=self._down,
            types=peer_codec,
            partitions=self,
            admin=self,
        )
        self.loop = RaftLoop(self.multiraft, disk, clock, TurnInput(), self.failures.append)

    def partition(self, group: int) -> None:
        return None

    async def execute(self, command: bytes) -> bytes:
        self.executions += 1
        return await self.coordinator.execute_here(command)

    def _up(self, node: int) -> None:
        self.multiraft.peer_up(node)
        self.loop.wake()

    def _down(self, node: int) -> None:
        self.multiraft.peer_down(node)
        self.loop.wake()

    async def start(self) -> None:
        self.loop.start()
        await self.network.start()

    async def stop(self) -> None:
        await self.loop.stop()
        await self.network.stop()
        assert self.failures == []


@asynccontextmanager
async def members(*nodes: int, start: tuple[int, ...] = ()) -> AsyncIterator[dict[int, Member]]:
    addresses = {node: f"127.0.0.1:{free_port()}" for node in nodes}
    every = {node: Member(node, addresses) for node in start or nodes}
    for member in every.values():
        await member.start()
    try:
        yield every
    finally:
        for member in every.values():
            await member.stop()


async def leader_of(every: dict[int, Member]) -> Member:
    await until(lambda: any(member.group.is_leader for member in every.values()), "a leader")
    return next(member for member in every.values() if member.group.is_leader)


async def test_every_node_can_have_a_command_done_and_all_see_it() -> None:
    async with members(1, 2, 3) as every:
        for member in every.values():
            command = register_node(member.node, f"h:{member.node}", {"default": f"h:{member.node}0"})
            assert await member.coordinator.execute(command) == Ok()
        for member in every.values():
            result = await member.coordinator.execute(create_log(f"log-{member.node}", now_ms=1, partitions=2))
            assert isinstance(result, Ok)
            assert result.log is not None
            assert len(result.log.partitions) == 2
        again = await every[2].coordinator.execute(create_log("log-1", now_ms=1, partitions=2))
        assert isinstance(again, Refusal)
        assert again.code == "already-exists"
        names = {"log-1", "log-2", "log-3"}
        await until(lambda: all(set(member.view.logs) == names for member in every.values()), "all views")
        assert all(member.view.logs == every[1].view.logs for member in every.values())


async def test_commands_under_way_when_the_leader_falls_are_done_once() -> None:
    async with members(1, 2, 3) as every:
        for node in every:
            await every[node].coordinator.execute(register_node(node, f"h:{node}", {}))
        leader = await leader_of(every)
        others = [member for member in every.values() if member is not leader]
        asked = [
            asyncio.ensure_future(others[i % 2].coordinator.execute(create_log(f"log-{i}", now_ms=1, replicas=2)))
            for i in range(20)
        ]
        await until(lambda: leader.executions >= 1, "the first to arrive")
        await leader.stop()
        results = await asyncio.gather(*asked)
        assert all(isinstance(result, Ok) for result in results), results
        await until(lambda: all(len(member.view.logs) == 20 for member in others), "both views")
        assert others[0].view.logs == others[1].view.logs
        groups = [p.group for log in others[0].view.logs.values() for p in log.partitions]
        assert len(set(groups)) == 20


async def test_without_a_majority_the_caller_hears_it_in_time() -> None:
    async with members(1, 2, 3, start=(1,)) as every:
        started = time.monotonic()
        result = await every[1].coordinator.execute(delete_log("x"), timeout_s=1.0)
        assert isinstance(result, Refusal)
        assert (result.code, result.retriable) == ("unavailable", True)
        assert "majority" in result.message
        assert time.monotonic() - started < 6.0, "a second is what it may take"


async def test_a_node_that_is_cut_off_says_at_once_that_it_waits_in_vain() -> None:
    async def nobody(to: int, command: bytes, timeout_s: float) -> bytes:
        raise AssertionError("there is no leader to ask")

    async with members(1, 2, 3, start=(1,)) as every, asyncio.timeout(60):
        proposer = CommandProposer(every[1].group, 1, nobody, None, lambda: True)
        result = await proposer.execute(delete_log("x"), timeout_s=3600)
        assert isinstance(result, Refusal)
        assert result.code == "unavailable"
        with pytest.raises(NotConfirmed):
            await proposer.current(timeout_s=3600)


async def test_a_leader_that_has_lost_its_followers_does_not_promise() -> None:
    async with members(1, 2, 3) as every:
        leader = await leader_of(every)
        for member in every.values():
            if member is not leader:
                await member.stop()
        result = await leader.coordinator.execute(delete_log("x"), timeout_s=2.0)
        assert isinstance(result, Refusal)
        assert result.code in ("unknown", "unavailable")


async def test_a_node_that_does_not_lead_says_who_does_and_garbage_is_an_answer() -> None:
    async with members(1, 2, 3) as every:
        leader = await leader_of(every)
        follower = next(member for member in every.values() if member is not leader)
        await until(lambda: follower.group.leader == leader.node, "the follower to know")
        with pytest.raises(NotLeader) as refusal:
            await follower.coordinator.execute_here(delete_log("x").SerializeToString())
        assert refusal.value.leader == leader.node
        assert b"invalid-argument" in await leader.coordinator.execute_here(b"\xff\xff\xff")


class Outside:
    """A group in which this node has no place."""

    is_leader = False
    leader = None

    def propose(self, data: bytes, done: object) -> int:
        raise AssertionError("it does not lead")

    def read_index(self, done: object) -> None:
        raise AssertionError("it does not lead")

    when_applied = propose  # type: ignore[assignment]


async def test_who_has_no_place_in_the_group_asks_the_others_and_follows_their_word() -> None:
    asked: list[int] = []

    async def forward(node: int, _: bytes, __: float) -> bytes:
        asked.append(node)
        if node == 3:
            return encode_result(Ok())
        raise NotLeader(3 if node == 2 else None)

    proposer = CommandProposer(Outside(), 4, forward, others=lambda: [1, 2, 3])
    assert isinstance(await proposer.execute(register_node(4, "h:1", {}, joins=True)), Ok)
    assert asked in ([2, 3], [1, 2, 3])
