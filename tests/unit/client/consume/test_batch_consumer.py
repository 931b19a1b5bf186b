"""A consumer of real nodes, which send it record batches: it reads as it would events one by one."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.client import (
    ConsumerClient,
    ConsumerOptions,
    NetworkOptions,
    ProducerClient,
    ProducerOptions,
    ReceivedEvent,
    Start,
)
from holdfast.client.consume.batch_credit import FIRST
from node.listener.outgoing.batch_deliveries import DELIVERY_EVENTS
from tests.unit.client.support.real_cluster import Nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = 10_000


async def fill(nodes: Nodes, log: str, count: int, first: int = 0) -> None:
    async with ProducerClient(nodes.servers, log) as producer:
        for number in range(first, first + count):
            await producer.send(b"%d" % number, partition="0", key="k" if number % 7 == 0 else None)


def consumer(nodes: Nodes, log: str, start: Start, filter: str | None = None, **more: int) -> ConsumerClient:
    options = ConsumerOptions(**more)
    return ConsumerClient(nodes.servers, log, start=start, partitions=["0"], filter=filter, options=options)


async def take(reader: ConsumerClient, count: int) -> list[ReceivedEvent]:
    found: list[ReceivedEvent] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            found += await reader.receive(count - len(found))
    return found


async def test_events_are_those_that_come_one_by_one(nodes: Nodes) -> None:
    log = await nodes.log(1)
    await fill(nodes, log, 3000)
    found = []
    for prefetch, single in ((100, "1 = 1 OR a.x = 2"), (1, None), (100, None), (8192, None)):
        async with consumer(nodes, log, Start.after(f"{499:016x}"), single, prefetch=prefetch) as reader:
            events = await take(reader, 2500)
            assert [partition_reader._in_batches for partition_reader in reader._readers] == [single is None]
        found.append([(event.partition, event.offset, event.timestamp_ms, event.key, event.body) for event in events])
    assert found[0] == found[1] == found[2] == found[3]
    assert [body for *_, body in found[1]] == [b"%d" % number for number in range(500, 3000)]


async def test_who_rests_is_sent_no_more_than_it_has_room_for(nodes: Nodes) -> None:
    log = await nodes.log(1)
    await fill(nodes, log, COUNT)
    async with consumer(nodes, log, Start.earliest(), prefetch=2 * DELIVERY_EVENTS) as reader:
        [partition_reader] = reader._readers
        seen = await take(reader, 1)
        await nodes.until(lambda: partition_reader._receiver is not None and partition_reader._receiver.credit == 0)
        assert 0 < partition_reader._buffered < FIRST * DELIVERY_EVENTS
        seen += await take(reader, COUNT - 1)
    assert [event.body for event in seen] == [b"%d" % number for number in range(COUNT)]


async def test_reading_goes_on_at_another_leader_without_loss_or_copies(nodes: Nodes) -> None:
    log = await nodes.log(1)
    await fill(nodes, log, COUNT)
    async with consumer(nodes, log, Start.earliest(), prefetch=2 * DELIVERY_EVENTS) as reader:
        seen = await take(reader, 100)
        for turn in range(2):
            await nodes.cluster.move(log, "0", nodes.cluster.other_than(nodes.cluster.leader(log)))
            await fill(nodes, log, 1000, COUNT + 1000 * turn)
            seen += await take(reader, 3000)
        seen += await take(reader, COUNT + 2000 - len(seen))
        assert reader.links_opened > 1
    assert [event.body for event in seen] == [b"%d" % number for number in range(COUNT + 2000)]
    assert [int(event.offset, 16) for event in seen] == list(range(COUNT + 2000))


@pytest.mark.parametrize("redirected", [True, False])
async def test_the_end_is_where_the_log_ends_though_its_last_events_were_rolled_back(
    nodes: Nodes, redirected: bool
) -> None:
    """The node is asked to say when it has no more, and the client never reads a whole delivery at once."""
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log, ProducerOptions(transactional_id=log)) as producer:
        for number in range(8):
            async with producer.transaction() as transaction:
                await transaction.send(b"%d:%s" % (number, b"." * 700_000), partition="0")
        transaction = producer.transaction()
        async with transaction:
            await transaction.send(b"rolled back", partition="0")
            await transaction.abort()
    network = NetworkOptions(follow_redirects=redirected)
    options = ConsumerOptions(until_end=True, network=network)
    for server in nodes.servers:
        found: list[bytes] = []
        async with ConsumerClient(server, log, start=Start.earliest(), options=options) as reader:
            async with asyncio.timeout(120):
                while events := await reader.receive():
                    found += [event.body.partition(b":")[0] for event in events]
            assert reader.at_end
        assert found == [b"%d" % number for number in range(8)]
