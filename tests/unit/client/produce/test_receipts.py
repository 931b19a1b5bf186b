"""Delivery results say where events stand: the partition and the offset that a consumer sees. On three real nodes."""

from __future__ import annotations

import pytest

from holdfast.client import (
    ConsumerClient,
    ConsumerOptions,
    Event,
    NetworkOptions,
    ProducerClient,
    ProducerOptions,
    ReceivedEvent,
    Start,
)
from tests.unit.client.support.real_cluster import Nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def read(nodes: Nodes, log: str) -> dict[tuple[str | None, str | None], bytes]:
    """Bodies by partition and offset."""
    options = ConsumerOptions(until_end=True)
    async with ConsumerClient(nodes.servers, log, start=Start.earliest(), options=options) as consumer:
        found: list[ReceivedEvent] = [event async for event in consumer]
    return {(event.partition, event.offset): event.body for event in found}


@pytest.mark.parametrize("follow", [True, False], ids=["redirected", "through gateways"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
async def test_events_stand_where_their_results_say(nodes: Nodes, idempotent: bool, follow: bool) -> None:
    log = await nodes.log(3)
    options = ProducerOptions(idempotent=idempotent, network=NetworkOptions(follow_redirects=follow))
    async with ProducerClient(nodes.servers, log, options) as producer:
        deliveries = [await producer.send(f"{n}", partition=str(n % 3)) for n in range(3000)]
        results = [await delivery for delivery in deliveries]
        one = await producer.send_and_confirm(b"one", partition="1")
        batch = await producer.create_batch(partition="2")
        for n in range(700):
            batch.add(f"batch {n}")
        published = await producer.send_batch(batch)
        listed = await producer.send_batch([Event("first of a list"), Event("second")], partition="0")
    stored = await read(nodes, log)
    for n, result in enumerate(results):
        assert result.partition == str(n % 3)
        assert stored[result.partition, result.offset] == str(n).encode()
    assert stored[one.partition, one.offset] == b"one"
    assert stored[published.partition, published.offset] == b"batch 0"
    assert stored[listed.partition, listed.offset] == b"first of a list"
    assert (published.count, listed.count) == (700, 2)


async def test_a_batch_that_was_published_before_is_found_where_it_stood(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with nodes.producer(log) as producer:
        saved = (await producer.get_partition_publishing_properties("0")).to_options()
        first = await producer.send_batch(["a", "b"], partition="0")
        await producer.send_batch(["c"], partition="0")
    async with nodes.producer(log, {"0": saved}) as restored:
        again = await restored.send_batch(["a", "b"], partition="0")
    assert again == first
