"""Publish events and read them back: `python examples/produce_consume.py --server 127.0.0.1:5672`.

It needs a running cluster (`holdfast cluster up --dir var/cluster --detach`) and makes its own log.
"""

import argparse
import asyncio
import uuid

from holdfast.client import AdminClient, ConsumerClient, Event, HoldfastError, ProducerClient, Start

EVENTS = 1000


async def produce(servers: list[str], log: str) -> None:
    # Events of one turn of the event loop travel together. Closing waits for all confirmations.
    async with ProducerClient(servers, log) as producer:
        for number in range(EVENTS):
            await producer.send(f"reading {number}", key=f"sensor-{number % 10}")  # returns when it is buffered

        # The outcome of one event:
        delivery = await producer.send(Event("calibrated", key="sensor-0", properties={"by": "ann"}))
        result = await delivery
        print(f"the calibration stands in partition {result.partition}")

        # Several events, confirmed together:
        batch = await producer.create_batch(key="sensor-1")
        while batch.try_add("a reading from the cellar") and len(batch) < 100:
            pass
        result = await producer.send_batch(batch)
        print(f"a batch of {result.count} events stands in partition {result.partition}")


async def consume(servers: list[str], log: str, count: int) -> None:
    seen = 0
    async with ConsumerClient(servers, log, start=Start.earliest()) as consumer:
        async for event in consumer:
            if event.properties:
                print(f"{event.key} at offset {event.offset}: {event.body.decode()}, by {event.properties['by']}")
            seen += 1
            if seen == count:
                break
        behind = await consumer.lag()
        # To go on from here another day: start={name: Start.after(offset) for name, offset in positions.items()}
        print(f"read {seen} events; behind: {sum(lag or 0 for lag in behind.values())}")
        print("positions:", ", ".join(f"{name}: {offset}" for name, offset in sorted(consumer.positions.items())))


async def main(servers: list[str]) -> None:
    log = f"example-{uuid.uuid4().hex[:8]}"
    async with AdminClient(servers) as admin:
        await admin.create_log(log, partitions=4)
        try:
            await produce(servers, log)
            await consume(servers, log, EVENTS + 1 + 100)
        finally:
            await admin.delete_log(log)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", action="append", help="host:port of a node; may be repeated")
    try:
        asyncio.run(main(parser.parse_args().server or ["127.0.0.1:5672"]))
    except HoldfastError as error:
        raise SystemExit(f"{error}\n{error.advice}") from error
