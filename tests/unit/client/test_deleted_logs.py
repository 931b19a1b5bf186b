"""A client keeps to the log that it met: deleted is deleted, whatever has the name afterwards."""

from __future__ import annotations

import pytest

from holdfast.client import ConsumerClient, LogDeletedError, ProducerClient, Start
from tests.unit.client.support.real_cluster import Nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def remade(nodes: Nodes, log: str) -> None:
    """Deleted and made again before anybody could look."""
    broker = nodes.cluster.broker(1)
    await broker.admin("log.delete", {"name": log})
    await broker.admin("log.create", {"name": log, "partitions": 2, "replicas": 3})


async def confirmed(producer: ProducerClient, body: bytes, partition: str) -> None:
    await (await producer.send(body, partition=partition))


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
async def test_a_producer_does_not_go_on_into_a_log_made_anew(nodes: Nodes, idempotent: bool) -> None:
    log = await nodes.log(2)
    async with ProducerClient(nodes.servers, log, **({"idempotent": True} if idempotent else {})) as producer:
        await confirmed(producer, b"one", "0")
        await remade(nodes, log)
        with pytest.raises(LogDeletedError) as told:
            await confirmed(producer, b"two", "0")
        assert not told.value.retriable
        with pytest.raises(LogDeletedError):  # to another partition, over another link: the same log is meant
            await confirmed(producer, b"three", "1")
    await nodes.cluster.settled_leader(log)
    await nodes.cluster.settled_leader(log, "1")
    assert await nodes.bodies(log, "0") == []
    assert await nodes.bodies(log, "1") == []


async def test_a_consumer_is_told_that_its_log_is_gone(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ConsumerClient(nodes.servers, log, start=Start.earliest()) as consumer:
        async with ProducerClient(nodes.servers, log) as producer:
            await producer.send(b"one")
        assert [event.body for event in await consumer.receive(timeout_s=20)] == [b"one"]
        await remade(nodes, log)
        with pytest.raises(LogDeletedError):
            await consumer.receive(timeout_s=20)


async def test_a_member_of_a_group_is_told_and_its_claim_is_none_in_the_new_log(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ConsumerClient(nodes.servers, log, start=Start.earliest(), group="g") as old:
        async with ProducerClient(nodes.servers, log) as producer:
            await producer.send(b"one")
        (event,) = await old.receive(timeout_s=20)
        claim = old.assignment["0"]
        which = old._network.log(log).value
        await remade(nodes, log)
        with pytest.raises(LogDeletedError):
            await old.receive(timeout_s=20)
    await nodes.cluster.settled_leader(log)
    broker = nodes.cluster.broker(1)
    with pytest.raises(Exception, match="deleted") as refused:
        await broker.admin(
            "group.commit",
            {"name": log, "group": "g", "partition": 0, "offset": event.offset, "claim": claim, "log": which},
        )
    assert getattr(refused.value, "code", "") == "not-owner"


async def test_a_new_client_uses_the_new_log(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer:
        await producer.send(b"one")
    await remade(nodes, log)
    async with ProducerClient(nodes.servers, log) as producer:
        await confirmed(producer, b"two", "0")
    assert await nodes.bodies(log) == [b"two"]
