"""Logs with two replicas: one of the two disks is lost, and replaced. Nothing is, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client.errors import AdminError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.repairing import (
    empty,
    readmit,
    wait_caught_up,
    wait_level,
)
from tests.integration.clusters.stores import kept
from tests.integration.workloads.plain import read, send

pytestmark = pytest.mark.cluster

EVENTS = 200

REFUSED_WITHIN_S = 15.0
"""Longer than the node itself tries."""


def created(cluster: Cluster, log: str) -> dict[str, Any]:
    """Its only partition, once it is led."""
    cluster.create(log, 1, replicas=2)
    return placed(cluster, log)


def placed(cluster: Cluster, log: str) -> dict[str, Any]:
    return dict(cluster.describe(log)["partitions"][0])


def replace_disk(cluster: Cluster, node: int) -> None:
    cluster.kill(node)
    empty(cluster, node)
    cluster.spawn(node)
    readmit(cluster, node)


@pytest.mark.parametrize("lost", ["leader", "follower"])
@pytest.mark.timeout(480)
def test_one_of_two_disks_is_replaced_and_then_the_other(own_cluster: Cluster, log_name: str, lost: str) -> None:
    """Whoever led: the one that is left leads, also when it is killed meanwhile; then it may lose its own disk."""
    cluster = own_cluster
    partition = created(cluster, log_name)
    stranger = next(node for node in cluster.nodes if node not in partition["replicas"])
    leader = cluster.leaders(log_name)["0"]
    follower = next(node for node in partition["replicas"] if node != leader)
    first, second = (leader, follower) if lost == "leader" else (follower, leader)
    bodies = [f"event {number}" for number in range(EVENTS)]
    send(cluster.address(stranger), log_name, bodies, "0")

    replace_disk(cluster, first)
    cluster.kill(second)
    cluster.start(second)
    bodies.append("with the disk of one")
    send(cluster.address(stranger), log_name, bodies[-1:], "0")
    wait_caught_up(cluster, first)
    wait_level(cluster, log_name)

    replace_disk(cluster, second)
    bodies.append("with neither of the first disks")
    send(cluster.address(stranger), log_name, bodies[-1:], "0")
    wait_caught_up(cluster, second)
    wait_level(cluster, log_name)
    found = [event.body for event in read(cluster.address(stranger), log_name, len(bodies), "0")]
    assert found == bodies
    cluster.stop()
    assert kept(cluster, first, partition["group"]) == kept(cluster, second, partition["group"])


@pytest.mark.timeout(480)
def test_a_log_that_was_created_while_a_disk_was_lost_begins_when_the_node_is_back(
    own_cluster: Cluster, log_name: str
) -> None:
    """The node is taken to have forgotten what it never knew: that must not keep the log from its first leader."""
    cluster = own_cluster
    cluster.kill(3)
    empty(cluster, 3)
    logs = [f"{log_name}-{replicas}-{number}" for replicas in (2, 3) for number in range(3)]
    for log in logs:
        replicas = int(log.split("-")[-2])
        cluster.call(lambda admin, log=log, replicas=replicas: admin.create_log(log, partitions=1, replicas=replicas))
    waiting = [log for log in logs if 3 in (members := placed(cluster, log)["replicas"]) and len(members) == 2]
    assert waiting, "no log with two replicas was given to the node that is away"

    cluster.spawn(3)
    readmit(cluster, 3)
    for log in logs:
        cluster.wait_led(log)
    wait_caught_up(cluster, 3)
    for log in logs:
        send(cluster.address(1), log, [f"the first of {log}"], "0")
    cluster.kill(3)
    cluster.start(3)
    for log in logs:
        assert [event.body for event in read(cluster.address(3), log, 1, "0")] == [f"the first of {log}"]


@pytest.mark.timeout(480)
def test_of_two_nodes_one_is_replaced_and_then_the_other(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    """The majority that lets a node in needs that very node."""
    cluster = make_cluster(nodes=2)
    cluster.start()
    group = created(cluster, log_name)["group"]
    bodies = ["before"]
    send(cluster.address(1), log_name, bodies, "0")
    for lost, left in ((2, 1), (1, 2)):
        replace_disk(cluster, lost)
        wait_caught_up(cluster, lost)
        bodies.append(f"without the first disk of node {lost}")
        send(cluster.address(left), log_name, bodies[-1:], "0")
        wait_level(cluster, log_name)
    assert [event.body for event in read(cluster.address(1), log_name, len(bodies), "0")] == bodies
    cluster.stop()
    assert kept(cluster, 1, group) == kept(cluster, 2, group)


@pytest.mark.timeout(480)
def test_of_two_nodes_data_that_were_given_up_are_not_even_heard(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    """They would vote as if they remembered what was promised since."""
    cluster = make_cluster(nodes=2)
    cluster.start()
    created(cluster, log_name)
    cluster.kill(2)
    data = cluster.nodes[2].data_dir
    aside = data.with_name("aside")
    data.rename(aside)
    cluster.spawn(2)
    readmit(cluster, 2)
    wait_caught_up(cluster, 2)
    send(cluster.address(1), log_name, ["since then"], "0")
    wait_level(cluster, log_name)
    cluster.kill(2)
    empty(cluster, 2)
    aside.rename(data)
    before = len(cluster.log(1))
    cluster.spawn(2)
    wait_until(lambda: "comes with other data" in cluster.log(1)[before:], "the refusal of the old data")
    with pytest.raises(AdminError, match="no leader"):
        cluster.call(lambda admin: admin.readmit_node(2), [cluster.address(1)], timeout_s=REFUSED_WITHIN_S)
    assert "node 2 is up" not in cluster.log(1)[before:]
