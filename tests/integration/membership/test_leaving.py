"""Nodes leave a running cluster for good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.errors import HoldfastError
from tests.integration.clusters.cluster import ClusterSettings, wait_until
from tests.integration.membership.growing import GrowingCluster
from tests.integration.membership.test_joining import TOLD

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GrowingCluster]:
    one = GrowingCluster(tmp_path, ClusterSettings(nodes=3))
    try:
        one.start()
        one.join(4, seeds=[1])
        one.join(5, seeds=[2])
        one.wait_voters(5)
        yield one
        assert one.complaints(allowed=TOLD) == []
    finally:
        one.close()


def remove(cluster: GrowingCluster, node: int) -> None:
    """Remove a node that keeps nothing, and wait for its end."""
    cluster.call(lambda admin: admin.remove_node(node))
    assert cluster.wait_exit(node) == 3
    cluster.nodes[node].expected_dead = True
    wait_until(lambda: node not in cluster.node_list(), f"node {node} is gone")


def test_five_nodes_become_three(cluster: GrowingCluster) -> None:
    remove(cluster, 2)
    remove(cluster, 4)
    cluster.wait_nodes(1, 3, 5)
    cluster.wait_voters(3)
    assert cluster.metadata_voters() == [1, 3, 5]
    cluster.create("after", partitions=3)
    cluster.wait_settled("after")
    cluster.kill(1, 3, 5)
    cluster.start(1, 3, 5)
    cluster.wait_led("after")


def test_who_was_removed_does_not_come_back(cluster: GrowingCluster) -> None:
    remove(cluster, 5)
    cluster.spawn(5)
    assert cluster.wait_exit(5) == 3
    assert "was removed from its cluster" in cluster.log(5)
    with pytest.raises(HoldfastError, match="not used again"):
        cluster.call(lambda admin: admin.add_node(5))
    with pytest.raises(HoldfastError, match="removed already"):
        cluster.call(lambda admin: admin.remove_node(5))


def test_who_was_away_when_it_was_removed_hears_of_it_when_it_comes(cluster: GrowingCluster) -> None:
    cluster.stop(5)
    cluster.call(lambda admin: admin.remove_node(5))
    wait_until(lambda: 5 not in cluster.node_list(), "node 5 is removed")
    cluster.spawn(5)
    assert cluster.wait_exit(5) == 3


def test_who_keeps_replicas_stays_until_they_have_moved(cluster: GrowingCluster) -> None:
    cluster.call(lambda admin: admin.balance_settings("off"))  # no plan moves them meanwhile
    cluster.create("kept", partitions=5)
    answer = cluster.call(lambda admin: admin.remove_node(5))
    assert answer["replicas"] > 0
    assert cluster.node_list()[5]["state"] == "leaving"
    wait_until(lambda: 5 not in cluster.metadata_voters(), "its vote is another node's")
    cluster.create("new", partitions=8)
    assert all(5 not in one["replicas"] for one in cluster.describe("new")["partitions"])
    cluster.call(lambda admin: admin.cancel_node(5))
    assert cluster.node_list()[5]["state"] == "active"
    cluster.wait_voters(5)


def test_refusals(cluster: GrowingCluster) -> None:
    cluster.create("wide", partitions=1, replicas=5)
    with pytest.raises(HoldfastError, match="wide has 5 replicas, and 5 nodes would be 4"):
        cluster.call(lambda admin: admin.remove_node(5))
    cluster.discard_logs()
    cluster.kill(1, 2)
    with pytest.raises(HoldfastError, match="would have no majority"):
        cluster.call(lambda admin: admin.remove_node(5))
    cluster.start(1, 2)


def test_the_leader_of_the_metadata_leaves(cluster: GrowingCluster) -> None:
    leader = int(cluster.call(lambda admin: admin.cluster_status())["metadata"]["leader"])
    remove(cluster, leader)
    cluster.wait_nodes(*({1, 2, 3, 4, 5} - {leader}))
    cluster.create("after", partitions=3)
