"""For the stories of idempotent publishing: a producer of a tiny node, its batches, and what may go wrong there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.amqp.links.delivery_states import ACCEPTED
from holdfast.client import (
    EventBatch,
    PartitionPublishingOptions,
    ProducerClient,
    ProducerOptions,
)
from tests.unit.client.support.tiny_node import UNKNOWN, TinyNode
from tests.unit.listener.support.peer import eventually

CAPABILITY = "com.microsoft:idempotent-producer"


def idempotent(node: TinyNode, *, named: bool = True, **options: Any) -> ProducerClient:
    """A client of this node; keywords of `PartitionPublishingOptions` are for partition 0, others of the client.
    `named`: by the rules of Event Hubs."""
    own = {name: options.pop(name) for name in list(options) if name in PartitionPublishingOptions.__annotations__}
    partition_options = {"0": PartitionPublishingOptions(**own)} if named else None
    settings = ProducerOptions(idempotent=True, **options)
    return ProducerClient(node.address, "trades", settings, partition_options=partition_options)


async def batch_of(producer: ProducerClient, *bodies: bytes, partition: str = "0") -> EventBatch:
    batch = await producer.create_batch(partition=partition)
    for body in bodies:
        batch.add(body)
    return batch


async def last(producer: ProducerClient, partition: str = "0") -> int | None:
    return (await producer.get_partition_publishing_properties(partition)).last_published_sequence_number


async def link_gone(producer: ProducerClient, partition: str = "0") -> None:
    """Until the client has noticed that the node ended the link."""
    sender = producer._partitions.sender(partition)
    await eventually(lambda: sender._link is None and (sender._task is None or sender._task.done()))


def drop_connection_once() -> Callable[..., bool]:
    """The first transfers are not stored, and get no answer but the end of the connection."""
    dropped = False

    def mishap(connection: Any, partition: str, count: int) -> bool:
        nonlocal dropped
        if dropped:
            return False
        dropped = True
        asyncio.get_running_loop().call_soon(connection.abort)
        return True

    return mishap


def lose_answers(node: TinyNode, times: int) -> None:
    """The next events are stored, and their producer hears "perhaps" instead, so often."""
    left = times

    def answer(payload: bytes) -> Any:
        nonlocal left
        left -= 1
        return UNKNOWN if left >= 0 else ACCEPTED

    node.answer = answer
