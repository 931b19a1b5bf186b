"""Nodes join a running cluster, by its seeds, and nobody is restarted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.errors import AdminError, HoldfastError
from tests.integration.clusters.cluster import ClusterSettings, wait_until
from tests.integration.membership.growing import GrowingCluster

pytestmark = pytest.mark.cluster

TOLD = ("was removed from its cluster",)
"""Words of a node that ends as it should."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GrowingCluster]:
    one = GrowingCluster(tmp_path, ClusterSettings(nodes=3))
    try:
        one.start()
        yield one
        assert one.complaints(allowed=TOLD) == []
    finally:
        one.close()


def test_two_nodes_join_and_are_given_replicas(cluster: GrowingCluster) -> None:
    cluster.create("before", partitions=3)
    cluster.join(4, seeds=[1])
    cluster.join(5, seeds=[2, 4])
    cluster.wait_nodes(1, 2, 3, 4, 5)
    cluster.wait_voters(5)
    cluster.create("after", partitions=10)
    placed = {node for one in cluster.describe("after")["partitions"] for node in one["replicas"]}
    assert placed == {1, 2, 3, 4, 5}
    cluster.wait_settled("after")


def test_who_is_not_announced_waits_and_says_what_to_type(cluster: GrowingCluster) -> None:
    cluster.join(4, seeds=[1, 2], announce=False, wait=False)
    wait_until(lambda: "holdfast node add 4" in cluster.log(4), "the word of the node that waits")
    assert sorted(cluster.node_list()) == [1, 2, 3]
    cluster.call(lambda admin: admin.add_node(4))
    cluster.wait_ready(4)
    cluster.wait_nodes(1, 2, 3, 4)
    assert len(cluster.metadata_voters()) == 3, "an even number of voters is of no use"


def test_who_is_cancelled_does_not_join(cluster: GrowingCluster) -> None:
    cluster.call(lambda admin: admin.add_node(4))
    assert cluster.call(lambda admin: admin.announced_nodes()) == [4]
    cluster.call(lambda admin: admin.cancel_node(4))
    cluster.join(4, seeds=[1], announce=False, wait=False)
    wait_until(lambda: "holdfast node add 4" in cluster.log(4), "the word of the node that waits")
    assert sorted(cluster.node_list()) == [1, 2, 3]
    cluster.stop(4)


def test_all_nodes_are_restarted_after_a_join_and_the_seed_is_gone(cluster: GrowingCluster) -> None:
    cluster.join(4, seeds=[1])
    cluster.join(5, seeds=[1])
    cluster.wait_voters(5)
    cluster.create("kept", partitions=5)
    cluster.kill(1, 2, 3, 4, 5)
    cluster.start(2, 3, 4, 5)
    cluster.wait_led("kept")
    assert sorted(cluster.node_list()) == [1, 2, 3, 4, 5]
    cluster.start(1)
    cluster.wait_nodes(1, 2, 3, 4, 5)


def test_founders_may_say_join_and_start_all_at_once(cluster: GrowingCluster) -> None:
    """Each is a seed of the others, and none of them answers before it has started."""
    cluster.create("kept", partitions=3)
    cluster.kill(1, 2, 3)
    for node in cluster.nodes.values():
        text = node.config_path.read_text(encoding="utf-8")
        node.config_path.write_text(text.replace("\npeers = ", "\njoin = true\npeers = ", 1), encoding="utf-8")
    cluster.start()
    cluster.wait_led("kept")
    cluster.wait_nodes(1, 2, 3)


@pytest.mark.parametrize("killed", ["joiner", "leader", "seed"])
def test_a_kill_in_the_middle_of_a_join(cluster: GrowingCluster, killed: str) -> None:
    cluster.call(lambda admin: admin.add_node(4))
    cluster.prepare(4, seeds=[1, 2])
    leader = int(cluster.call(lambda admin: admin.cluster_status())["metadata"]["leader"])
    victim = {"joiner": 4, "leader": leader, "seed": 1}[killed]
    cluster.spawn(4)
    wait_until(lambda: "tells of the nodes" in cluster.log(4), "the first answer of a seed")
    cluster.kill(victim)
    cluster.start(victim)
    if victim != 4:
        cluster.wait_ready(4)
    cluster.wait_nodes(1, 2, 3, 4)
    cluster.create("after", partitions=8)
    cluster.wait_settled("after")


