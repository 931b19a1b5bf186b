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
        tx.commit_offsets(consumer)


async def test_what_the_consumer_has_lost_rolls_back(nodes: Nodes) -> None:
    source, target = await filled(nodes, partitions=1, count=10), await nodes.log(1)

    def work() -> None:
        given: dict[str, Any] = {"group": "g", "start": Start.earliest(), "partitions": ["0"]}
        with (
            sync.ProducerClient(nodes.servers, target) as producer,
            sync.ConsumerClient(nodes.servers, source, epoch=1, **given) as first,
        ):
            while len(first.receive()) < 1:
                pass
            with sync.ConsumerClient(nodes.servers, source, epoch=2, **given) as second:
                while len(second.receive()) < 1:
                    pass
                with pytest.raises(OwnershipLostError):
                    list(first.batches())
                with pytest.raises(OwnershipLostError):
                    count_twice(producer, first)

    await asyncio.to_thread(work)
    assert await bodies(nodes, target) == []
