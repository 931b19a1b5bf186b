"""Two members share a log through ZooKeeper: `python examples/ownership.py --zookeeper 127.0.0.1:2181`.

It needs a running cluster (`holdfast cluster up --dir var/cluster --detach`) and a ZooKeeper to which it may write. It
makes its own log. Members usually run in processes of their own, each started with the same log, group and URL.
"""

import argparse
import asyncio
import uuid
from collections.abc import Callable

from holdfast.client import AdminClient, ConsumerClient, HoldfastError, ProducerClient, Start, ZooKeeperOwnership

PARTITIONS = 4
JOBS = 1000
WITHIN_S = 60.0


class SharingMember:
    """A member of the group, which prints the partitions that it gets and gives up."""

    def __init__(self, name: str, servers: list[str], log: str, ownership: ZooKeeperOwnership) -> None:
        self.name, self.count, self.partitions = name, 0, set[str]()
        self.consumer = ConsumerClient(
            servers, log, group="sharing", start=Start.earliest(), ownership=ownership,
            on_assigned=self.assigned, on_revoked=self.revoked,
        )  # fmt: skip
        self.task = asyncio.create_task(self.run())

    def assigned(self, partition: str) -> None:
        print(f"{self.name} has got partition {partition} with epoch {self.consumer.epochs[partition]}")
        self.partitions.add(partition)

    def revoked(self, partition: str) -> None:
        print(f"{self.name} gives up partition {partition}")
        self.partitions.discard(partition)

    async def run(self) -> None:
        async with self.consumer:
            async for events in self.consumer.batches():
                self.count += len(events)  # the work
                await self.consumer.commit()

    async def leave(self) -> None:
        """Leave the group; the other members take the partitions."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until(condition: Callable[[], bool], *members: SharingMember) -> None:
    """Wait until the condition holds; raise the error of a member that failed."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.wait([member.task for member in members], timeout=0.1)
            for member in members:
                if member.task.done():
                    member.task.result()


async def main(servers: list[str], zookeeper: str) -> None:
    log = f"example-{uuid.uuid4().hex[:8]}"
    ownership = ZooKeeperOwnership(f"zk://{zookeeper}/holdfast-example")
    async with AdminClient(servers) as admin:
        await admin.create_log(log, partitions=PARTITIONS)
        try:
            async with ProducerClient(servers, log) as producer:
                for number in range(JOBS):
                    await producer.send(f"job {number}", key=f"customer-{number % 50}")
            ann = SharingMember("ann", servers, log, ownership)
            await until(lambda: len(ann.partitions) == PARTITIONS and ann.count == JOBS, ann)
            bob = SharingMember("bob", servers, log, ownership)
            await until(lambda: len(ann.partitions) == len(bob.partitions) == PARTITIONS // 2, ann, bob)
            await ann.leave()
            await until(lambda: len(bob.partitions) == PARTITIONS, bob)
            await bob.leave()
            lag = (await admin.describe_group(log, "sharing"))["lag"]
            print(f"{ann.count + bob.count} jobs were read; the group is {lag} behind")
        finally:
            await admin.delete_log(log)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", action="append", default=[], help="HOST:PORT of a node; may be repeated")
    parser.add_argument("--zookeeper", default="127.0.0.1:2181", help="HOST:PORT,HOST:PORT")
    given = parser.parse_args()
    try:
        asyncio.run(main(given.server or ["127.0.0.1:5672"], given.zookeeper))
    except HoldfastError as error:
        raise SystemExit(f"{error}\n{error.advice}") from error
