"""An error that a client keeps, and raises at each call, does not grow by it."""

from __future__ import annotations

import traceback

from holdfast.client import ConsumerClient, HoldfastError, ProducerClient
from tests.unit.client.support.tiny_node import TinyNode


async def test_an_error_that_is_raised_again_keeps_no_frames(node: TinyNode) -> None:
    async with ConsumerClient(node.address, "trades") as consumer:
        consumer.fail(HoldfastError("it is over"))
        depths = []
        for _ in range(3):
            try:
                await consumer.receive()
            except HoldfastError as error:
                depths.append(len(traceback.extract_tb(error.__traceback__)))
        assert len(set(depths)) == 1


async def test_a_delivery_that_failed_tells_each_who_asks_and_keeps_no_frames(node: TinyNode) -> None:
    node.after_transfers = lambda connection, partition, count: True
    async with ProducerClient(node.address, "trades") as producer:
        delivery = await producer.send(b"event", partition="0")
        await producer.abandon()
        depths = []
        for _ in range(3):
            try:
                await delivery
            except HoldfastError as error:
                depths.append(len(traceback.extract_tb(error.__traceback__)))
        assert len(depths) == 3
        assert len(set(depths)) == 1
