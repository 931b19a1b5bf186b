"""What an idempotent producer refuses before the network, and how it ends while it is used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.client import (
    ClosedError,
    ConfigurationError,
    Event,
    EventTooLargeError,
    HoldfastError,
    PartitionPublishingOptions,
    ProducerClient,
    UndeliveredError,
)
from tests.unit.client.support.idempotent import batch_of, idempotent
from tests.unit.client.support.tiny_node import TinyNode


async def test_use_after_close_is_refused_everywhere(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"x")
    for attempt in (
        lambda: producer.send(b"x", partition="0"),
        lambda: producer.send_batch(batch),
        lambda: producer.send_batch([b"x"], partition="0"),
        lambda: producer.create_batch(partition="0"),
        lambda: producer.get_partition_publishing_properties("0"),
        lambda: producer.start(),
    ):
        with pytest.raises(ClosedError):
            await attempt()
    assert not batch.is_locked
    await producer.close()


async def test_closing_waits_for_what_is_being_published(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch = await batch_of(producer, *(b"%d" % n for n in range(1000)))
        publishing = asyncio.create_task(producer.send_batch(batch))
        await asyncio.sleep(0)
    await publishing
    assert len(node.log.partitions["0"]) == 1000


async def test_leaving_by_an_error_does_not_wait_and_tells_everybody(node: TinyNode) -> None:
    node.after_transfers = lambda connection, partition, count: True
    told: list[HoldfastError | None] = []
    async with asyncio.timeout(20):
        try:
            async with idempotent(node) as producer:
                publishing = [asyncio.create_task(producer.send_batch([b"1"], partition=p)) for p in ("0", "0", "1")]
                await producer.send(b"2", partition="2", done=told.append)
                await asyncio.sleep(0.05)
                raise KeyError("other worries")
        except KeyError:
            pass
        outcomes = await asyncio.gather(*publishing, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ClosedError] * 3
    assert [type(error) for error in told] == [UndeliveredError]


async def test_an_event_that_the_node_would_not_take_is_refused_before_it_is_numbered(node: TinyNode) -> None:
    node.max_message_size = 1000
    async with idempotent(node) as producer:
        with pytest.raises(EventTooLargeError):
            await producer.send_batch([b"small", bytes(1000)], partition="0")
        small, large = await producer.send(b"small", partition="0"), await producer.send(bytes(1000), partition="0")
        await small
        with pytest.raises(EventTooLargeError):
            await large
        await producer.send_batch([b"next"], partition="0")
    assert node.log.numbers("0") == [1, 2]
    assert node.log.bodies("0") == [b"small", b"next"]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda producer: producer.send_batch("text", partition="0"),
        lambda producer: producer.send_batch(b"bytes", partition="0"),
        lambda producer: producer.send_batch(Event(b"one"), partition="0"),
        lambda producer: producer.send_batch(None, partition="0"),
        lambda producer: producer.send_batch([b"fine", 7], partition="0"),
        lambda producer: producer.send(None, partition="0"),
        lambda producer: producer.send(b"x", partition=0),
        lambda producer: producer.send(b"x", partition="0", properties=[1]),
        lambda producer: producer.send(b"x", partition="0", properties={"p": object()}),
        lambda producer: producer.create_batch(partition=0),
        lambda producer: producer.create_batch(partition="0", max_bytes=0),
        lambda producer: producer.get_partition_publishing_properties(0),
    ],
    ids=lambda _: "",
)
async def test_what_can_be_seen_to_be_wrong_is_refused_before_the_network(node: TinyNode, attempt: Any) -> None:
    async with idempotent(node) as producer:
        attaches = len(node.attaches)
        with pytest.raises(ConfigurationError) as caught:
            await attempt(producer)
        assert caught.value.advice
        assert len(node.attaches) == attaches
        await producer.send_batch([b"fine"], partition="0")
    assert node.log.bodies("0") == [b"fine"]


@pytest.mark.parametrize(
    "options", [{"0": {"owner_level": 1}}, {"0": None}, {0: PartitionPublishingOptions()}], ids=["dict", "none", "name"]
)
async def test_options_that_are_none_are_refused_at_construction(options: Any) -> None:
    with pytest.raises(ConfigurationError):
        ProducerClient("127.0.0.1:1", "trades", idempotent=True, partition_options=options)
