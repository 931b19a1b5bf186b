"""Idempotent producers through another node: their numbers, their opening, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.rpc import GroupUnknown, Unavailable
from node.partition.api import Appended, Failed, ProducerOpened, ProducerRequest
from node.partition.idempotence.producer_state import FORGOTTEN
from tests.batches import numbered
from tests.unit.rpc.support import MemoryPartition, cluster_of, until

GROUP = 17


async def test_where_records_stand_crosses_the_wire() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.duplicates, partition.places = 2, ((1, 40), (1, 7))
        answers: list[Any] = []
        nodes[1].network.client(2).append(GROUP, numbered([b"a", b"b"], 7, 0, 0), answers.append)
        await until(lambda: answers, "the answer")
        assert answers == [Appended(0, 1001, 2, ((1, 40), (1, 7)))]


async def test_a_place_that_is_forgotten_crosses_the_wire() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.places = ((1, FORGOTTEN), (1, 7))
        client = nodes[1].network.client(2)
        answers: list[Any] = []
        client.append(GROUP, numbered([b"a", b"b"], 7, 0, 0), answers.append)
        await until(lambda: answers, "the answer")
        partition.offset, partition.places = FORGOTTEN, ()
        client.append(GROUP, numbered([b"a"], 7, 0, 0), answers.append)
        await until(lambda: len(answers) == 2, "the answers")
        assert [(one.base_offset, one.places) for one in answers] == [(0, ((1, FORGOTTEN), (1, 7))), (FORGOTTEN, ())]


async def test_refusals_tell_how_much_is_known() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.failure = Failed("out_of_order", False, "number 9 was used before", known=3)
        answers: list[Any] = []
        nodes[1].network.client(2).append(GROUP, numbered([b"a"], 7, 0, 9), answers.append)
        await until(lambda: answers, "the answer")
        assert answers == [partition.failure]


@pytest.mark.parametrize(
    "wish",
    [
        ProducerRequest(),
        ProducerRequest(7),
        ProducerRequest(7, 3, 99),
        ProducerRequest(None, 0, 0),
        ProducerRequest(renews=True),
    ],
)
async def test_a_producer_is_opened_by_the_other_node(wish: ProducerRequest) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        wanted = ProducerOpened(wish.producer_id or 2**62, wish.epoch or 0, 2**31 - 1)
        assert await nodes[1].network.client(2).open_producer(GROUP, wish) == wanted
        partition.failure = Failed("producer_stolen", False, "epoch 4 was opened")
        assert await nodes[1].network.client(2).open_producer(GROUP, wish) == partition.failure
        assert partition.wishes[-1] == wish


async def test_a_node_that_is_away_or_has_no_replica_opened_nothing() -> None:
    async with cluster_of(1, 2) as nodes:
        client = nodes[1].network.client(2)
        for _ in range(2):
            failed = await client.open_producer(GROUP, ProducerRequest())
            assert isinstance(failed, Failed)
            assert (failed.kind, failed.retriable) == ("not_leader", True)
            await nodes[2].network.stop()


async def test_producers_are_listed_by_the_other_node() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        client = nodes[1].network.client(2)
        assert await client.producers(GROUP, -1, 100) == await partition.producers(-1, 100)
        assert await client.producers(GROUP, -1, 1) == await partition.producers(-1, 1)
        assert await client.producers(GROUP, 5, 100) == await partition.producers(5, 100)
        with pytest.raises(GroupUnknown):
            await client.producers(99, -1, 1)
        await nodes[2].network.stop()
        with pytest.raises(Unavailable):
            await client.producers(GROUP, -1, 1)
