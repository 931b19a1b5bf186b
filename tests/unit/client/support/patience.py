"""Impatience where giving up is what is tested, and nowhere else: what must succeed may take as long as a slow machine
needs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from holdfast.client import ProducerClient

IMPATIENT_S = 0.3


@contextlib.asynccontextmanager
async def impatient(
    producer: ProducerClient, partition: str = "0", patience_s: float = IMPATIENT_S
) -> AsyncIterator[None]:
    """What is published to the partition within this block is given up soon. An idempotent producer has its link there
    before that."""
    if producer.options.idempotent:
        await producer.get_partition_publishing_properties(partition)
    sender = producer._partitions.sender(partition)
    usual_s, sender._delivery_timeout_s = sender._delivery_timeout_s, patience_s
    sender._woken.set()  # who waits for trouble on an idle link reckons anew
    yield
    sender._delivery_timeout_s = usual_s
