"""Nodes come and go while clients work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.clusters.cluster import ClusterSettings, wait_until
from tests.integration.judges.judging import KINDS, judge, start_producers
from tests.integration.membership.growing import GrowingCluster
from tests.integration.membership.test_joining import TOLD
from tests.integration.workloads.plain import Heartbeat

pytestmark = pytest.mark.cluster


def placed_on(cluster: GrowingCluster, log: str) -> set[int]:
    return {node for one in cluster.describe(log)["partitions"] for node in one["replicas"]}


def reassign(cluster: GrowingCluster, log: str, partition: int, nodes: list[int]) -> None:
    cluster.call(lambda admin: admin.reassign_partition(log, str(partition), nodes))


@pytest.mark.timeout(600)
def test_three_nodes_become_five_and_three_again(tmp_path: Path) -> None:
    cluster = GrowingCluster(tmp_path, ClusterSettings(nodes=3))
    try:
        cluster.start()
        cluster.create("load", len(KINDS))
        cluster.create("beats")
        producers = start_producers(cluster, "load")
        with Heartbeat(cluster.address(1, "never"), cluster.address(2, "never"), "beats") as heartbeat:
            for node, seed in ((4, 1), (5, 4)):
                cluster.join(node, seeds=[seed])
                heartbeat.wait_beats(20)
            cluster.wait_voters(5)
            cluster.create("new", partitions=10)
            cluster.wait_led("new")
            assert placed_on(cluster, "new") == {1, 2, 3, 4, 5}
            for partition in range(len(KINDS)):
                reassign(cluster, "load", partition, [4, 5, 1])
            wait_until(lambda: placed_on(cluster, "load") == {1, 4, 5}, "the load is on the new nodes")
            for node in (5, 4):
                answer = cluster.call(lambda admin, node=node: admin.remove_node(node))
                assert answer["replicas"] > 0
            for node in (5, 4):  # emptied by plans
                assert cluster.wait_exit(node) == 3
                cluster.nodes[node].expected_dead = True
                wait_until(lambda node=node: node not in cluster.node_list(), f"node {node} is gone")
                heartbeat.wait_beats(20)
            cluster.wait_voters(3)
            for producer in producers:
                producer.wait_for(200)
        judge(cluster, "load", producers)
        assert cluster.complaints(allowed=TOLD) == []
    finally:
        cluster.close()
