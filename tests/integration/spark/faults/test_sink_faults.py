"""What goes wrong while Spark writes: attempts fail, lag and hang, the driver is killed; each event is there once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.spark.driver import WITHIN_S, Driver
from tests.integration.spark.events import fill, numbered
from tests.integration.spark.session import why_not
from tests.integration.spark.sink import committed_bodies

pytestmark = [
    pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(2400),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]  # fmt: skip
EVENTS = 240
takes_minutes = pytest.mark.skipif(
    number_from("HOLDFAST_SPARK_FAULTS", 0) == 0, reason="takes minutes: HOLDFAST_SPARK_FAULTS=1, as in make soak"
)
"""What is proved of replayed batches in every run: `test_sink.py`, where the last commit of a checkpoint is lost."""


class Job:
    """`sink_job`."""

    def __init__(self, cluster: Cluster, log: str, directory: Path) -> None:
        self.target, self.said = f"{log}-to", directory / "said"
        self.driver = Driver(["tests.integration.spark.faults.sink_job"], directory)
        self._given = {
            "servers": ",".join(cluster.addresses),
            "source": log,
            "target": self.target,
            "checkpoint": str(directory / "checkpoint"),
            "said": str(self.said),
            "master": "local[2]",
            "most": EVENTS // 3,
            "tasks": 4,
        }
        cluster.create(log, partitions=2)
        cluster.create(self.target, partitions=2)
        fill(cluster, log, numbered(EVENTS // 2), "0")
        fill(cluster, log, numbered(EVENTS // 2, first=EVENTS // 2), "1")

    def start(self, **more: Any) -> None:
        self.driver.start(json.dumps(self._given | more))

    def run(self, **more: Any) -> None:
        self.start(**more)
        self.driver.wait()

    def killed(self, stop_at: str) -> None:
        """Run it up to there."""
        self.said.unlink(missing_ok=True)
        self.start(stop_at=stop_at)
        wait_until(lambda: self.said.exists() or self.driver.has_ended(), f"the job to stand still {stop_at}", WITHIN_S)
        assert self.said.exists(), self.driver.said()
        self.driver.kill()


@pytest.fixture
def job(cluster: Cluster, log_name: str, tmp_path: Path) -> Iterator[Job]:
    job = Job(cluster, log_name, tmp_path)
    yield job
    job.driver.kill()


ALL = sorted(b"e%d" % number for number in range(EVENTS))


@takes_minutes
def test_a_third_of_all_attempts_fails_and_some_run_twice(cluster: Cluster, job: Job) -> None:
    job.run(
        master="local-cluster[2,1,600]",
        failing=True,
        settings={
            "spark.task.maxFailures": "8",
            "spark.excludeOnFailure.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.speculation": "true",
            "spark.speculation.interval": "200ms",
            "spark.speculation.quantile": "0.25",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.minTaskRuntime": "1s",
        },
    )
    attempts = [tuple(map(int, line.split())) for line in job.said.read_text().splitlines()]
    failed = [number for _, _, number in attempts if number % 3 == 0]
    assert len(attempts) > 12, "each of the three batches has four parts"
    assert len(failed) * 5 > len(attempts), attempts
    assert committed_bodies(cluster, job.target) == ALL


@takes_minutes
def test_the_driver_is_killed_before_and_after_a_commit(cluster: Cluster, job: Job) -> None:
    job.killed("after 0")
    assert len(committed_bodies(cluster, job.target)) == EVENTS // 3, "the batch counts, and Spark does not know"
    job.killed("before 1")
    assert len(committed_bodies(cluster, job.target)) == EVENTS // 3
    job.killed("after 1")
    assert len(committed_bodies(cluster, job.target)) == 2 * EVENTS // 3
    job.run()
    assert committed_bodies(cluster, job.target) == ALL


def test_an_attempt_that_hangs_lets_go_and_its_readers_go_on(
    cluster: Cluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process lives on, and with it the thread that would renew its lease."""
    import pyarrow as pa

    from holdfast.client.sync import ProducerClient
    from holdfast.client.transact.group_member import GroupNames
    from holdfast.spark.errors import SourceFailed
    from holdfast.spark.sink import part_task
    from holdfast.spark.sink.options import SinkOptions

    monkeypatch.setattr(part_task, "HELD_BYTES", 0)
    monkeypatch.setattr(part_task, "SENT_ROWS", 1)
    cluster.create(log_name)
    go_on = threading.Event()
    failures: list[BaseException] = []

    def input_that_stalls() -> Iterator[pa.RecordBatch]:
        batch = pa.record_batch({"body": pa.array([b"never"], pa.binary())})
        yield batch
        yield batch
        go_on.wait()
        yield batch

    def attempt() -> None:
        names = GroupNames("hanging/" + log_name, 0, "run")
        options = SinkOptions(",".join(cluster.addresses), log_name, lease_s=4.0)
        try:
            part_task.write_exactly_once(options, part_task.Attempt(names, 0, "0"), input_that_stalls())
        except SourceFailed as error:
            failures.append(error)

    def end(isolation: str) -> int:
        from holdfast.client.sync import RangeClient

        with RangeClient(cluster.addresses, isolation=isolation) as client:  # type: ignore[arg-type]
            return client.extents(log_name)[0].end

    thread = threading.Thread(target=attempt)
    thread.start()
    try:
        wait_until(lambda: end("uncommitted") > 0, "the attempt to have written something")
        with ProducerClient(cluster.addresses, log_name) as producer:
            producer.send_and_confirm(b"behind it", partition="0")
        wait_until(lambda: committed_bodies(cluster, log_name) == [b"behind it"], "readers to get past the attempt")
        assert not failures, "it hangs still"
    finally:
        go_on.set()
        thread.join()
    assert "rolled back" in str(failures[0])
