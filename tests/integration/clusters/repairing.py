"""Nodes without their data, or with damaged ones: how they come to be so, what they say, how they are let in again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from holdfast.client.errors import AdminError, HoldfastError
from tests.integration.clusters.cluster import Cluster, wait_until

EXIT_CONFIG, EXIT_STORAGE, EXIT_ADDRESS = 2, 3, 4


def refused(cluster: Cluster, node: int, status: int) -> str:
    """Starts a node that must not come up; what it said."""
    before = len(cluster.log(node))
    cluster.spawn(node)
    found = cluster.wait_exit(node)
    said = cluster.log(node)[before:]
    cluster.nodes[node].log_read = len(cluster.log(node).encode())  # these complaints were asked for
    assert found == status, f"exit status {found}, expected {status}; it said: {said}"
    assert "Traceback" not in said, said
    return said


def flip(path: Path) -> None:
    """Change some bytes in the middle."""
    with path.open("r+b") as file:
        middle = path.stat().st_size // 2
        file.seek(middle)
        old = file.read(64)
        file.seek(middle)
        file.write(bytes(byte ^ 0x5A for byte in old))


def empty(cluster: Cluster, node: int) -> None:
    """Its disk was replaced."""
    assert node not in cluster.running
    shutil.rmtree(cluster.nodes[node].data_dir)


def holdfast(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    """The command line, as an operator uses it. Not asked of the node that it is about."""
    server = cluster.address(next(node for node in cluster.running if str(node) not in arguments))
    command = [sys.executable, "-m", "holdfast.cli", *arguments, "--server", server, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def _readmitted(cluster: Cluster, node: int) -> bool:
    try:
        return bool(holdfast(cluster, "node", "readmit", str(node))["node"] == node)
    except AssertionError as refusal:
        if "has not come to node" not in str(refusal):
            raise
        return False


def readmit(cluster: Cluster, node: int) -> None:
    """Once another node has refused it."""
    asked = cluster.other_than(node)
    wait_until(lambda: f"node readmit {node}" in cluster.log(asked), "the refusal of the node without its data")
    # It may have said so of what the node had before, and not have met it with what it has now.
    wait_until(lambda: _readmitted(cluster, node), "the other nodes to let it in")
    cluster.wait_ready(node)


def behind(cluster: Cluster, node: int) -> list[dict[str, Any]] | None:
    """Its replicas that do not follow, or do not vote, yet."""
    try:
        described = cluster.call(lambda admin: admin.describe_node(node))
    except (AdminError, HoldfastError):
        return None
    found: list[dict[str, Any]] | None = described["catching_up"]
    return found


def wait_caught_up(cluster: Cluster, node: int) -> None:
    wait_until(lambda: behind(cluster, node) == [], f"node {node} to have what the others have, and to vote")


def wait_level(cluster: Cluster, log: str) -> None:
    """All replicas of the log have applied the same, and vote. Nobody writes to it."""

    def level() -> bool:
        partitions = cluster.describe(log)["partitions"]
        states = [list(partition["replica_states"]) for partition in partitions]
        return all(len({state.get("applied") for state in each}) == 1 for each in states) and all(
            state["state"] == "follows" for each in states for state in each
        )

    wait_until(level, f"all replicas of {log} to be level")
