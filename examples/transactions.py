"""Consume, transform, produce, exactly once: `python examples/transactions.py --server 127.0.0.1:5672`.

It needs a running cluster (`holdfast cluster up --dir var/cluster --detach`) and makes its own logs. Each order becomes
one line of an invoice. A transaction holds the lines and the position of the group together. Half-way another worker
replaces the first one, as if that one had hung. The first worker's open transaction does not count, and its successor
does the work.
"""

import argparse
import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence

from holdfast.client import (
    AdminClient,
    ConsumerClient,
    ConsumerOptions,
    HoldfastError,
    OwnershipLostError,
    ProducerClient,
    ProducerFencedError,
    ReceivedEvent,
    Start,
    TransactionRolledBackError,
)

ORDERS = 200


class InvoicingWorker:
    """A worker whose transactional id names the work, not the process, so that a later worker fences an earlier one."""

    def __init__(self, servers: list[str], orders: str, invoices: str, epoch: int) -> None:
        self.producer = ProducerClient(servers, invoices, transactional_id=f"invoicing-{orders}")
        self.consumer = ConsumerClient(
            servers, orders, group="invoicing", start=Start.earliest(), partitions=["0", "1"], epoch=epoch
        )

    async def work_on(self, events: Sequence[ReceivedEvent]) -> None:
        while True:
            try:
                async with self.producer.transaction() as tx:
                    for event in events:
                        await tx.send(b"line for " + event.body, key=event.key)
                    await tx.commit_offsets(self.consumer)
            except TransactionRolledBackError as error:
                print(f"once more: {error}")
                continue
            return


async def run(servers: list[str], orders: str, invoices: str) -> None:
    first, second = (InvoicingWorker(servers, orders, invoices, epoch) for epoch in (1, 2))
    async with first.producer, first.consumer:
        done = 0
        while done < ORDERS // 2:
            events = await first.consumer.receive(10)
            await first.work_on(events)
            done += len(events)
        events = await first.consumer.receive(10)
        async with second.producer, second.consumer:
            try:
                await first.work_on(events)
            except (ProducerFencedError, OwnershipLostError) as stop:
                print(f"the first worker stops: {stop}")
            while done < ORDERS:
                events = await second.consumer.receive(10)
                await second.work_on(events)
                done += len(events)


async def main(servers: list[str]) -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    orders, invoices = f"{name}-orders", f"{name}-invoices"
    async with AdminClient(servers) as admin:
        for log in (orders, invoices):
            await admin.create_log(log, partitions=2)
        try:
            async with ProducerClient(servers, orders) as producer:
                for number in range(ORDERS):
                    await producer.send(f"order {number}", key=f"customer-{number % 10}")
            await run(servers, orders, invoices)
            options = ConsumerOptions(until_end=True)
            async with ConsumerClient(servers, invoices, start=Start.earliest(), options=options) as reader:
                lines = Counter([event.body async for event in reader])
            twice = sum(lines.values()) - len(lines)
            print(f"{len(lines)} of {ORDERS} orders have their line, {twice} have two")
        finally:
            for log in (orders, invoices):
                await admin.delete_log(log)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", action="append", default=[], help="HOST:PORT of a node; may be repeated")
    try:
        asyncio.run(main(parser.parse_args().server or ["127.0.0.1:5672"]))
    except HoldfastError as error:
        raise SystemExit(f"{error}\n{error.advice}") from error
