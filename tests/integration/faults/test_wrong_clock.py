"""A real node whose clock is wrong (chaos/clock): it says so, leads nothing, and nothing it stamps is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.clock import OffsetClock
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.workloads.plain import read, send

pytestmark = pytest.mark.cluster

DAY_MS = 86_400_000
PARTITIONS = 3
HOUR_MS = 3_600_000
OFF = "this node's clock is off the cluster's time"


def led_by(cluster: Cluster, log: str, node: int) -> list[str]:
    """Partitions that the node leads."""
    return [partition for partition, leader in cluster.leaders(log).items() if leader == node]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("days", [30, -30], ids=["ahead", "behind"])
def test_a_node_with_a_wrong_clock_hands_its_leaderships_over_and_says_so(
    make_cluster: Callable[..., Cluster], log_name: str, tmp_path: Path, days: int
) -> None:
    clock = OffsetClock(tmp_path / "clock")
    cluster = make_cluster(clocks={1: clock})
    cluster.start()
    cluster.create(log_name, PARTITIONS)
    wait_until(lambda: led_by(cluster, log_name, 1), "node 1 to lead something")
    began_ms = time.time() * 1000
    for partition in range(PARTITIONS):
        send(cluster.address(2), log_name, ["before"], str(partition))

    clock.set_wrong(days * DAY_MS)
    wait_until(lambda: OFF in cluster.log(1), "a word on the clock")
    wait_until(lambda: not led_by(cluster, log_name, 1), "node 1 to lead nothing")
    status = cluster.call(lambda admin: admin.node_status(1), [cluster.address(1)])
    assert not status["ready"]
    problems = [problem for problem in status["problems"] if problem.startswith("clock:")]
    assert len(problems) == 1
    assert "correct this node's clock" in problems[0]
    assert f"{days * DAY_MS / 1000:+.0f}"[:4] in problems[0]
    for partition in range(PARTITIONS):
        send(cluster.address(1), log_name, ["meanwhile"], str(partition))
    cluster.kill(1)
    before = len(cluster.log(1))
    cluster.start(1)
    wait_until(lambda: OFF in cluster.log(1)[before:], "a word on the clock after a restart")
    wait_until(lambda: not led_by(cluster, log_name, 1), "node 1 to lead nothing again")

    clock.set_wrong(0)
    wait_until(lambda: "is no longer off" in cluster.log(1), "a word on the corrected clock")
    wait_until(lambda: led_by(cluster, log_name, 1), "node 1 to lead again")
    for partition in range(PARTITIONS):
        send(cluster.address(3), log_name, ["after"], str(partition))
        events = read(cluster.address(2), log_name, 3, str(partition))
        assert [event.body for event in events] == ["before", "meanwhile", "after"]
        for event in events:
            assert began_ms - HOUR_MS < event.timestamp_ms < time.time() * 1000 + HOUR_MS, event
