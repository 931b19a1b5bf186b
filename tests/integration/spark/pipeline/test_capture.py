"""Capture and replay: each event once, in its order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.spark.conftest import reader
from tests.integration.spark.events import fill, numbered

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_capture_holds_each_event_once_by_date_and_hour(
    spark: Any, cluster: Cluster, log_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `spark-submit` runs it."""
    from pipeline import capture

    cluster.create(log_name, partitions=2)
    fill(cluster, log_name, numbered(100), "0")
    fill(cluster, log_name, numbered(100), "1")
    parquet = tmp_path / "out"
    arguments = ["--server", ",".join(cluster.addresses), "--source", log_name, "--parquet", str(parquet)]
    arguments += ["--checkpoint", str(tmp_path / "state"), "--max-events", "60", "--available-now"]
    capture.main(arguments)
    fill(cluster, log_name, numbered(30, first=100), "1")
    capture.main(arguments)
    rows = spark.read.parquet(str(parquet)).collect()
    places = sorted((row.partition, row.offset, bytes(row.body)) for row in rows)
    expected = [("0", number, b"e%d" % number) for number in range(100)]
    assert places == expected + [("1", number, b"e%d" % number) for number in range(130)]
    assert all(row.hour == row.enqueuedTime.hour for row in rows)
    assert sum(int(line.split()[2].replace(",", "")) for line in capsys.readouterr().out.splitlines()) == 230
    directories = {path.parent.relative_to(parquet).parts[0].partition("=")[0] for path in parquet.rglob("*.parquet")}
    assert directories == {"date"}

    replayed(spark, cluster, log_name, parquet)
    audited(spark, parquet)


def audited(spark: Any, parquet: Path) -> None:
    """Nothing in it is there twice; and what is captured once more, is."""
    from pipeline.audit import Audit, run

    said: list[str] = []
    value = "concat(partition, '/', cast(body AS STRING))"
    verdict = run(spark, Audit(captured=str(parquet), value=value), said.append)
    assert verdict.result == "PASSED"
    assert verdict.checks["duplicate"] == ("PASSED", 230, 0)
    assert verdict.checks["lost"] == ("NODATA", 0, 0), "nobody has said what was sent"
    events, again = spark.read.parquet(str(parquet)), parquet.with_name("again")
    events.unionByName(events.where("offset < 2")).write.parquet(str(again))
    verdict = run(spark, Audit(captured=str(again), value=value), said.append)
    assert verdict.checks["duplicate"] == ("FAILED", 234, 4)
    assert "duplicate: 0/e1 at 0/1: is there 2 times" in said


def replayed(spark: Any, cluster: Cluster, log_name: str, parquet: Path) -> None:
    """What was captured is a log again, in its order; once, however often it is asked for."""
    from pipeline.replay import Replay, run

    said: list[str] = []
    target = f"{log_name}-again"
    cluster.create(target, partitions=2)
    job = Replay(",".join(cluster.addresses), str(parquet), target, f"{log_name}-replay", same_partitions=True)
    run(spark, job, said.append)
    run(spark, job, said.append)
    rows = reader(spark.read, cluster, target).load().orderBy("partition", "offset").collect()
    expected = [("0", b"e%d" % number) for number in range(100)] + [("1", b"e%d" % number) for number in range(130)]
    assert [(row.partition, bytes(row.body)) for row in rows] == expected
    assert {row.key for row in rows} == {"k0", "k1", "k2"}
    assert said[0] == f"230 events of {parquet} are in {target}"
