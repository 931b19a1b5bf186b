"""Clients of one release work with nodes of the next one, and the other way round. Real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.versions import NEWEST
from holdfast.records.record_batch import VERSION
from tests.integration.clusters.cluster import Cluster
from tests.integration.upgrades.client_program import COUNT
from tests.integration.upgrades.later_release import LATER, ROOT, later_release

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).with_name("client_program.py")
WITHIN_S = 300.0
EVENTS = [f"{kind} {number}" for kind in ("plain", "idempotent", "transactional", "grouped") for number in range(COUNT)]


class Release:
    """A tree, as clients run it."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def run(self, *words: str, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *words], input=stdin, capture_output=True, text=True, timeout=WITHIN_S,
            env={**os.environ, "PYTHONPATH": str(self.tree)}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def works_with(self, log: str, servers: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(str(PROGRAM), log, *servers))
        assert found["read"] == EVENTS
        assert found["read by a group"] == EVENTS
        assert found["ranges"] == EVENTS
        command = ["-m", "holdfast.cli"]
        self.run(*command, "produce", log, "--partition", "0", "--server", servers[0], stdin="by hand\n")
        read = self.run(*command, "consume", log, "--from", "earliest", "--until-end", "--server", servers[0])
        assert "by hand" in read
        assert log in self.run(*command, "log", "list", "--server", servers[0])
        return found


@pytest.mark.timeout(600)
def test_clients_and_nodes_may_differ_by_a_release(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    this, later = Release(ROOT), Release(later_release(tmp_path / "later"))
    cluster = make_cluster()
    cluster.start()
    cluster.create("first", partitions=1)
    found = later.works_with("first", cluster.addresses)
    assert (found["version"], found["active"]) == (VERSION + 1, NEWEST), "a later client, and nodes of this release"

    for node in cluster.nodes:
        cluster.stop(node)
        cluster.programs[node] = later.tree
        cluster.start(node)
        cluster.wait_led("first")
    cluster.create("second", partitions=1)
    found = this.works_with("second", cluster.addresses)
    assert (found["version"], found["active"]) == (VERSION, NEWEST), "this client, and later nodes"
    assert cluster.call(lambda admin: admin.finalize_upgrade(heard_s=0))["active_version"] == LATER
    for release, log in ((this, "third"), (later, "fourth")):
        cluster.create(log, partitions=1)
        assert release.works_with(log, cluster.addresses)["active"] == LATER
