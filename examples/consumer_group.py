"""Two members share a log, one leaves, the other goes on: `python examples/consumer_group.py --server 127.0.0.1:5672`.

It needs a running cluster (`holdfast cluster up --dir var/cluster --detach`) and makes its own log. Members usually run
in processes of their own, each started with the same log and group.
"""

import argparse
import asyncio
import uuid
from collections import Counter

from holdfast.client import AdminClient, ConsumerClient, HoldfastError, OwnershipLostError, ProducerClient, Start

EVENTS = 1000


class JobCounts(Counter[str]):
    """Counter of how often each job was done."""

    def __init__(self) -> None:
        super().__init__()
        self.more = asyncio.Event()

    async def reaches(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self) < count:
                self.more.clear()
                await self.more.wait()


class CountingWorker:
    """A member of the group, which counts its jobs and commits them."""

    def __init__(self, name: str, servers: list[str], log: str, done: JobCounts) -> None:
        self.name, self.done, self.leaving = name, done, False
        self.consumer = ConsumerClient(
            servers, log, group="counting", start=Start.earliest(), on_assigned=self.assigned, on_revoked=self.revoked
        )

    def assigned(self, partition: str) -> None:
        print(f"{self.name} has got partition {partition}")

    def revoked(self, partition: str) -> None:
        print(f"{self.name} gives up partition {partition}")

    async def run(self) -> None:
        async with self.consumer:
            while not self.leaving:
                events = await self.consumer.receive(timeout_s=0.5)  # of one partition
                if not events:
                    continue
                for event in events:
                    self.done[event.body.decode()] += 1  # the work
                self.done.more.set()
                try:
                    await self.consumer.commit()
                except OwnershipLostError as lost:  # another member does some jobs again
                    print(f"{self.name}: {lost}")


async def produce(servers: list[str], log: str, first: int) -> None:
    async with ProducerClient(servers, log) as producer:
        for number in range(first, first + EVENTS):
            await producer.send(f"job {number}", key=f"customer-{number % 50}")


async def main(servers: list[str]) -> None:
    log, done = f"example-{uuid.uuid4().hex[:8]}", JobCounts()
    async with AdminClient(servers) as admin:
        await admin.create_log(log, partitions=4)
        try:
            workers = [CountingWorker(name, servers, log, done) for name in ("ann", "bob")]
            ann, bob = (asyncio.create_task(worker.run()) for worker in workers)
            await produce(servers, log, 0)
            await done.reaches(EVENTS)
            workers[1].leaving = True  # it ends after a commit; a killed member's last jobs are done again
            await bob
            await produce(servers, log, EVENTS)
            await done.reaches(2 * EVENTS)
            workers[0].leaving = True
            await ann
            again = sum(done.values()) - len(done)
            lag = (await admin.describe_group(log, "counting"))["lag"]
            print(f"{len(done)} jobs are done, {again} of them twice; the group is {lag} behind")
        finally:
            await admin.delete_log(log)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", action="append", default=[], help="HOST:PORT of a node; may be repeated")
    try:
        asyncio.run(main(parser.parse_args().server or ["127.0.0.1:5672"]))
    except HoldfastError as error:
        raise SystemExit(f"{error}\n{error.advice}") from error
