"""Impatience where giving up is what is tested, and nowhere else: what must succeed may take as long as a slow machine
needs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from holdfast.client import ProducerClient
from holdfast.client.produce.idempotent.partition_publisher import PartitionPublisher
from holdfast.client.produce.partition_sender import PartitionSender

IMPATIENT_S = 0.3


@contextlib.asynccontextmanager
async def impatient(
    producer: ProducerClient, partition: str = "0", patience_s: float = IMPATIENT_S
) -> AsyncIterator[None]:
    """What is published to the partition within this block is given up soon. An idempotent producer has its link there
    before that; of another one, this must be its first use of the partition."""
    line: PartitionSender | PartitionPublisher
    if producer.options.idempotent:
        await producer.get_partition_publishing_properties(partition)
        line = producer._accumulator.routes.line_for(partition)._publisher
    else:
        found = producer._accumulator.routes.route_for(None, partition)
        assert isinstance(found, PartitionSender)
        line = found
    usual_s, line._delivery_timeout_s = line._delivery_timeout_s, patience_s
    yield
    line._delivery_timeout_s = usual_s
