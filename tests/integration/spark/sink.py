"""What tests of the sink share: streams into a log, and what committed readers find there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.client.sync import RangeClient
from tests.integration.clusters.cluster import Cluster
from tests.integration.spark.conftest import reader
from tests.integration.spark.streams import to_end


def write(frame: Any, cluster: Cluster, log: str, **options: Any) -> None:
    """As a batch."""
    reader(frame.write, cluster, log, **options).mode("append").save()


def bodies(spark: Any, cluster: Cluster, log: str, **options: Any) -> list[bytes]:
    """Of committed events, sorted."""
    frame = reader(spark.read, cluster, log, columns="body", **options).load()
    return sorted(bytes(row.body) for row in frame.collect())


def committed_bodies(cluster: Cluster, log: str) -> list[bytes]:
    """The same, without Spark."""
    return sorted(body for bodies in by_partition(cluster, log).values() for body in bodies)


def by_partition(cluster: Cluster, log: str) -> dict[str, list[bytes]]:
    """Of committed events, in the order of the log."""
    with RangeClient(cluster.addresses) as client:
        return {
            extent.partition: [
                bytes(body)
                for block in client.read(log, extent.partition, extent.start, extent.end)
                for body in block.columns().bodies
            ]
            for extent in client.extents(log)
        }


class Through:
    """A query from one log into another."""

    def __init__(self, spark: Any, cluster: Cluster, source: str, target: str, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._spark, self._cluster, self._source, self._target = spark, cluster, source, target

    def run(self, *, most: int = 1_000_000, select: tuple[str, ...] = ("body", "key"), **options: Any) -> None:
        events = reader(
            self._spark.readStream, self._cluster, self._source, startingOffsets="earliest", maxEventsPerTrigger=most
        ).load()
        writer = reader(events.select(*select).writeStream, self._cluster, self._target, **options)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        to_end(writer.start)

    def lose_last_commit(self) -> int:
        """As if Spark had died before it noted its last batch."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        for path in commits.glob(f".{last}.*"):
            path.unlink()
        return last
