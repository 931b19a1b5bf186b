"""What readers are given of transactions, and where a log ends for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.client import AdminClient, ConfigurationError, ConsumerClient, ConsumerOptions, ProducerClient, Start
from tests.unit.client.support.real_cluster import Nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def to_the_end(nodes: Nodes, log: str, **more: Any) -> list[bytes]:
    options = ConsumerOptions(until_end=True)
    given = {"start": Start.earliest(), "options": options} | more
    async with asyncio.timeout(60), ConsumerClient(nodes.servers, log, **given) as consumer:
        return [event.body async for event in consumer]


async def test_until_the_end_means_the_last_that_is_decided(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer, ProducerClient(nodes.servers, log) as plain:
        assert await to_the_end(nodes, log) == []
        tx = producer.transaction()
        await tx.begin()
        await (await tx.send(b"undecided", partition="0"))
        assert await to_the_end(nodes, log) == []
        assert await to_the_end(nodes, log, isolation="uncommitted") == [b"undecided"]
        await plain.send_and_confirm(b"behind it", partition="0")
        assert await to_the_end(nodes, log) == []
        assert await to_the_end(nodes, log, isolation="uncommitted") == [b"undecided", b"behind it"]
        await tx.commit()
        assert await to_the_end(nodes, log) == [b"undecided", b"behind it"]


async def test_the_end_is_reached_where_the_last_events_were_rolled_back(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer:
        await producer.send_and_confirm(b"plain", partition="0")
        tx = producer.transaction()
        await tx.begin()
        for delivery in [await tx.send(b"never", partition="0") for _ in range(10)]:
            await delivery
        await tx.abort()
        assert await to_the_end(nodes, log) == [b"plain"]
        assert len(await to_the_end(nodes, log, isolation="uncommitted")) == 11
        tx = producer.transaction()
        await tx.begin()
        await (await tx.send(b"open", partition="0"))
        assert await to_the_end(nodes, log) == [b"plain"]
        assert await to_the_end(nodes, log, start=Start.from_time(1 << 41)) == []
        await tx.abort()


async def test_from_now_on_begins_at_what_is_not_decided(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer:
        await producer.send_and_confirm(b"before", partition="0")
        tx = producer.transaction()
        await tx.begin()
        await (await tx.send(b"decided later", partition="0"))
        async with ConsumerClient(nodes.servers, log) as consumer:
            assert await consumer.lag() == {"0": 0}
            await tx.commit()
            (event,) = await consumer.receive(timeout_s=60)
            assert event.body == b"decided later"


async def test_info_tells_what_is_open_and_what_was_rolled_back(nodes: Nodes) -> None:
    log = await nodes.log(1)
    for server in nodes.servers:
        async with ProducerClient(server, log) as producer, AdminClient(server) as admin:
            (before,) = await admin.log_info(log)
            tx = producer.transaction()
            await tx.begin()
            await (await tx.send(b"x", partition="0"))
            (info,) = await admin.log_info(log)
            assert info.open_transactions == 1
            assert info.stable_offset == before.details["next-offset"]
            await tx.abort()
            (info,) = await admin.log_info(log)
            assert info.open_transactions == 0
            assert info.aborted_transactions == before.aborted_transactions + 1
            assert info.stable_offset == info.details["next-offset"]


async def test_there_are_two_isolations(nodes: Nodes) -> None:
    with pytest.raises(ConfigurationError, match="isolation"):
        ConsumerClient(nodes.servers, "any", isolation="serializable")  # type: ignore[arg-type]
