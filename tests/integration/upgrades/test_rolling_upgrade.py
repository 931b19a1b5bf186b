"""A cluster goes to the next release node by node under load, back, forward again, and is finalized. Real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.versions import NEWEST, OLDEST, OURS
from holdfast.client.errors import AdminError
from holdfast.client.options import ProducerOptions
from holdfast.client.sync import ProducerClient
from node.storage import data_versions
from node.storage.data_versions import DataVersions
from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.judges.judging import judge, start_producers, wait_resumed
from tests.integration.upgrades.later_release import LATER, LATER_LAYOUTS, later_release
from tests.integration.upgrades.stored import applied_again, everything, stored

pytestmark = pytest.mark.cluster

EXIT_STORAGE = 3
LAYOUTS = {"hard state": 2, "metadata": 7, "partition": 7, "coordinator": 1}


class Upgrade:
    """A cluster under load, whose nodes get one program after the other."""

    def __init__(self, cluster: Cluster, later: Path) -> None:
        self.cluster, self.later = cluster, later
        cluster.start()
        self.log = cluster.create("events", partitions=3)
        self.transact()
        self.producers = start_producers(cluster, self.log)

    def transact(self) -> None:
        """One transaction, so that its coordinator has something to remember."""
        log = self.cluster.create("transacted", partitions=1)
        options = ProducerOptions(transactional_id="writer")
        with ProducerClient(self.cluster.addresses, log, options) as producer, producer.transaction() as transaction:
            transaction.send(b"once", partition="0")

    def change(self, node: int, program: Path | None, *, kill: bool = False) -> None:
        """Start a node again, with another program; None: this one."""
        (self.cluster.kill if kill else self.cluster.stop)(node)
        self.start(node, program)

    def start(self, node: int, program: Path | None) -> None:
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

    def finalize(self, *, dry_run: bool = False, heard_s: int = 0) -> dict[str, Any]:
        return self.cluster.call(lambda admin: admin.finalize_upgrade(dry_run=dry_run, heard_s=heard_s))

    def refused(self, *, heard_s: int = 0) -> str:
        with pytest.raises(AdminError) as refusal:
            self.finalize(heard_s=heard_s)
        return str(refusal.value)

    def check_refuses(self, node: int, program: Path | None, says: str) -> None:
        """The program does not know the data of a node that is down: it says so, and leaves them as they are."""
        data_dir = self.cluster.nodes[node].data_dir
        before = everything(data_dir)
        self.cluster.programs.pop(node, None)
        if program is not None:
            self.cluster.programs[node] = program
        self.cluster.allowed = ("holds data of version",)  # type: ignore[attr-defined]
        self.cluster.start(node, wait=False)
        assert self.cluster.wait_exit(node) == EXIT_STORAGE
        assert says in self.cluster.log(node)
        assert everything(data_dir) == before

    def data(self, node: int) -> DataVersions | None:
        return data_versions.read(self.cluster.nodes[node].data_dir)

    def check_stored(self, node: int, layouts: dict[str, int]) -> None:
        """All that a node without a process has is in these layouts; of this release it is what this one makes."""
        groups = stored(self.cluster, node).values()
        assert {group.kind for group in groups if group.layout is not None} == {"metadata", "partition", "coordinator"}
        for group in groups:
            assert group.hard_state_layout == layouts["hard state"]
            assert group.layout in (None, layouts[group.kind]), (node, group.kind, group.layout)
            if layouts is LAYOUTS and group.layout is not None:
                assert group.checkpoint == applied_again(group), (node, group.kind)


@pytest.mark.timeout(900)
def test_up_node_by_node_back_and_up_again_until_it_is_finalized(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    one = Upgrade(make_cluster(), later_release(tmp_path / "later"))
    cluster = one.cluster
    assert one.status()["active_version"] == NEWEST
    assert one.finalize()["target_version"] == NEWEST, "there is nothing newer, and nothing to do"
    one.change(1, one.later)
    assert one.versions() == {1: [OLDEST, LATER], 2: [OLDEST, NEWEST], 3: [OLDEST, NEWEST]}
    obstacles = one.finalize(dry_run=True)["obstacles"]
    assert [text[:7] for text in obstacles] == ["node 2 ", "node 3 "]
    assert "node 2 runs a program that knows version" in one.refused()
    one.change(2, one.later, kill=True)
    one.change(3, one.later)
    wait_until(lambda: one.data(3) == DataVersions(NEWEST, NEWEST), "node 3 to have data of one version")

    cluster.stop(2)
    one.check_stored(2, LAYOUTS)  # all were there, and wrote nothing of the later version
    one.start(2, None)
    one.change(1, None, kill=True)
    assert "node 1 runs a program" in one.refused()
    one.change(1, one.later)
    one.change(2, one.later)
    cluster.stop(3)
    wait_until(lambda: "node 3 does not answer" in str(one.finalize(dry_run=True)["obstacles"]), "node 3 to be missed")
    assert "node 3 does not answer: start it" in one.refused()
    assert one.status()["active_version"] == NEWEST
    one.check_stored(3, LAYOUTS)
    too_new = later_release(tmp_path / "too new", oldest=LATER)
    one.check_refuses(3, too_new, f"this program knows version {LATER}: install an earlier release that knows version")
    one.start(3, one.later)
    wait_until(lambda: not one.finalize(dry_run=True)["obstacles"], "all nodes to be heard")
    assert "without a break, of 86400 s: wait" in one.refused(heard_s=86_400)
    wait_until(lambda: not one.finalize(dry_run=True, heard_s=1)["obstacles"], "all nodes to be heard for a second")
    assert one.finalize(heard_s=1)["active_version"] == LATER
    assert one.finalize()["active_version"] == LATER, "repeated"
    one.change(2, one.later, kill=True)  # its data are rewritten at the moment, or about to be
    for node in cluster.nodes:
        assert (found := one.data(node)) is not None
        assert found.newest == LATER
        wait_until(lambda node=node: one.data(node) == DataVersions(LATER, LATER), f"node {node} to rewrite its data")
    cluster.create("noted", partitions=1)
    for producer in one.producers:
        wait_resumed(producer, producer.acks[-1][0])
    judge(cluster, one.log, one.producers)

    cluster.stop()
    for node in cluster.nodes:
        one.check_stored(node, LATER_LAYOUTS)
    says = f"holds data of version {LATER}, and this program knows {OURS}: install the release that wrote"
    one.check_refuses(1, None, says)
    cluster.programs[1] = one.later
    cluster.start()
    cluster.wait_led(one.log)
