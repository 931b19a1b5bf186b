"""A worker of the pipeline that the test judges: reads trades in a group's name, writes the volume of each symbol, and
moves the group's position, all in one transaction. A process of its own, which a test kills or stops at any moment.

Each event that it writes names the trades that it counts: {"symbol": ..., "volume": ..., "of": [[partition, offset]]}.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections import defaultdict

from holdfast.client import ConsumerClient, HoldfastError, ProducerClient, ProducerFencedError, ProducerOptions, Start

BATCH = 60
PATIENCE_S = 0.5
HOLDS = "holds"
log = logging.getLogger("worker")


async def count(consumer: ConsumerClient, producer: ProducerClient) -> None:
    events = await consumer.receive(max_events=BATCH, timeout_s=PATIENCE_S)
    if not events:
        return
    volume: dict[str, int] = defaultdict(int)
    counted: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for event in events:
        symbol, size = bytes(event.body).decode().split(",")
        volume[symbol] += int(size)
        counted[symbol].append((event.partition, int(event.offset, 16)))
    async with producer.transaction() as tx:
        for symbol, of in counted.items():
            body = json.dumps({"symbol": symbol, "volume": volume[symbol], "of": of})
            await tx.send(body.encode(), key=symbol)
        await tx.commit_offsets(consumer)


async def work(servers: list[str], trades: str, volumes: str, name: str) -> None:
    """Until killed, or replaced by another process under the same name. A producer that is opened anew takes its id
    from whoever has it by then, so it is opened once: who was replaced while it slept must hear of it."""
    producer = await opened(ProducerOptions(transactional_id=name, transaction_timeout_s=10.0), servers, volumes)
    log.info("%d %s %s", os.getpid(), HOLDS, name)
    while True:
        try:
            async with ConsumerClient(servers, trades, group="volumes", start=Start.earliest()) as consumer:
                while True:
                    await count(consumer, producer)
        except ProducerFencedError as error:
            print(json.dumps({"fenced": str(error)}), flush=True)
            return
        except HoldfastError as error:  # what was read and not committed is read again, by whoever has it then
            log.info("begins again: %s: %s", type(error).__name__, error)


async def opened(options: ProducerOptions, servers: list[str], volumes: str) -> ProducerClient:
    while True:
        producer = ProducerClient(servers, volumes, options)
        try:
            await producer.start()
            return producer
        except HoldfastError as error:
            log.info("cannot begin yet: %s: %s", type(error).__name__, error)
            await producer.abandon()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    *addresses, source, target, own = sys.argv[1:]
    asyncio.run(work(addresses, source, target, own))
