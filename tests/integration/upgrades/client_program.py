"""A client's program, run with the tree of one release against nodes of another: `client_program.py LOG SERVER...`.

It publishes in every way there is, reads in every way, and says what it read as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from holdfast.client import (
    AdminClient,
    ConsumerClient,
    ConsumerOptions,
    ProducerClient,
    ProducerOptions,
    Start,
    TransactionGroup,
)
from holdfast.client.sync import RangeClient  # by which a task of Spark reads
from holdfast.records.record_batch import VERSION

COUNT = 20
KINDS = 4


async def published(servers: list[str], log: str) -> None:
    for name, options in (
        ("plain", ProducerOptions(idempotent=False)),
        ("idempotent", ProducerOptions(idempotent=True)),
    ):
        async with ProducerClient(servers, log, options) as producer:
            await producer.send_many([f"{name} {number}".encode() for number in range(COUNT)], partition="0")
            await producer.flush()
    async with (
        ProducerClient(servers, log, ProducerOptions(transactional_id=f"{log}-writer")) as producer,
        producer.transaction() as transaction,
    ):
        for number in range(COUNT):
            await transaction.send(f"transactional {number}".encode(), partition="0")
    await grouped(servers, log)


async def grouped(servers: list[str], log: str) -> None:
    """A batch of a transaction group, as Spark's sink writes it: the driver, and a task with one of its parts."""
    names: dict[str, Any] = {"writer": f"{log}-group", "batch": 0, "run": log}
    async with TransactionGroup(servers, **names) as group, ProducerClient(servers, log) as producer:
        assert await group.open() == "opened"
        async with producer.member(**names, part="0") as member:
            await member.send_many([f"grouped {number}".encode() for number in range(COUNT)], partition="0")
            winner = await member.prepare()
        await group.commit([winner])


async def read(servers: list[str], log: str) -> list[str]:
    options = ConsumerOptions(until_end=True)
    async with ConsumerClient(servers, log, start=Start.earliest(), options=options) as consumer:
        return [event.body.decode() async for event in consumer]


async def read_by_a_group(servers: list[str], log: str) -> list[str]:
    found: list[str] = []
    async with ConsumerClient(servers, log, group=f"{log}-readers", start=Start.earliest()) as consumer:
        async for event in consumer:
            found.append(event.body.decode())
            if len(found) == COUNT * KINDS:
                await consumer.commit()
                break
    return found


async def main(log: str, servers: list[str]) -> dict[str, object]:
    async with AdminClient(servers) as admin:
        status = await admin.cluster_status()
    await published(servers, log)
    return {
        "version": VERSION,
        "active": status["active_version"],
        "read": await read(servers, log),
        "read by a group": await read_by_a_group(servers, log),
    }


def ranges(log: str, servers: list[str]) -> list[str]:
    with RangeClient(servers) as client:
        (extent,) = [one for one in client.extents(log) if one.partition == "0"]
        blocks = client.read(log, "0", extent.start, extent.end)
        return [event.body.decode() for block in blocks for event in block.events()]


if __name__ == "__main__":
    found = asyncio.run(main(sys.argv[1], sys.argv[2:]))
    found["ranges"] = ranges(sys.argv[1], sys.argv[2:])
    print(json.dumps(found))
