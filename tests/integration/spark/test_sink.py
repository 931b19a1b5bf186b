"""Into a log: as a batch and as a stream, with keys, partitions and properties, each event once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.conftest import number_from
from tests.integration.spark.conftest import reader
from tests.integration.spark.events import fill, numbered
from tests.integration.spark.sink import Through, by_partition, committed_bodies, write
from tests.integration.spark.streams import to_end

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROWS = number_from("HOLDFAST_SPARK_ROWS", 3_000)
"""Of each of four tasks; one that has eight times as many sends them in more than one piece."""


def names(count: int, prefix: str = "e") -> list[bytes]:
    return sorted(b"%s%d" % (prefix.encode(), number) for number in range(count))


def test_a_frame_becomes_events(spark: Any, cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, partitions=3)
    rows = [
        (b"free", None, None, None),
        (b"named", None, 2, None),
        (b"keyed", "IBM", None, {}),
        (b"both", "IBM", 0, {"colour": "red", "size": None}),
        (b"x" * 300, "MSFT", None, {"colour": "blue"}),
    ]
    kinds = "body binary, key string, partition int, properties map<string,string>"
    write(spark.createDataFrame(rows, kinds).coalesce(1), cluster, log_name)
    found = {bytes(row.body): row for row in reader(spark.read, cluster, log_name).load().collect()}
    assert sorted(found) == sorted(row[0] for row in rows)
    assert {body: row.key for body, row in found.items()} == {row[0]: row[1] for row in rows}
    assert found[b"named"].partition == "2"
    assert found[b"both"].partition == "0"
    assert found[b"both"].properties == {"colour": "red", "size": None}
    assert found[b"x" * 300].properties == {"colour": "blue"}
    with_client = cluster_partition(cluster, log_name, "IBM"), cluster_partition(cluster, log_name, "MSFT")
    assert (found[b"keyed"].partition, found[b"x" * 300].partition) == with_client


def cluster_partition(cluster: Cluster, log: str, key: str) -> str:
    from holdfast.client.sync import ProducerClient

    with ProducerClient(cluster.addresses, log) as producer:
        return producer.partition_of(key)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_many_rows_of_many_tasks(spark: Any, cluster: Cluster, log_name: str, guarantee: str) -> None:
    cluster.create(log_name, partitions=3)
    frame = spark.range(4 * ROWS, numPartitions=4).selectExpr("concat('e', id) AS body")
    write(frame, cluster, log_name, guarantee=guarantee)
    rows = reader(spark.read, cluster, log_name, columns="body,partition").load().collect()
    assert sorted(bytes(row.body) for row in rows) == names(4 * ROWS)
    shares = [sum(row.partition == partition for row in rows) for partition in ("0", "1", "2")]
    assert min(shares) > ROWS * 14 // 15, f"rows without a key are spread: {shares}"


def test_rows_with_a_key_keep_their_order(spark: Any, cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name, partitions=2)
    frame = spark.range(8 * ROWS, numPartitions=1).selectExpr("concat('e', id) AS body", "concat('k', id % 7) AS key")
    for guarantee in ("exactly-once", "at-least-once"):
        write(frame, cluster, log_name, guarantee=guarantee)
    seen = [int(body[1:]) for bodies in by_partition(cluster, log_name).values() for body in bodies]
    for key in range(7):
        assert [number for number in seen if number % 7 == key] == [*range(key, 8 * ROWS, 7)] * 2


def test_nothing_is_written_of_nothing(spark: Any, cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name)
    write(spark.createDataFrame([], "body binary"), cluster, log_name)
    assert committed_bodies(cluster, log_name) == []


def test_a_batch_that_was_written_is_not_written_again(spark: Any, cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name)

    def put(body: bytes, batch: int) -> None:
        write(spark.createDataFrame([(body,)], "body binary"), cluster, log_name, writerId="orders", batchId=batch)

    put(b"one", 4)
    put(b"two", 4)
    put(b"three", 3)
    put(b"four", 5)
    assert committed_bodies(cluster, log_name) == [b"four", b"one"]


def refusal(action: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which of Spark's classes is Spark's business
        action()
    said = [line for line in str(caught.value).splitlines() if "SourceFailed: " in line]
    assert said, str(caught.value)[-3000:]
    return re.sub(r".*SourceFailed: ", "", said[-1])


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("'x' AS value", {}, "the column 'value' has no place in an event: a log takes body"),
        ("'x' AS key", {}, "there is no column 'body'"),
        ("id AS body", {}, "the column 'body' is binary or string, not bigint"),
        ("'x' AS body; id AS key", {}, "the column 'key' is string, not bigint"),
        ("'x' AS body; map('a', 1) AS properties", {}, "the column 'properties' is map<string,string>, not map"),
        ("'x' AS body", {"writerid": "me"}, "a batch write has the options writerId and batchId, or none of them"),
        ("'x' AS body", {"guarantee": "twice"}, "option guarantee is 'exactly-once' or 'at-least-once'"),
        ("'x' AS body", {"startingOffsets": "latest"}, "there is no option 'startingoffsets'"),
        ("'x' AS body", {"log": "nowhere"}, "there is no log 'nowhere'"),
        ("'x' AS body; 7 AS partition", {}, "a row names partition '7', and log 'sink-refusals' has 0"),
        ("CAST(NULL AS BINARY) AS body", {}, "the body of a row is null"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: Any, cluster: Cluster, query: str, options: dict[str, str], said: str
) -> None:
    log = "sink-refusals"
    options = dict(options)
    target = options.pop("log", log)
    if log not in {entry["name"] for entry in cluster.call(lambda admin: admin.list_logs())}:
        cluster.create(log)
    frame = spark.range(1).selectExpr(*query.split("; "))
    assert said in refusal(lambda: write(frame, cluster, target, **options))
    assert committed_bodies(cluster, log) == []


def test_a_log_is_not_overwritten(spark: Any, cluster: Cluster, log_name: str) -> None:
    cluster.create(log_name)
    frame = spark.createDataFrame([(b"x",)], "body binary")
    said = refusal(lambda: reader(frame.write, cluster, log_name).mode("overwrite").save())
    assert "a log is appended to, and never overwritten" in said


# ---------------------------------------------------------------- streams


def test_a_stream_in_batches_whose_last_commit_was_lost(
    spark: Any, cluster: Cluster, log_name: str, tmp_path: Path
) -> None:
    source, target = f"{log_name}-from", log_name
    cluster.create(source, partitions=2)
    cluster.create(target, partitions=2)
    fill(cluster, source, numbered(100), "0")
    fill(cluster, source, numbered(100, first=100), "1")
    through = Through(spark, cluster, source, target, tmp_path / "checkpoint")
    through.run(most=100)
    assert committed_bodies(cluster, target) == names(200)

    assert through.lose_last_commit() == 1
    through.run(most=100)
    assert committed_bodies(cluster, target) == names(200), "the batch was there already"
    fill(cluster, source, numbered(50, first=200), "1")
    through.run(most=100)
    assert committed_bodies(cluster, target) == names(250)
    kept = reader(spark.read, cluster, target, columns="key").load().collect()
    assert {row.key for row in kept} == {"k0", "k1", "k2"}


def test_a_writer_with_a_name_whose_checkpoint_was_deleted(
    spark: Any, cluster: Cluster, log_name: str, tmp_path: Path
) -> None:
    source, target = f"{log_name}-from", log_name
    cluster.create(source)
    cluster.create(target)
    fill(cluster, source, numbered(30))
    Through(spark, cluster, source, target, tmp_path / "one").run(most=15, writerId="mine")
    again = Through(spark, cluster, source, target, tmp_path / "two")
    with pytest.raises(Exception, match="checkpoint was deleted"):
        again.run(most=15, writerId="mine")
    assert committed_bodies(cluster, target) == names(30), "nothing dropped without a word, nothing written twice"
    again.run(most=15)
    assert len(committed_bodies(cluster, target)) == 60, "by the query's id it is another writer"


def test_in_foreach_batch_the_writer_has_a_name(spark: Any, cluster: Cluster, log_name: str, tmp_path: Path) -> None:
    source, target = f"{log_name}-from", log_name
    cluster.create(source)
    cluster.create(target)
    fill(cluster, source, numbered(30))
    through = Through(spark, cluster, source, target, tmp_path / "checkpoint")

    def run() -> None:
        events = reader(spark.readStream, cluster, source, startingOffsets="earliest", maxEventsPerTrigger=15).load()
        writer = (
            events.select("body")
            .writeStream.foreachBatch(
                lambda frame, batch: write(frame, cluster, target, writerId=log_name, batchId=batch)
            )
            .option("checkpointLocation", str(through.checkpoint))
            .trigger(availableNow=True)
        )
        to_end(writer.start)

    run()
    through.lose_last_commit()
    run()
    assert committed_bodies(cluster, target) == names(30)


def test_progress_that_is_tracked_later_is_refused(spark: Any, cluster: Cluster, log_name: str, tmp_path: Path) -> None:
    cluster.create(log_name)
    through = Through(spark, cluster, log_name, log_name, tmp_path / "checkpoint")
    fill(cluster, log_name, numbered(1))
    with pytest.raises(Exception, match=r"async(hronous)? progress tracking"):  # Spark's own words come first
        through.run(asyncProgressTrackingEnabled="true")
