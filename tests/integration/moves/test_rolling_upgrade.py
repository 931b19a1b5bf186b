"""A cluster goes from version 14 to 15 node by node; then to a later one, back, and on again, while partitions move."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.versions import NEWEST, OLDEST
from holdfast.client.errors import AdminError
from node.storage import data_versions
from node.storage.data_versions import DataVersions
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.judges.judging import Producer, judge, start_producers, wait_resumed
from tests.integration.moves.moving import reassign, replicas, wait_settled
from tests.integration.upgrades.later_release import LATER, earlier_release, later_release

pytestmark = pytest.mark.cluster

NODES = 4
PARTITIONS = 3
SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))


def _restart(cluster: Cluster, log: str, node: int, producers: list[Producer], program: Path | None = None) -> None:
    """Start a node again, with another program; None: this one."""
    cluster.programs.pop(node, None)
    if program is not None:
        cluster.programs[node] = program
    cluster.stop(node)
    cluster.start(node)
    cluster.wait_led(log)
    now_s = time.monotonic()
    for producer in producers:
        wait_resumed(producer, now_s)


@pytest.mark.timeout(600)
def test_moves_wait_for_the_upgrade_and_go_on_through_the_next_one_and_back(
    make_cluster: Callable[..., Cluster], log_name: str, tmp_path: Path
) -> None:
    print(f"HOLDFAST_SEED={SEED}")
    cluster, chance = make_cluster(nodes=NODES), random.Random(SEED)
    cluster.programs = dict.fromkeys(cluster.nodes, earlier_release(tmp_path / "earlier"))
    cluster.start()
    log = cluster.create(log_name, PARTITIONS, 3)
    producers = start_producers(cluster, log)
    for node in cluster.nodes:
        assert cluster.call(lambda admin: admin.cluster_status())["active_version"] == OLDEST
        _restart(cluster, log, node, producers)
        with pytest.raises(AdminError, match="replicas move between nodes from version 15 on"):
            cluster.call(lambda admin: admin.reassign_partition(log, "0", [2, 3, 4]), [cluster.address(node)])
    _finalize(cluster, NEWEST)
    for node in cluster.nodes:
        wait_until(lambda node=node: _data(cluster, node) == DataVersions(NEWEST, NEWEST), f"the data of node {node}")  # type: ignore[misc]

    later = later_release(tmp_path / "later")
    wished: dict[str, list[int]] = {}

    def move() -> None:
        for number in range(PARTITIONS):
            wished[str(number)] = chance.sample(range(1, NODES + 1), 3)
            reassign(cluster, log, str(number), wished[str(number)])

    for node, program in ((1, later), (2, later), (1, None), (3, later), (1, later), (4, later)):
        move()
        _restart(cluster, log, node, producers, program)
        assert cluster.call(lambda admin: admin.cluster_status())["active_version"] == NEWEST
    move()
    _finalize(cluster, LATER)
    move()
    wait_settled(cluster)
    assert replicas(cluster, log) == {partition: sorted(nodes) for partition, nodes in wished.items()}
    judge(cluster, log, producers)


def _finalize(cluster: Cluster, version: int) -> None:
    wait_until(
        lambda: not cluster.call(lambda admin: admin.finalize_upgrade(dry_run=True, heard_s=0))["obstacles"],
        "all nodes to be heard",
    )
    assert cluster.call(lambda admin: admin.finalize_upgrade(heard_s=0))["active_version"] == version


def _data(cluster: Cluster, node: int) -> DataVersions | None:
    return data_versions.read(cluster.nodes[node].data_dir)