def test_data_of_another_cluster_of_the_same_name_are_refused(cluster: GrowingCluster, tmp_path: Path) -> None:
    other = GrowingCluster(tmp_path / "other", ClusterSettings(nodes=3))
    other.name = cluster.name
    other._write_configs()
    try:
        other.start()
        other.join(4, seeds=[1])
        other.stop(1, 2, 3, 4)
        cluster.prepare(4, seeds=[1])
        shutil.copytree(other.nodes[4].data_dir, cluster.nodes[4].data_dir)
        cluster.call(lambda admin: admin.add_node(4))
        cluster.start(4, wait=False)
        wait_until(lambda: "data of another cluster" in cluster.log(1), "the seed's refusal")
        assert sorted(cluster.node_list()) == [1, 2, 3]
        cluster.kill(4)
    finally:
        other.close()


def test_a_wiped_node_that_had_joined_is_readmitted(cluster: GrowingCluster) -> None:
    cluster.join(4, seeds=[1])
    cluster.create("kept", partitions=4)
    cluster.stop(4)
    shutil.rmtree(cluster.nodes[4].data_dir)
    cluster.start(4, wait=False)
    wait_until(lambda: readmitted(cluster, 4), "the node that was asked has refused other data, and lets them in")
    cluster.wait_ready(4)
    cluster.wait_settled("kept")


def readmitted(cluster: GrowingCluster, node: int) -> bool:
    try:
        cluster.call(lambda admin: admin.readmit_node(node))
    except AdminError as error:
        if "has not come" not in str(error):
            raise
        return False
    return True


def test_one_node_becomes_three(tmp_path: Path) -> None:
    cluster = GrowingCluster(tmp_path, ClusterSettings(nodes=1))
    try:
        cluster.start()
        cluster.call(lambda admin: admin.add_node(2))
        cluster.call(lambda admin: admin.add_node(3))
        cluster.join(2, seeds=[1], announce=False)
        assert cluster.metadata_voters() == [1], "with two voters the loss of either would stop the cluster"
        cluster.join(3, seeds=[1], announce=False)
        cluster.wait_voters(3)
        cluster.kill(1)
        cluster.call(lambda admin: admin.add_node(9))
        cluster.call(lambda admin: admin.cancel_node(9))
        cluster.start(1)
        cluster.wait_nodes(1, 2, 3)
        cluster.kill(1, 2, 3)
        cluster.start(1, 2, 3)
        cluster.wait_nodes(1, 2, 3)
    finally:
        cluster.close()


def test_nine_nodes_are_founded_and_five_of_them_vote(tmp_path: Path) -> None:
    cluster = GrowingCluster(tmp_path, ClusterSettings(nodes=9))
    try:
        cluster.start()
        cluster.wait_nodes(*range(1, 10))
        assert cluster.metadata_voters() == [1, 2, 3, 4, 5]
        cluster.create("spread", partitions=9)
        cluster.kill(1, 9)
        cluster.call(lambda admin: admin.add_node(10))
        cluster.call(lambda admin: admin.cancel_node(10))
        cluster.start(1, 9)
        cluster.wait_led("spread")
        assert cluster.complaints() == []
    finally:
        cluster.close()


def test_a_configuration_without_join_is_told_to_say_so(cluster: GrowingCluster) -> None:
    cluster.call(lambda admin: admin.add_node(4))
    cluster.prepare(4, seeds=[1, 2, 3])
    path = cluster.nodes[4].config_path
    listed = ", ".join(f'{{ id = {one.id}, address = "{one.rpc}" }}' for one in cluster.nodes.values())
    text = path.read_text().replace("join = true\n", "").replace(f'address = "{cluster.nodes[4].rpc}"\n', "", 1)
    start, end = text.index("peers = ["), text.index("]\n", text.index("peers = ["))
    path.write_text(text[:start] + f"peers = [{listed}" + text[end:])
    cluster.start(4, wait=False)
    wait_until(lambda: "write cluster.join = true" in cluster.log(1), "the seed's refusal")
    assert sorted(cluster.node_list()) == [1, 2, 3]
    cluster.kill(4)


def test_numbers_that_are_not_taken(cluster: GrowingCluster) -> None:
    with pytest.raises(HoldfastError, match="belongs to the cluster"):
        cluster.call(lambda admin: admin.add_node(3))
    with pytest.raises(HoldfastError, match="not registered"):
        cluster.call(lambda admin: admin.remove_node(9))
    cluster.call(lambda admin: admin.add_node(9))
    with pytest.raises(HoldfastError, match="never came"):
        cluster.call(lambda admin: admin.remove_node(9))
    assert json.dumps(cluster.call(lambda admin: admin.announced_nodes())) == "[9]"
