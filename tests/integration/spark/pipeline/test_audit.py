"""The audit as people run it: by spark-submit, and by the command.

What each of its checks finds, and does not find, is judged in `test_checks_of_runs`, what it says of a log that was
captured, in `test_capture`. With HOLDFAST_OPERATIONS, which `make soak` sets, spark-submit runs it, too, also over a
history of that length, which is judged by every checker of chaos runs as well.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.app import main
from tests.integration.conftest import number_from
from tests.integration.spark.session import INTERPRETED, QUICK_START, ROOT, environment, why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=why_not() or "")]

OPERATIONS = number_from("HOLDFAST_OPERATIONS", 0)
IS_LARGE = OPERATIONS > 1_000_000
HEAP = "4g" if IS_LARGE else "512m"
LONG_S = 3600
LONG = pytest.mark.skipif(not OPERATIONS, reason="takes minutes: HOLDFAST_OPERATIONS=100000, as in make soak")


def settings(directory: Path) -> list[str]:
    """Of Spark; those for short runs only where it is one."""
    given = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }  # fmt: skip
    if not IS_LARGE:
        given |= {**INTERPRETED, "spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": QUICK_START}
    conf = [text for name, value in given.items() for text in ("--conf", f"{name}={value}")]
    return ["--master", "local[2]", "--driver-memory", HEAP, *conf]


def run(command: list[str], directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment(directory), **more}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=variables, timeout=LONG_S)


@pytest.fixture
def long_run(tmp_path: Path) -> Path:
    """A directory as `holdfast chaos run` leaves it; one event was lost in it, and one is there twice."""
    from benchmarks.checks import history, planted

    tables = history.make(OPERATIONS)
    for checker in ("C1", "C3"):
        planted.PLANTED[checker](tables)
    history.write(tables, tmp_path / "history")
    facts = {"plan": {"workload": "W1", "faults": ["F1"]}, "begun_s": 0.0, "begun_ns": 0, "periods": []}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    return tmp_path


def submit(directory: Path, *options: str) -> tuple[list[str], dict[str, str], float]:
    """What spark-submit says of the audit, by check, and how long it takes, in seconds. Something is wrong."""
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *settings(directory)]
    began_s = time.monotonic()
    done = run([*command, str(ROOT / "pipeline" / "audit.py"), *options], directory)
    took_s = time.monotonic() - began_s
    assert done.returncode == 1, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[-1] == "FAILED"
    results = {line.split()[1].rstrip(":"): line.split()[0] for line in lines if " looked at" in line}
    return lines, results, took_s


@LONG
def test_a_captured_log_is_audited_by_spark_submit(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    bodies = [f"e{number}".encode() for number in range(500)]
    bodies[7] = bodies[3]
    numbers = list(range(500))
    columns = {"body": bodies, "partition": ["0"] * 500, "offset": numbers}
    numbers_of_producer = {"producerId": [1] * 500, "sequenceNumber": [*numbers[:400], *range(401, 501)]}
    (tmp_path / "captured").mkdir()
    parquet.write_table(pa.table(columns | numbers_of_producer), tmp_path / "captured" / "part.parquet")
    lines, results, _ = submit(tmp_path, "--captured", str(tmp_path / "captured"))
    assert {name: result for name, result in results.items() if result != "NODATA"} == {
        "two-values": "PASSED", "duplicate": "FAILED", "sequence-gap": "FAILED"
    }  # fmt: skip
    assert "duplicate: e3 at 0/3: is there 2 times" in lines
    assert "sequence-gap: e400 at 0/400: producer id 1: behind number 399 stands 401" in lines


@LONG
@pytest.mark.timeout(2 * LONG_S)
def test_a_long_history_is_audited_by_spark_submit(long_run: Path, measured: Any) -> None:
    lines, results, took_s = submit(long_run, "--history", str(long_run / "history"))
    assert {name for name, result in results.items() if result == "FAILED"} == {"lost", "duplicate"}, lines
    assert "NODATA" not in results.values()
    assert "lost: p1:15 at 1/15: acknowledged to p1, and not in the log" in lines
    assert any(line.startswith("duplicate: p1:") and line.endswith(": is there 2 times") for line in lines), lines
    measured(f"{OPERATIONS:,} operations audited by spark-submit in {took_s:.0f} s")


@LONG
@pytest.mark.timeout(2 * LONG_S)
def test_a_long_run_is_judged_by_every_checker(long_run: Path, measured: Any) -> None:
    given = shlex.join([*settings(long_run), "pyspark-shell"])
    command = [sys.executable, "-m", "holdfast.cli", "chaos", "report", str(long_run), "--spark", "--json"]
    began_s = time.monotonic()
    done = run(command, long_run, PYSPARK_SUBMIT_ARGS=given)
    took_s = time.monotonic() - began_s
    assert done.returncode == 1, done.stderr[-3000:]
    verdicts = json.loads(done.stdout)["verdicts"]
    assert {name for name, result in verdicts.items() if result == "FAILED"} == {"C1", "C3"}
    assert {name for name, result in verdicts.items() if result == "NODATA"} == {"REG"}
    assert not (long_run / "report.html").exists(), "a history of this length is not drawn"
    measured(f"{OPERATIONS:,} operations judged by every checker in {took_s:.0f} s")


def test_an_empty_log_proves_nothing(tmp_path: Path, spark: Any) -> None:
    """As the command says it."""
    columns = "body binary, partition string, offset bigint, producerId bigint, sequenceNumber bigint"
    spark.createDataFrame([], columns).write.parquet(str(tmp_path / "empty"))
    done = CliRunner().invoke(main, ["pipeline", "audit", "--captured", str(tmp_path / "empty"), "--json"])
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["result"] == "NODATA"
    assert {check["result"] for check in found["checks"].values()} == {"NODATA"}
