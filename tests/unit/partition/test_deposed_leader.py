"""A leader that was deposed and does not know: what it tells of a state that others have changed since."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from unittest import mock

import pytest

from cluster.raft import ENTRY_REGULAR, NotLeader, RaftGroup
from node.admin import consumer_groups
from node.admin.errors import AdminRequestFailed
from node.partition.api import Failed
from node.partition.consumer_groups.group_queries import GroupList, ListGroups
from node.partition.consumer_groups.group_state import Claim, Commit, Done, Owned
from node.partition.partition_replica import PartitionReplica
from node.partition.transactions.transaction_queries import ListTransactions, OpenTransactions
from node.replica_manager import NodeSightings
from node.transaction_coordinator import coordinator_commands
from node.transaction_coordinator.coordinator_queries import IdList, ListIds
from node.transaction_coordinator.coordinator_replica import CoordinatorReplica
from tests.batches import batch_of
from tests.unit.partition.support import Answers
from tests.unit.raft.cluster import GROUP, STEP_S, RaftStage

OLD, NEW = 1, 2


class Replicas(RaftStage):
    """Of a partition, or of a coordinator."""

    def __init__(self, kind: type[PartitionReplica] | type[CoordinatorReplica]) -> None:
        self._kind = kind
        super().__init__()

    def start(self, node: int, preferred: int | None = None, *, mute: bool = False) -> RaftGroup:
        self._machine = lambda: self._replica(node)
        group = super().start(node, preferred, mute=mute)
        self.machines[node].bind(group)
        return group

    def _replica(self, node: int) -> PartitionReplica | CoordinatorReplica:
        def now_ms() -> int:
            return int(self.clock.now * 1000)

        if self._kind is PartitionReplica:
            return PartitionReplica("trades-0", GROUP, self.disks[node], now_ms)

        async def nobody(_: int, question: object) -> Any:
            raise AssertionError(f"no partition is asked here: {question}")

        return CoordinatorReplica("0", GROUP, now_ms, nobody, mock.Mock(spec=NodeSightings))

    async def answer(self, asking: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(asking)
        for _ in range(3000):
            await asyncio.sleep(0)
            if task.done():
                return task.result()
            self.run(STEP_S)
        raise AssertionError("it is never answered")

    def depose(self) -> None:
        """The new leader is elected by the others; the old one hears of nobody, and has not given up yet."""
        self.isolate(OLD)
        self.elect(NEW)
        self.until(lambda: self.machines[NEW].is_leader)
        assert self.machines[OLD].is_leader

    def append(self, node: int, count: int) -> None:
        answers = Answers()
        self.machines[node].append(batch_of([b"x"] * count), answers)
        self.machines[node].flush()
        self.until(lambda: bool(answers.all))


@pytest.fixture
def partition() -> Replicas:
    stage = Replicas(PartitionReplica)
    stage.elect(OLD)
    stage.until(lambda: stage.machines[OLD].is_leader)
    return stage


@pytest.mark.parametrize("question", [ListGroups("g"), ListTransactions()])
async def test_it_lists_neither_owners_nor_transactions(partition: Replicas, question: Any) -> None:
    old, new = partition.machines[OLD], partition.machines[NEW]
    assert isinstance(await partition.answer(old.ask(Claim("g", "a", "a/link", 1))), Owned)
    partition.depose()
    assert isinstance(await partition.answer(new.ask(Claim("g", "b", "b/link", 2))), Owned)
    assert old.is_leader
    answer = await partition.answer(old.ask(question))
    assert isinstance(answer, Failed), answer
    assert (answer.kind, answer.retriable) == ("not_leader", True)


async def test_it_lists_no_producers(partition: Replicas) -> None:
    partition.depose()
    with pytest.raises(NotLeader):
        await partition.answer(partition.machines[OLD].producers(-1, 10))


async def test_advice_may_be_old(partition: Replicas) -> None:
    partition.depose()
    sent = len(partition.sent)
    assert isinstance(await partition.machines[OLD].ask(ListGroups("g", confirm=False)), GroupList)
    assert len(partition.sent) == sent


async def test_a_leader_that_others_confirm_lists_all_of_them(partition: Replicas) -> None:
    old = partition.machines[OLD]
    partition.append(OLD, 3)
    await partition.answer(old.ask(Commit("g", 0, 2)))
    listed = await partition.answer(old.ask(ListGroups("g")))
    assert isinstance(listed, GroupList)
    assert (listed.groups[0].position, listed.next_offset) == (2, 3)
    assert isinstance(await partition.answer(old.ask(ListTransactions())), OpenTransactions)
    assert await partition.answer(old.producers(-1, 10)) == []


async def test_a_group_that_is_reset_to_the_end_does_not_go_back(partition: Replicas) -> None:
    old, new = partition.machines[OLD], partition.machines[NEW]

    class Handle:
        """Of a node that takes the old one for the leader, until it has asked it."""

        partition = "0"

        async def ask(self, question: Any) -> Any:
            return await (old if isinstance(question, ListGroups) else new).ask(question)

    partition.append(OLD, 3)
    partition.depose()
    partition.append(NEW, 3)
    assert await partition.answer(new.ask(Commit("g", 0, 6))) == Done(6)
    wish = {"name": "trades", "group": "g", "to": "@latest"}
    with pytest.raises(AdminRequestFailed, match="try again") as refused:
        await partition.answer(consumer_groups.run("group.reset", wish, ["0"], lambda _: Handle()))  # type: ignore[arg-type]
    assert refused.value.code == "unavailable"
    listed = await partition.answer(new.ask(ListGroups("g")))
    assert listed.groups[0].position == 6


async def test_a_coordinator_lists_no_ids() -> None:
    stage = Replicas(CoordinatorReplica)
    stage.elect(OLD)
    stage.until(lambda: stage.machines[OLD].is_leader)
    register = coordinator_commands.Register("t", "h", 60_000, 1)
    stage.group(OLD).propose(ENTRY_REGULAR + coordinator_commands.encode(register), lambda _: None)
    stage.run(0.1)
    listed = await stage.answer(stage.machines[OLD].ask(ListIds("")))
    assert isinstance(listed, IdList)
    assert [row.name for row in listed.rows] == ["t"]
    stage.depose()
    answer = await stage.answer(stage.machines[OLD].ask(ListIds("")))
    assert isinstance(answer, Failed)
    assert (answer.kind, answer.retriable) == ("not_leader", True)
