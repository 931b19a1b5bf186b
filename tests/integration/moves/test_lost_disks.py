"""Disks that are lost amid moves and after them, trimmed logs that move, and metadata that are read anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.repairing import empty, readmit, wait_caught_up
from tests.integration.clusters.stores import kept
from tests.integration.judges.judging import judge
from tests.integration.moves.moving import reassign, replicas, wait_settled
from tests.integration.workloads.holdfast_producer import HoldfastProducer, publish
from tests.integration.workloads.plain import send

pytestmark = pytest.mark.cluster


def _numbered(cluster: Cluster, log: str) -> HoldfastProducer:
    producer = HoldfastProducer(cluster.addresses, log, "0", "numbered", idempotent=True).begin()
    producer.wait_for(100)
    return producer


def _replace_disk(cluster: Cluster, node: int) -> None:
    if node in cluster.running:
        cluster.kill(node)
    empty(cluster, node)
    cluster.spawn(node)
    readmit(cluster, node)
    wait_caught_up(cluster, node)


@pytest.mark.timeout(300)
def test_a_node_that_comes_loses_its_disk(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    """The move to it is given up, and another one brings a replica of another birth."""
    cluster = make_cluster(nodes=4)
    cluster.start()
    log = cluster.create(log_name, 1, 3)
    producer, before = _numbered(cluster, log), replicas(cluster, log)["0"]
    coming = next(node for node in cluster.nodes if node not in before)
    target = [*before[1:], coming]
    cluster.kill(coming)
    reassign(cluster, log, "0", target)
    wait_until(lambda: "members are v2" in "".join(map(cluster.log, cluster.nodes)), "the learner is added")
    _replace_disk(cluster, coming)
    wait_settled(cluster)
    assert replicas(cluster, log)["0"] == sorted(target)
    [leader] = set(cluster.leaders(log).values())
    assert f"voters {coming}/2" not in cluster.log(leader), "the replica of the first move had forgotten what it had"
    producer.wait_for(20)
    judge(cluster, log, [producer])


@pytest.mark.timeout(400)
def test_replicas_that_were_moved_lose_their_disks_one_after_the_other(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    """They have no vote at first, and get it back; a log that is made after three readmissions has a leader."""
    cluster = make_cluster(nodes=4)
    cluster.start()
    log = cluster.create(log_name, 1, 3)
    producer, before = _numbered(cluster, log), replicas(cluster, log)["0"]
    coming = next(node for node in cluster.nodes if node not in before)
    reassign(cluster, log, "0", [coming, *before[:2]])
    wait_settled(cluster)
    for node in (coming, *before[:2]):
        _replace_disk(cluster, node)
        wait_settled(cluster)
        producer.wait_for(20)
    cluster.create(f"{log_name}-later", 4, 3)
    reassign(cluster, log, "0", before)
    wait_settled(cluster)
    assert replicas(cluster, log)["0"] == sorted(before)
    producer.wait_for(20)
    judge(cluster, log, [producer])


@pytest.mark.timeout(300)
def test_a_trimmed_log_moves_as_a_snapshot_to_all_other_nodes(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(nodes=5)
    cluster.start()
    log = cluster.create(log_name, 1, 2, retention_bytes=200_000)
    for _ in range(6):
        publish(cluster.addresses, log, 2000, partitions=1)
    wait_until(lambda: int(cluster.info(log)["0"].earliest_offset or "0", 16) > 0, "retention")
    others = [node for node in cluster.nodes if node not in replicas(cluster, log)["0"]]
    cluster.call(lambda admin: admin.alter_log(log, retention_bytes=None))
    before = cluster.info(log)["0"]
    reassign(cluster, log, "0", others[:2])
    wait_settled(cluster)
    after = cluster.info(log)["0"]
    assert (after.earliest_offset, after.latest_offset) == (before.earliest_offset, before.latest_offset)
    assert any("installed a snapshot" in cluster.log(node) for node in others[:2])
    group = cluster.describe(log)["partitions"][0]["group"]
    cluster.stop()
    assert kept(cluster, others[0], group) == kept(cluster, others[1], group)
    gone = [node for node in cluster.nodes if node not in others[:2]]
    assert not any(kept(cluster, node, group).records for node in gone), "erased where it was"


@pytest.mark.timeout(400)
def test_metadata_that_are_read_anew_open_and_erase_nothing_on_the_way(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    """A replica left and came back to its node; then the node reads its metadata from the beginning."""
    cluster = make_cluster(nodes=4)
    cluster.allowed = ["given up by an operator"]  # type: ignore[attr-defined]
    cluster.start()
    log = cluster.create(log_name, 1, 3)
    before = replicas(cluster, log)["0"]
    send(cluster.address(1), log, ["acknowledged"] * 60, "0")
    coming = next(node for node in cluster.nodes if node not in before)
    leads = cluster.call(lambda admin: admin.cluster_status())["metadata"]["leader"]
    node = next(one for one in before if one != leads)
    others = [one for one in before if one != node]
    reassign(cluster, log, "0", [*others, coming])
    wait_settled(cluster)
    reassign(cluster, log, "0", before)
    wait_settled(cluster)
    cluster.call(lambda admin: admin.repair_group(node, 0), [cluster.address(node)])
    cluster.stop(node)
    send(cluster.address(others[0]), log, ["meanwhile"] * 60, "0")
    cluster.start(node)
    wait_settled(cluster)
    group = cluster.describe(log)["partitions"][0]["group"]
    told = [line for line in cluster.log(node).splitlines() if f"group {group} " in line]
    assert sum("its data here are erased" in line for line in told) == 1, told
    for other in others:
        cluster.kill(other)
        cluster.start(other)
    assert cluster.info(log)["0"].details["events"] == 120
