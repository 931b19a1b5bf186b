"""`holdfast node ...` against real nodes: health by the word of each, and emptying one before it is stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until

pytestmark = pytest.mark.cluster

LONG_S = "120"
"""For what must happen at all."""


def holdfast(*arguments: str) -> tuple[int, Any]:
    """Exit status and the JSON that was printed."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *arguments, "--json"], capture_output=True, timeout=240, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else json.loads(done.stderr)


def test_health_and_draining_of_a_running_cluster(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.create(log_name, 6)
    server = ("--server", cluster.address(1))

    status, said = holdfast("node", "health", "--nodes", "3", "--wait-s", LONG_S, *server)
    assert (status, said["problems"]) == (0, [])
    version = said["nodes"][0]["version"]
    assert holdfast("node", "health", "--expect-version", version, *server)[0] == 0
    status, said = holdfast("node", "health", "--nodes", "4", "--expect-version", "0.0", *server)
    assert status == 1
    assert "3 node(s) are registered, not 4" in said["problems"]
    assert f"node 2 runs version {version}, not 0.0" in said["problems"]

    status, said = holdfast("node", "drain", "2", *server)
    assert (status, said["node"], said["leads"]) == (0, 2, 0)
    wait_until(lambda: 2 not in cluster.leaders(log_name).values(), "all nodes to know that node 2 leads nothing")
    assert "node 2: draining: being emptied" in holdfast("node", "health", *server)[1]["problems"]
    assert holdfast("node", "resume", "2", *server)[0] == 0
    assert holdfast("node", "health", "--wait-s", LONG_S, *server)[0] == 0

    cluster.stop(3)

    def missed() -> bool:
        status, said = holdfast("node", "health", *server)
        assert status == 1
        assert any("node 3 does not answer" in problem for problem in said["problems"])
        return any(problem.startswith("node 3 is away and lacks") for problem in said["problems"])

    wait_until(missed, "leaders to miss node 3")
    cluster.start(3)
    assert holdfast("node", "health", "--wait-s", LONG_S, *server)[0] == 0


def test_a_node_that_is_not_there_is_named(cluster: Cluster) -> None:
    status, said = holdfast("node", "drain", "9", "--server", cluster.address(1))
    assert status == 3
    assert "no node 9" in said["error"]


def test_leaderships_come_back_to_a_node_that_was_restarted(own_cluster: Cluster, log_name: str) -> None:
    own_cluster.create(log_name, 3)
    wait_until(lambda: set(own_cluster.leaders(log_name).values()) == {1, 2, 3}, "balanced leaders")
    assert holdfast("node", "drain", "1", "--server", own_cluster.address(2))[0] == 0
    own_cluster.stop(1)
    own_cluster.start(1)
    wait_until(lambda: 1 in own_cluster.leaders(log_name).values(), "node 1 leads again")
