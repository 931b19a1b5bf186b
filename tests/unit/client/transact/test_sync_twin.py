"""Transactions of programs without an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.client import OwnershipLostError, Start, sync
from tests.unit.client.support.members import filled
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies
from tests.unit.client.transact.test_offsets import committed

pytestmark = pytest.mark.asyncio(loop_scope="module")

GIVEN: dict[str, Any] = {"group": "g", "start": Start.earliest(), "partitions": ["0"]}


async def test_a_batch_of_two_members(nodes: Nodes) -> None:
    log = await nodes.log(2)

    def work() -> None:
        with (
            sync.ProducerClient(nodes.servers, log) as producer,
            sync.TransactionGroup(nodes.servers, writer="sync", batch=0, run="r") as group,
        ):
            assert group.open() == "opened"
            winners = []
            for part in ("0", "1"):
                with group.member(producer, part=part) as member:
                    member.send_batch([b"a" + part.encode(), b"b" + part.encode()], partition=part)
                    winners.append(member.prepare())
            with group.member(producer, part="2") as left:
                left.send(b"never", partition="0").result(60)
            group.commit(winners)
            assert group.open() == "already done"
            assert group.last_committed == 0
            assert group.describe()["batch"] is None

    await asyncio.to_thread(work)
    assert sorted(await bodies(nodes, log)) == [b"a0", b"a1", b"b0", b"b1"]


async def test_winners_may_be_told_while_they_are_prepared(nodes: Nodes) -> None:
    log = await nodes.log(1)

    def work() -> None:
        with (
            sync.ProducerClient(nodes.servers, log) as producer,
            sync.TransactionGroup(nodes.servers, writer="in time", batch=0, run="r") as group,
        ):
            group.open()
            with group.member(producer, part="0") as member, group.member(producer, part="1") as other:
                member.send(b"a", partition="0")
                other.send(b"b", partition="0")
                group.commit(one.prepare() for one in (member, other) if group.describe()["batch"] == 0)

    await asyncio.to_thread(work)
    assert sorted(await bodies(nodes, log)) == [b"a", b"b"]


async def test_consume_transform_produce(nodes: Nodes) -> None:
    source, target = await filled(nodes, partitions=2, count=10), await nodes.log(2)

    def work() -> dict[str, Any]:
        with (
            sync.ProducerClient(nodes.servers, target, transactional_id="sync") as producer,
            sync.ConsumerClient(nodes.servers, source, group="g", start=Start.earliest()) as consumer,
        ):
            count = 0
            while count < 20:
                events = consumer.receive()
                with producer.transaction() as tx:
                    for event in events:
                        tx.send(event.body, key=event.partition)
                    tx.commit_offsets(consumer)
                count += len(events)
            with pytest.raises(ZeroDivisionError):
                fail(producer)
            assert producer.last_transaction is None
            return consumer.commit()

    assert await asyncio.to_thread(work) == {"0": f"{9:016x}", "1": f"{9:016x}"}
    assert len(await bodies(nodes, target)) == 20
    assert await committed(nodes, source) == {"0": 10, "1": 10}


def fail(producer: sync.ProducerClient) -> None:
    with producer.transaction() as tx:
        assert tx.send(b"never", partition="0").result(60).partition == "0"
        assert tx.producer_id is not None
        raise ZeroDivisionError


def count_twice(producer: sync.ProducerClient, consumer: sync.ConsumerClient) -> None:
    with producer.transaction() as tx:
        tx.send(b"never", partition="0")
        with pytest.raises(OwnershipLostError):
            tx.commit_offsets(consumer)


def lose(consumer: sync.ConsumerClient, servers: list[str], log: str) -> None:
    """Another member takes its partition, and it hears of that."""
    with sync.ConsumerClient(servers, log, epoch=2, **GIVEN) as other:
        while not other.assignment:
            other.receive(timeout_s=0.05)
        with pytest.raises(OwnershipLostError):
            list(consumer.batches())


async def test_what_the_consumer_has_lost_rolls_back(nodes: Nodes) -> None:
    source, target = await filled(nodes, partitions=1, count=10), await nodes.log(1)

    def work() -> None:
        with (
            sync.ProducerClient(nodes.servers, target) as producer,
            sync.ConsumerClient(nodes.servers, source, epoch=1, **GIVEN) as consumer,
        ):
            assert consumer.receive()
            lose(consumer, nodes.servers, source)
            with pytest.raises(OwnershipLostError):  # by the end of the block, which could not commit
                count_twice(producer, consumer)

    await asyncio.to_thread(work)
    assert await bodies(nodes, target) == []


async def test_a_consumer_hears_what_a_transaction_has_committed(nodes: Nodes) -> None:
    source, target = await filled(nodes, partitions=1, count=10), await nodes.log(1)

    def work() -> None:
        with (
            sync.ProducerClient(nodes.servers, target) as producer,
            sync.ConsumerClient(nodes.servers, source, epoch=1, **GIVEN) as consumer,
        ):
            count = 0
            while count < 10:
                count += len(consumer.receive())
            with producer.transaction() as tx:
                tx.commit_offsets(consumer)
            lose(consumer, nodes.servers, source)
            with producer.transaction() as tx:
                tx.send(b"it has nothing to lose", partition="0")
                tx.commit_offsets(consumer)

    await asyncio.to_thread(work)
    assert await bodies(nodes, target) == [b"it has nothing to lose"]
