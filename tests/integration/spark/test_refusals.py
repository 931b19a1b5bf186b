"""What cannot work is said in one sentence, on the driver, before a task is started."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.spark.conftest import reader
from tests.integration.spark.events import fill, numbered
from tests.integration.spark.streams import to_end
from tests.ports import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def refusal(frame: Callable[[], Any]) -> str:
    """What Spark says of it: one sentence, behind its own words."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which of Spark's classes is Spark's business
        frame().collect()
    text = str(caught.value).partition("JVM stacktrace")[0]
    assert "Traceback" not in text
    assert "  File " not in text
    assert text.count("holdfast.spark.errors.") == 1
    [sentence] = [line for line in text.splitlines() if "holdfast.spark.errors." in line]
    return sentence.partition("holdfast.spark.errors.SourceFailed: ")[2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "there is no option 'startingofsets': did you mean startingOffsets?"),
        ({"columns": "colour"}, "option columns names 'colour': there are body, partition"),
        ({"partitions": "0,7"}, "option partitions names '7'"),
        ({"startingOffsets": '{"0": 99}'}, "option startingOffsets says 99 of partition 0, which ends at 3 now"),
        ({"endingOffsets": '{"0": 99}'}, "option endingOffsets says 99 of partition 0, which ends at 3 now"),
        ({"startingOffsets": '{"0": 2}', "endingOffsets": '{"0": 1}'}, "the end lies before the start"),
        ({"filter": "a.price >"}, "character 10: expected a field"),
        ({"filter": "price > 1"}, "An application property is written a.price"),
        ({"log": "nowhere"}, "there is no log 'nowhere'"),
    ],
    ids=lambda value: ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_wrong_options(cluster: Cluster, spark: Any, options: dict[str, str], said: str) -> None:
    log = "refusals"
    if log not in {entry["name"] for entry in cluster.call(lambda admin: admin.list_logs())}:
        cluster.create(log)
        fill(cluster, log, numbered(3))
    assert said in refusal(lambda: reader(spark.read, cluster, log, **options).load())


def test_nobody_there(cluster: Cluster, spark: Any, log_name: str) -> None:
    [port] = free_ports(1)
    servers = f"127.0.0.1:{port}"
    assert servers in refusal(lambda: reader(spark.read, cluster, log_name, servers=servers).load())


def test_a_schema_of_ones_own(cluster: Cluster, spark: Any, log_name: str) -> None:
    cluster.create(log_name)
    said = refusal(lambda: reader(spark.read.schema("price double"), cluster, log_name).load())
    assert "the columns of a log are body, partition" in said


def test_what_retention_has_taken(cluster: Cluster, spark: Any, log_name: str, tmp_path: Path) -> None:
    from holdfast.spark.errors import SourceFailed
    from holdfast.spark.offsets import OffsetRange
    from holdfast.spark.options import SourceOptions
    from holdfast.spark.range_task import RangePartition, read_range

    cluster.create(log_name)
    fill(cluster, log_name, numbered(100))
    written, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def stream(**options: Any) -> None:
        source = reader(spark.readStream, cluster, log_name, startingOffsets="earliest", **options).load()
        writer = source.select("offset").writeStream.format("parquet").option("checkpointLocation", checkpoint)
        writer = writer.trigger(availableNow=True)
        to_end(lambda: writer.start(written))

    stream()
    fill(cluster, log_name, numbered(100, first=100))
    cluster.call(lambda admin: admin.alter_log(log_name, retention_ms=1))

    def begins() -> int:
        return int(str(cluster.info(log_name)["0"].details["next-offset"]), 16)

    wait_until(lambda: cluster.info(log_name)["0"].earliest_offset is None, "retention to empty the log")
    cluster.call(lambda admin: admin.alter_log(log_name, retention_ms=None))
    fill(cluster, log_name, numbered(10, first=200))
    assert begins() == 210

    lost = "the events from 100 to 199 are asked for, and are not retained any more"
    with pytest.raises(Exception, match=lost):
        stream()
    stream(failOnDataLoss="false")
    seen = sorted(row.offset for row in spark.read.parquet(written).collect())
    assert seen == [*range(100), *range(200, 210)]

    some = '{"0": 150}'
    said = refusal(lambda: reader(spark.read, cluster, log_name, startingOffsets=some).load())
    assert "the events from 150 to 199 are asked for, and are not retained any more" in said
    kept = reader(spark.read, cluster, log_name, startingOffsets=some, failOnDataLoss="false").load()
    assert sorted(row.offset for row in kept.collect()) == list(range(200, 210))
    assert reader(spark.read, cluster, log_name).load().count() == 10, "the earliest is what there is: nothing is lost"

    # A task whose range was planned before retention came.
    options = SourceOptions(",".join(cluster.addresses), log_name)
    late = RangePartition(OffsetRange("0", 150, 205), options, log_name)
    with pytest.raises(SourceFailed, match="retention has reached 200 while the events from 150 to 204 were read"):
        list(read_range(late))
    late.options = replace(options, fail_on_data_loss=False)
    assert [number for batch in read_range(late) for number in batch["offset"].to_pylist()] == list(range(200, 205))


def test_a_log_that_was_made_anew(cluster: Cluster, spark: Any, log_name: str, tmp_path: Path) -> None:
    cluster.create(log_name)
    fill(cluster, log_name, numbered(20))

    def stream() -> None:
        source = reader(spark.readStream, cluster, log_name, startingOffsets="earliest").load()
        writer = source.select("offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        to_end(lambda: writer.start(str(tmp_path / "out")))

    stream()
    cluster.call(lambda admin: admin.delete_log(log_name))
    cluster.create(log_name)
    fill(cluster, log_name, numbered(50))
    with pytest.raises(Exception, match=r"is not the one that the checkpoint is of .*deleted and made anew"):
        stream()
    assert sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(20))


def test_another_cluster_is_not_read_on_from_the_checkpoint_of_the_first(
    make_cluster: Callable[..., Cluster], spark: Any, log_name: str, tmp_path: Path
) -> None:
    """Nor by a task that was planned for the first one."""
    from holdfast.spark.batch_reader import BatchReader
    from holdfast.spark.errors import SourceFailed
    from holdfast.spark.options import SourceOptions

    cluster = make_cluster(nodes=1)
    written = str(tmp_path / "out")

    def found() -> None:
        cluster.start()
        cluster.create(log_name)

    def stream() -> None:
        source = reader(spark.readStream, cluster, log_name, startingOffsets="earliest").load()
        writer = source.select("offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        to_end(lambda: writer.start(written))

    found()
    fill(cluster, log_name, numbered(20))
    stream()
    planned = BatchReader(SourceOptions(cluster.address(1), log_name))
    (task,) = planned.partitions()
    cluster.kill()
    shutil.rmtree(cluster.nodes[1].data_dir)
    found()
    fill(cluster, log_name, numbered(50))
    with pytest.raises(Exception, match="another cluster answers at this address"):
        stream()
    with pytest.raises(SourceFailed, match="another cluster answers at this address"):
        list(planned.read(task))
    assert sorted(row.offset for row in spark.read.parquet(written).collect()) == list(range(20))
