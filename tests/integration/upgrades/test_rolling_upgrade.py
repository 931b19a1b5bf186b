"""A cluster goes to the next release node by node under load, back, forward again, and is finalized. Real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.versions import NEWEST
from holdfast.client.errors import AdminError
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.judges.judging import judge, start_producers, wait_resumed
from tests.integration.upgrades.later_release import later_release

pytestmark = pytest.mark.cluster

LATER = NEWEST + 1


class Upgrade:
    """A cluster under load, whose nodes get one program after the other."""

    def __init__(self, cluster: Cluster, later: Path) -> None:
        self.cluster, self.later = cluster, later
        cluster.start()
        self.log = cluster.create("events", partitions=3)
        self.producers = start_producers(cluster, self.log)

    def change(self, node: int, program: Path | None, *, kill: bool = False) -> None:
        """Start a node again, with another program; None: this one."""
        (self.cluster.kill if kill else self.cluster.stop)(node)
        if program is None:
            self.cluster.programs.pop(node, None)
        else:
            self.cluster.programs[node] = program
        self.cluster.start(node)
        self.cluster.wait_led(self.log)
        for producer in self.producers:
            producer.wait_for(50)

    def status(self) -> dict[str, Any]:
        return self.cluster.call(lambda admin: admin.cluster_status())

    def versions(self) -> dict[int, list[int]]:
        return {node["node"]: node["versions"] for node in self.status()["nodes"]}

    def finalize(self, *, dry_run: bool = False) -> dict[str, Any]:
        return self.cluster.call(lambda admin: admin.finalize_upgrade(dry_run=dry_run))

    def refused(self) -> str:
        with pytest.raises(AdminError) as refusal:
            self.finalize()
        return str(refusal.value)


@pytest.mark.timeout(900)
def test_up_node_by_node_back_and_up_again_until_it_is_finalized(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    one = Upgrade(make_cluster(), later_release(tmp_path / "later"))
    cluster = one.cluster
    assert one.status()["active_version"] == NEWEST
    assert one.finalize()["target_version"] == NEWEST, "there is nothing newer, and nothing to do"
    one.change(1, one.later)
    assert one.versions() == {1: [NEWEST, LATER], 2: [NEWEST, NEWEST], 3: [NEWEST, NEWEST]}
    obstacles = one.finalize(dry_run=True)["obstacles"]
    assert [text[:7] for text in obstacles] == ["node 2 ", "node 3 "]
    assert "node 2 runs a program that knows version" in one.refused()
    one.change(2, one.later, kill=True)
    one.change(3, one.later)
    one.change(2, None)  # back, although all were there
    one.change(1, None, kill=True)
    assert "node 1 runs a program" in one.refused()
    one.change(1, one.later)
    one.change(2, one.later)
    cluster.stop(3)
    wait_until(lambda: "node 3 does not answer" in str(one.finalize(dry_run=True)["obstacles"]), "node 3 to be missed")
    assert "node 3 does not answer: start it" in one.refused()
    assert one.status()["active_version"] == NEWEST
    cluster.start(3)
    wait_until(lambda: not one.finalize(dry_run=True)["obstacles"], "all nodes to be heard")
    assert one.finalize()["active_version"] == LATER
    assert one.finalize()["active_version"] == LATER, "repeated"
    for node in cluster.nodes:
        wait_until(
            lambda node=node: (
                cluster.call(lambda admin: admin.cluster_status(), [cluster.address(node)])["active_version"] == LATER
            ),
            f"node {node} to know",
        )
    one.change(2, one.later, kill=True)
    for producer in one.producers:
        wait_resumed(producer, producer.acks[-1][0])
    judge(cluster, one.log, one.producers)

    cluster.stop(1)
    cluster.programs.pop(1)
    cluster.allowed = ("is in quarantine",)  # type: ignore[attr-defined]
    cluster.start(1, wait=False)
    says = f"the cluster runs version {LATER}, and the program knows version {NEWEST}: install the cluster's release"
    wait_until(lambda: says in cluster.log(1), "the program that is too old to say so")
    cluster.kill(1)
    cluster.programs[1] = one.later
    cluster.start(1)
    cluster.wait_led(one.log)
