"""One group of a node is beyond use: the node and all its other groups go on, say so, and the group can be repaired."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from cluster.raft.log.key_layout import CHECK, HARD, LAYOUT, group_prefix
from holdfast.client.errors import AdminError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.clusters.repairing import holdfast, wait_caught_up
from tests.integration.clusters.stores import open_store
from tests.integration.workloads.plain import read, send

pytestmark = pytest.mark.cluster


def poison(cluster: Cluster, node: int, group: int) -> None:
    """The state that one wrong frame left behind, before terms had a range."""
    cluster.allowed = ("is in quarantine",)  # type: ignore[attr-defined]
    body = HARD.pack(LAYOUT, 0, (1 << 64) - 1, 0, 1, 1, 0, 1)
    with open_store(cluster, cluster.nodes[node]) as store:
        batch = store.batch()
        for kind in (b"e", b"t"):
            prefix = group_prefix(kind, group)
            batch.delete_range(prefix, prefix + b"\xff" * 9)
        batch.delete(group_prefix(b"c", group))
        batch.put(group_prefix(b"h", group), body + CHECK.pack(zlib.crc32(body)))
        store.write(batch)
        store.sync()


def status(cluster: Cluster, node: int) -> dict[str, Any]:
    return cluster.call(lambda admin: admin.node_status(node), [cluster.address(node)])


def test_a_poisoned_group_is_in_quarantine_until_it_is_repaired(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    poisoned, sound = cluster.create(f"{log_name}-poisoned", 1), cluster.create(f"{log_name}-sound", 1)
    for name in (poisoned, sound):
        send(cluster.address(1), name, ["acknowledged"], "0")
    group = cluster.describe(poisoned)["partitions"][0]["group"]
    cluster.kill(3)
    poison(cluster, 3, group)
    for _ in range(2):  # a restart mends nothing, and harms nothing
        cluster.start(3)
        [found] = status(cluster, 3)["quarantined"]
        assert (found["group"], found["partition"]) == (group, f"{poisoned}/0")
        assert "beyond what elections can lead to" in found["reason"]
        assert any("quarantine" in problem for problem in status(cluster, 3)["problems"])
        cluster.kill(3)
    cluster.start(3)

    def told_of_node_3() -> list[str]:
        states = cluster.describe(poisoned)["partitions"][0]["replica_states"]
        return [state["state"] for state in states if state["node"] == 3]

    # Whoever is asked may not have reached node 3 again yet, and says "unknown" until it has.
    wait_until(lambda: told_of_node_3() == ["in quarantine"], "the quarantine in the description of the log")
    cluster.kill(2)  # what is sound counts
    send(cluster.address(1), sound, ["with node 3"], "0")
    cluster.start(2)
    cluster.wait_led(poisoned)
    send(cluster.address(1), poisoned, ["without node 3"], "0")

    holdfast(cluster, "node", "repair-group", "3", str(group))
    wait_until(lambda: status(cluster, 3)["quarantined"] == [], "the end of the quarantine")
    wait_caught_up(cluster, 3)
    cluster.kill(2)  # what was repaired counts again
    send(cluster.address(1), poisoned, ["with node 3"], "0")
    events = [event.body for event in read(cluster.address(3), poisoned, 3, "0")]
    assert events == ["acknowledged", "without node 3", "with node 3"]


def test_poisoned_metadata_are_repaired_with_the_next_start(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["a"], "0")
    cluster.kill(3)
    poison(cluster, 3, 0)
    cluster.spawn(3)
    wait_until(lambda: "group 0 at node 3 is in quarantine" in cluster.log(3), "the word of the node")
    send(cluster.address(1), log_name, ["b"], "0")

    def repaired() -> bool:
        try:
            holdfast(cluster, "node", "repair-group", "3", "0")
        except AssertionError:
            return False
        return True

    wait_until(repaired, "the repair")
    cluster.kill(3)
    cluster.start(3)
    wait_caught_up(cluster, 3)
    cluster.kill(2)
    send(cluster.address(1), log_name, ["c"], "0")
    assert len(read(cluster.address(3), log_name, 3, "0")) == 3


def test_what_nobody_else_has_is_not_given_up(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, 1)
    send(cluster.address(1), log_name, ["a"], "0")
    group = cluster.describe(log_name)["partitions"][0]["group"]
    leader = cluster.leaders(log_name)["0"]
    with pytest.raises(AdminError, match="leads group"):
        cluster.call(lambda admin: admin.repair_group(leader, group), [cluster.address(leader)])
    others = [node for node in (1, 2, 3) if node != leader]
    cluster.kill(leader, others[0])
    last = others[1]

    def leaderless() -> bool:
        found = cluster.call(lambda admin: admin.cluster_status(), [cluster.address(last)])
        return bool(found["partitions_without_leader"])

    wait_until(leaderless, "the loss of the leader")
    with pytest.raises(AdminError, match="no leader now"):
        cluster.call(lambda admin: admin.repair_group(last, group), [cluster.address(last)])
