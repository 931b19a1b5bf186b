"""A log as a stream: every event once over batches, limits, restarts and dead nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="there is no pyspark here: `make test` installs it")

from pipeline.progress import lag
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.spark.conftest import reader
from tests.integration.spark.events import committed, fill, numbered, rolled_back
from tests.integration.spark.streams import started, to_end

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


class Sunk:
    """What a query has written: Parquet files, exactly once by Spark's own sink."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self._spark, self._directory = spark, directory

    def start(self, source: Any, **trigger: Any) -> Any:
        writer = source.load().select("partition", "offset", "body").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        writer = writer.trigger(**trigger)
        return (to_end if "availableNow" in trigger else started)(lambda: writer.start(str(self._directory / "out")))

    def run(self, source: Any) -> list[Any]:
        """To the end of what is there; the progress of its batches."""
        return list(self.start(source, availableNow=True).recentProgress)

    def rows(self) -> list[tuple[str, int, bytes]]:
        found = self._spark.read.parquet(str(self._directory / "out")).collect()
        return sorted((row.partition, row.offset, bytes(row.body)) for row in found)


@pytest.fixture
def sunk(spark: Any, tmp_path: Path) -> Sunk:
    return Sunk(spark, tmp_path)


@pytest.fixture
def stream(spark: Any, cluster: Cluster) -> Callable[..., Any]:
    def make(log: str, **options: Any) -> Any:
        return reader(spark.readStream, cluster, log, **options)

    return make


def expected(*parts: tuple[str, int, int]) -> list[tuple[str, int, bytes]]:
    """(partition, first, count) of events that `numbered` made."""
    return [
        (partition, number, b"e%d" % number)
        for partition, first, count in parts
        for number in range(first, first + count)
    ]


def test_batches_are_limited_and_go_on_where_the_last_ended(
    cluster: Cluster, log_name: str, sunk: Sunk, stream: Callable[..., Any]
) -> None:
    cluster.create(log_name, partitions=2)
    fill(cluster, log_name, numbered(300), "0")
    fill(cluster, log_name, numbered(30), "1")
    limited = stream(log_name, startingOffsets="earliest", maxEventsPerTrigger=100)
    batches = [batch for batch in sunk.run(limited) if batch["numInputRows"]]
    assert [batch["numInputRows"] for batch in batches] == [100, 100, 100, 30]
    shares = [json.loads(batch["sources"][0]["endOffset"]) for batch in batches]
    assert shares[0].pop("log") == shares[-1]["log"], "beside the offsets stands which log they are of"
    assert shares[0] == {"0": 91, "1": 9}, "each partition has its share of a batch"
    assert json.loads(batches[0]["sources"][0]["latestOffset"]) == {"0": 300, "1": 30}, "the lag is in the progress"
    assert [lag(batch) for batch in batches] == [230, 130, 30, 0]
    assert all(batch["processedRowsPerSecond"] > 0 for batch in batches), "and so are rates"
    assert sunk.rows() == expected(("0", 0, 300), ("1", 0, 30))

    fill(cluster, log_name, numbered(50, first=30), "1")
    assert sum(batch["numInputRows"] for batch in sunk.run(limited)) == 50, "it went on from its checkpoint"
    assert sum(batch["numInputRows"] for batch in sunk.run(limited)) == 0, "with nothing new it ends"
    assert sunk.rows() == expected(("0", 0, 300), ("1", 0, 80))


def test_bytes_limit_a_batch_too(cluster: Cluster, log_name: str, sunk: Sunk, stream: Callable[..., Any]) -> None:
    cluster.create(log_name)
    fill(cluster, log_name, numbered(400, "x" * 100))
    batches = sunk.run(stream(log_name, startingOffsets="earliest", maxBytesPerTrigger=20_000))
    counts = [batch["numInputRows"] for batch in batches if batch["numInputRows"]]
    assert sum(counts) == 400
    assert max(counts) < 200
    assert len(counts) > 2


def test_a_batch_that_ends_with_rolled_back_events_is_complete(
    cluster: Cluster, log_name: str, sunk: Sunk, stream: Callable[..., Any]
) -> None:
    cluster.create(log_name)
    fill(cluster, log_name, numbered(10))
    rolled_back(cluster, log_name, 30)
    source = stream(log_name, startingOffsets="earliest", maxEventsPerTrigger=8)
    sunk.run(source)
    assert sunk.rows() == expected(("0", 0, 10))
    committed(cluster, log_name, [b"e40", b"e41"])
    sunk.run(source)
    assert sunk.rows() == expected(("0", 0, 10), ("0", 40, 2))


def test_a_query_that_runs_sees_what_comes_and_partitions_that_are_added(
    cluster: Cluster, log_name: str, sunk: Sunk, stream: Callable[..., Any]
) -> None:
    cluster.create(log_name)
    fill(cluster, log_name, numbered(5))
    query = sunk.start(stream(log_name), processingTime="0 seconds")
    wait_until(lambda: query.lastProgress is not None, "the query to stand at the end of the log")
    fill(cluster, log_name, numbered(5, first=5))

    def has(*parts: tuple[str, int, int]) -> None:
        def seen() -> bool:
            query.exception() and query.awaitTermination()
            query.processAllAvailable()
            return sunk.rows() == expected(*parts)

        wait_until(seen, f"the query to have read {parts}")

    has(("0", 5, 5))
    cluster.call(lambda admin: admin.alter_log(log_name, partitions=2))
    cluster.wait_settled(log_name)
    fill(cluster, log_name, numbered(7), "1")
    has(("0", 5, 5), ("1", 0, 7))
    query.stop()


@pytest.mark.skipif(
    number_from("HOLDFAST_SPARK_FAULTS", 0) == 0,
    reason="HOLDFAST_SPARK_FAULTS=1, as in make soak; in every run `bars` reads while a node is killed",
)
def test_a_node_that_dies_costs_time_and_no_event(spark: Any, own_cluster: Cluster, sunk: Sunk) -> None:
    own_cluster.create("events", partitions=2)
    fill(own_cluster, "events", numbered(200), "0")
    fill(own_cluster, "events", numbered(200), "1")
    servers = ",".join(own_cluster.addresses)
    source = reader(
        spark.readStream, own_cluster, "events", servers=servers, startingOffsets="earliest", maxEventsPerTrigger=50
    )
    query = sunk.start(source, processingTime="0 seconds")

    def batches() -> int:
        return sum(batch["numInputRows"] > 0 for batch in query.recentProgress)

    wait_until(lambda: batches() > 2, "some batches")
    victim = own_cluster.leaders("events")["0"]
    own_cluster.kill(victim)
    fill(own_cluster, "events", numbered(100, first=200), "0")
    query.processAllAvailable()
    own_cluster.start(victim)
    query.stop()
    assert sunk.rows() == expected(("0", 0, 300), ("1", 0, 200))
