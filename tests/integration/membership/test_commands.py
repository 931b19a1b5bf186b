"""`holdfast node add|remove|cancel|list`, as operators type them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.clusters.cluster import ClusterSettings
from tests.integration.membership.growing import GrowingCluster
from tests.integration.membership.test_joining import TOLD
from tests.integration.operations.nodes.test_node_commands import holdfast

pytestmark = pytest.mark.cluster


def test_a_node_is_announced_joins_and_leaves(tmp_path: Path) -> None:
    cluster = GrowingCluster(tmp_path, ClusterSettings(nodes=1))
    try:
        cluster.start()
        server = ("--server", cluster.address(1))
        assert holdfast("node", "add", "2", *server) == (0, {"node": 2, "state": "announced"})
        assert holdfast("node", "list", *server)[1]["announced"] == [2]
        cluster.join(2, seeds=[1], announce=False)
        status, said = holdfast("node", "list", *server)
        assert (status, said["announced"]) == (0, [])
        assert [(one["node"], one["state"], one["up"]) for one in said["nodes"]] == [
            (1, "active", True),
            (2, "active", True),
        ]
        cluster.create("kept", replicas=2)
        status, said = holdfast("node", "remove", "2", *server)
        assert status == 1
        assert "kept has 2 replicas, and 2 nodes would be 1" in said["error"]
        status, again = holdfast("node", "remove", "2", "--dry-run", *server)
        assert (status, again["error"]) == (1, said["error"])
        cluster.call(lambda admin: admin.delete_log("kept"))
        assert holdfast("node", "remove", "2", *server)[1]["state"] == "leaving"
        assert cluster.wait_exit(2) == 3
        cluster.nodes[2].expected_dead = True
        status, said = holdfast("node", "add", "2", *server)
        assert status == 1
        assert "its number is not used again" in said["error"]
        assert holdfast("node", "cancel", "2", *server)[0] == 3, "there is no such node"
        assert cluster.complaints(allowed=TOLD) == []
    finally:
        cluster.close()


@pytest.mark.timeout(300)
def test_a_node_leaves_as_the_dry_run_says(tmp_path: Path) -> None:
    cluster = GrowingCluster(tmp_path, ClusterSettings(nodes=3))
    try:
        cluster.start()
        cluster.create("kept", partitions=6, replicas=2)
        server = ("--server", cluster.address(1))
        before = cluster.describe("kept")["partitions"]
        held = {one["partition"] for one in before if 3 in one["replicas"]}
        status, plan = holdfast("node", "remove", "3", "--dry-run", *server)
        assert status == 0
        assert {one["partition"] for one in plan["moves"] if one["log"] == "kept"} == held
        assert cluster.node_list()[3]["state"] == "active"
        assert cluster.describe("kept")["partitions"] == before
        status, said = holdfast("node", "remove", "3", "--apply", "0" * len(plan["digest"]), *server)
        assert (status, "is stale" in said["error"]) == (1, True)
        assert cluster.node_list()[3]["state"] == "active"
        status, done = holdfast("node", "remove", "3", "--apply", plan["digest"], "--wait-s", "120", *server)
        assert (status, done["digest"], done["applied"]) == (0, plan["digest"], True)
        assert cluster.wait_exit(3) == 3
        cluster.nodes[3].expected_dead = True
        planned = {one["partition"]: sorted(one["replicas"]) for one in plan["moves"] if one["log"] == "kept"}
        now = {one["partition"]: sorted(one["replicas"]) for one in cluster.describe("kept")["partitions"]}
        assert now == {one["partition"]: sorted(one["replicas"]) for one in before} | planned
        assert cluster.complaints(allowed=TOLD) == []
    finally:
        cluster.close()
