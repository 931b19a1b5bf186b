"""Real nodes on disks that fail on order: chaos/disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.disk import FaultyDisk
from tests.disks import disk_on_order
from tests.integration.clusters.cluster import READY_WITHIN_S, Cluster, wait_until
from tests.integration.clusters.repairing import readmit, wait_caught_up
from tests.integration.judges.judging import judge
from tests.integration.workloads.holdfast_producer import HoldfastProducer
from tests.integration.workloads.plain import send

pytestmark = pytest.mark.cluster

PARTITIONS = 3


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    """Of node 1."""
    return disk_on_order(tmp_path)


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], disk: FaultyDisk, log_name: str) -> Cluster:
    cluster = make_cluster(disks={1: disk}, min_free_bytes=0)
    cluster.start()
    cluster.create(log_name, PARTITIONS)
    return cluster


@pytest.fixture
def producers(cluster: Cluster, log_name: str) -> list[HoldfastProducer]:
    """At work, one for each partition, so that each node leads one."""
    everywhere = [cluster.address(node) for node in cluster.nodes]
    found = [
        HoldfastProducer(everywhere, log_name, str(number), f"p{number}", per_second=500, idempotent=True).begin()
        for number in range(PARTITIONS)
    ]
    go_on(found)
    return found


def go_on(producers: list[HoldfastProducer], count: int = 200) -> None:
    for producer in producers:
        producer.wait_for(count, within_s=READY_WITHIN_S)


def ends_itself(cluster: Cluster, node: int) -> str:
    """And what it says then."""
    assert cluster.wait_exit(node) == 3
    said = cluster.log(node).encode()
    fresh = said[cluster.nodes[node].log_read :].decode()
    cluster.nodes[node].log_read = len(said)
    return fresh


def test_all_that_a_node_writes_passes_through_the_library(
    make_cluster: Callable[..., Cluster], log_name: str, tmp_path: Path
) -> None:
    """Otherwise nothing that is tested here would prove anything."""
    disk = disk_on_order(tmp_path, mirrors=True)
    cluster = make_cluster(nodes=1, disks={1: disk})
    for end in (cluster.kill, cluster.stop):
        cluster.start()
        if end == cluster.kill:
            cluster.create(log_name)
        send(cluster.address(1), log_name, [b"x" * 3000 for _ in range(200)], "0")
        end(1)
        assert disk.unseen() == []
    assert sum(path.stat().st_size for path in disk.root.rglob("*.seg")) > 2 * 200 * 3000
    assert list(disk.root.rglob("*.sst"))


def test_a_failed_sync_ends_the_node_for_good_and_the_cluster_goes_on(
    cluster: Cluster, disk: FaultyDisk, producers: list[HoldfastProducer], log_name: str
) -> None:
    order = disk.orders.fail("sync", "*.seg")
    said = ends_itself(cluster, 1)
    disk.orders.withdraw(order)
    assert "failed to sync" in said
    assert "holdfast node readmit" in said
    go_on(producers)
    for _ in range(2):  # the disk is well again, and the page cache has everything
        cluster.spawn(1)
        assert "failed to sync" in ends_itself(cluster, 1)
    disk.lose_power()
    cluster.spawn(1)
    assert "failed to sync" in ends_itself(cluster, 1)
    shutil.rmtree(disk.root / "data")
    disk.format()
    cluster.spawn(1)
    readmit(cluster, 1)
    wait_caught_up(cluster, 1)
    go_on(producers)
    cluster.kill(2)  # now node 1 is needed, with everything that it lost
    go_on(producers)
    cluster.start(2)
    judge(cluster, log_name, producers)


def test_a_full_disk_ends_the_node_until_there_is_room(
    cluster: Cluster, disk: FaultyDisk, producers: list[HoldfastProducer], log_name: str
) -> None:
    order = disk.orders.leave_room("*", 300_000)
    assert "free space" in ends_itself(cluster, 1)
    go_on(producers)
    cluster.spawn(1)
    assert "free space" in ends_itself(cluster, 1)
    disk.orders.withdraw(order)
    cluster.start(1)
    go_on(producers)
    cluster.kill(2)
    go_on(producers)
    cluster.start(2)
    judge(cluster, log_name, producers)


def test_short_writes_are_continued(
    cluster: Cluster, disk: FaultyDisk, producers: list[HoldfastProducer], log_name: str
) -> None:
    order = disk.orders.shorten("*.seg", 100, every=3, most=0)
    go_on(producers, 500)
    wait_until(lambda: len(disk.orders.struck(order)) > 20, "short writes")
    cluster.kill(1)
    cluster.start(1)
    cluster.kill(2)
    go_on(producers)
    cluster.start(2)
    judge(cluster, log_name, producers)


def test_a_disk_that_is_slow_for_a_while_slows_and_spoils_nothing(
    cluster: Cluster, disk: FaultyDisk, producers: list[HoldfastProducer], log_name: str
) -> None:
    every = disk.orders.delay("sync", "*.seg", 0.4)
    wait_until(lambda: len(disk.orders.struck(every)) > 10, "slow syncs")
    go_on(producers, 100)
    disk.orders.withdraw(every)
    some = disk.orders.delay("sync", "*", 1.5, every=5)
    wait_until(lambda: len(disk.orders.struck(some)) > 3, "very slow syncs")
    go_on(producers, 100)
    disk.orders.withdraw(some)
    go_on(producers)
    judge(cluster, log_name, producers)
