"""An error that a consumer keeps, and raises at each call, does not grow by it."""

from __future__ import annotations

import traceback

from holdfast.client import ConsumerClient, HoldfastError
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
