"""Not one process that plays a cluster, but a master, two workers, and executors of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.spark.driver import Driver
from tests.integration.spark.events import fill, numbered
from tests.integration.spark.faults.standalone import standalone
from tests.integration.spark.session import ROOT, why_not
from tests.integration.spark.sink import committed_bodies

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=why_not() or "")]

EVENTS = 240
EACH = 200  # of a partition
LEASE_S = 5


SOAK = pytest.mark.skipif(
    number_from("HOLDFAST_SPARK_FAULTS", 0) == 0, reason="takes minutes: HOLDFAST_SPARK_FAULTS=1, as in make soak"
)


@SOAK
def test_a_master_and_two_workers_read_and_write_a_log(cluster: Cluster, log_name: str, tmp_path: Path) -> None:
    target = f"{log_name}-to"
    cluster.create(log_name, partitions=3)
    cluster.create(target, partitions=3)
    for partition in ("0", "1", "2"):
        fill(cluster, log_name, numbered(EACH), partition)
    with standalone(tmp_path) as spark:
        one = cluster.address(cluster.other_than(cluster.leaders(log_name)["0"]))
        module = "tests.integration.spark.faults.standalone_job"
        job = subprocess.run(
            [sys.executable, "-m", module, spark.master, one, log_name, target],
            capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env={**os.environ, **spark.environment},
        )  # fmt: skip
        assert job.returncode == 0, job.stderr[-3000:]
        seen = json.loads(job.stdout.splitlines()[-1])
    assert seen["places"] == [[partition, offset] for partition in ("0", "1", "2") for offset in range(EACH)]
    assert seen["executors"] == 2, "both workers took part"
    bodies = sorted(f"e{number}" for number in range(EACH))
    assert seen["written"] == [[partition, body] for partition in ("0", "1", "2") for body in bodies]


@SOAK
def test_a_worker_that_stands_still_and_wakes_after_its_lease_writes_nothing(
    cluster: Cluster, log_name: str, tmp_path: Path
) -> None:
    """With its executor and its Python workers. Its task is given to the other worker; when it comes back, it goes on
    writing, and is refused."""
    target, said, go_on = f"{log_name}-to", tmp_path / "said", tmp_path / "go-on"
    cluster.create(log_name)
    cluster.create(target, partitions=2)
    fill(cluster, log_name, numbered(EVENTS), "0")
    given = {
        "servers": ",".join(cluster.addresses), "source": log_name, "target": target, "most": EVENTS, "tasks": 2,
        "checkpoint": str(tmp_path / "checkpoint"), "said": str(said), "go_on": str(go_on), "lease": LEASE_S,
        "settings": {
            "spark.task.maxFailures": "8", "spark.executor.memory": "512m", "spark.executor.cores": "1",
            "spark.cores.max": "2", "spark.executor.heartbeatInterval": "2s", "spark.network.timeout": "15s",
            "spark.network.timeoutInterval": "5s",
            "spark.excludeOnFailure.enabled": "false",
        },
    }  # fmt: skip
    with standalone(tmp_path, patience_s=10) as spark:
        driver = Driver(["tests.integration.spark.faults.sink_job"], tmp_path, spark.environment)
        driver.start(json.dumps(given | {"master": spark.master}))
        try:
            wait_until(lambda: said.exists() or driver.has_ended(), "a task to have written some of its part")
            victim = spark.worker_of(int(said.read_text()))
            with spark.paused(victim):
                wait_until(driver.has_ended, "the other worker to do all of it")
                assert committed_bodies(cluster, target) == sorted(b"e%d" % number for number in range(EVENTS))
            go_on.touch()
            wait_until((tmp_path / "refused").exists, "the worker to come back, and to be refused")
        finally:
            driver.kill()
    assert committed_bodies(cluster, target) == sorted(b"e%d" % number for number in range(EVENTS))
    assert "rolled back" in (tmp_path / "refused").read_text()
