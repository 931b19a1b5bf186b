"""Idempotent producers without a name choose partitions as other producers do: by key, by `partition=`, by turn."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.amqp.links.delivery_states import ACCEPTED
from holdfast.client import Event, UndeliveredError
from tests.unit.client.support.idempotent import idempotent
from tests.unit.client.support.patience import impatient
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.tiny_node import UNKNOWN, TinyNode

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = [f"key {number}" for number in range(20)]


async def stored(nodes: Nodes, log: str) -> dict[str, list[bytes]]:
    return {partition: await nodes.bodies(log, partition) for partition in ("0", "1", "2")}


async def test_each_key_has_its_partition_and_its_order(nodes: Nodes) -> None:
    log = await nodes.log(3)
    async with nodes.producer(log) as producer:
        sent: dict[str, list[bytes]] = {"0": [], "1": [], "2": []}
        for number in range(100):
            key = KEYS[number % len(KEYS)]
            body = b"%s: %d" % (key.encode(), number)
            sent[producer.partition_of(key)].append(body)
            event = Event(body, key=key)
            if number % 3 == 0:
                await producer.send(event)
            elif number % 3 == 1:
                await producer.send(body, key=key)
            else:
                await producer.send_many([body], key=key)
        await producer.flush()
        several = [Event(b"of many", key=key) for key in KEYS]
        await (await producer.send_many(several))
        for event in several:
            assert event.key is not None
            assert event.published_sequence_number is not None
            sent[producer.partition_of(event.key)].append(b"of many")
        batch = await producer.create_batch(key=KEYS[0])
        batch.add(b"of a batch")
        result = await producer.send_batch(batch)
        assert result.partition == producer.partition_of(KEYS[0])
        sent[result.partition].append(b"of a batch")
        result = await producer.send_batch([b"of a list"], key=KEYS[1])
        assert result.partition == producer.partition_of(KEYS[1])
        sent[result.partition].append(b"of a list")
    assert await stored(nodes, log) == sent


async def test_without_key_and_partition_all_partitions_have_their_turn(nodes: Nodes) -> None:
    log = await nodes.log(3)
    async with nodes.producer(log) as producer:
        for number in range(500):
            await producer.send(b"%d" % number)
        results = [await producer.send_batch([b"listed"]) for _ in range(3)]
        assert {result.count for result in results} == {1}
    found = await stored(nodes, log)
    assert all(found.values())
    assert Counter(body for bodies in found.values() for body in bodies) == Counter(
        [b"%d" % number for number in range(500)] + [b"listed"] * 3
    )


async def test_keyed_events_are_stored_once_while_leaders_move(nodes: Nodes) -> None:
    log = await nodes.log(3)
    cluster = nodes.cluster
    async with nodes.producer(log) as producer:
        expected: dict[str, list[bytes]] = {"0": [], "1": [], "2": []}

        async def publish() -> None:
            for number in range(3000):
                key = KEYS[number % len(KEYS)]
                expected[producer.partition_of(key)].append(b"%d" % number)
                await producer.send(b"%d" % number, key=key)
                if number % 100 == 0:
                    await producer.flush()
            await producer.flush()

        publishing = asyncio.create_task(publish())
        moves = 0
        while not publishing.done():
            partition = str(moves % 3)
            moves += 1
            leaders = [node for node in cluster.leaders(log) if node is not None]
            if leaders:
                await cluster.move(log, partition, cluster.other_than(cluster.leader(log, partition)))
        await publishing
        assert moves
    assert await stored(nodes, log) == expected


async def test_without_names_an_event_or_batch_may_be_published_again(nodes: Nodes) -> None:
    """What the program gives again after a success is another event. Only Event Hubs' rules forbid that."""
    log = await nodes.log(3)
    event = Event(b"x", key="k")
    async with nodes.producer(log) as producer:
        await producer.send_and_confirm(event)
        await producer.send_and_confirm(event)
        batch = await producer.create_batch(key="k")
        batch.add(b"y")
        await producer.send_batch(batch)
        await producer.send_batch(batch)
        place = producer.partition_of("k")
    assert await nodes.bodies(log, place) == [b"x", b"x", b"y", b"y"]


@pytest.mark.asyncio(loop_scope="function")
async def test_a_batch_by_turn_that_failed_goes_to_the_same_partition_again(node: TinyNode) -> None:
    async with idempotent(node, named=False) as producer:
        batch = await producer.create_batch()
        batch.add(b"in doubt")
        node.answer = lambda payload: UNKNOWN
        async with impatient(producer):
            with pytest.raises(UndeliveredError):
                await producer.send_batch(batch)
        node.answer = lambda payload: ACCEPTED
        producer._partitions.turn_passes()
        result = await producer.send_batch(batch)
        assert result.partition is not None
        found = {partition: node.log.bodies(partition) for partition in producer.partitions}
    assert [body for bodies in found.values() for body in bodies].count(b"in doubt") == 1
    assert b"in doubt" in found[result.partition]
