"""Racks as an operator has them: in each node's configuration, in `node list`, and in where replicas are."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from holdfast.cli.app import main
from tests.integration.clusters.cluster import Cluster, wait_until

pytestmark = pytest.mark.cluster


def configure(cluster: Cluster, node: int, rack: str) -> None:
    path = cluster.nodes[node].config_path
    lines = [line for line in path.read_text().splitlines() if not line.startswith("rack = ")]
    lines.insert(lines.index("[node]") + 1, f'rack = "{rack}"')
    path.write_text("\n".join(lines) + "\n")


def racks(cluster: Cluster) -> dict[int, str]:
    said = CliRunner().invoke(main, ["node", "list", "--server", cluster.address(1), "--json"])
    return {node["node"]: node["rack"] for node in json.loads(said.output)["nodes"]}


def reassign(cluster: Cluster, *words: str) -> tuple[int, str]:
    said = CliRunner().invoke(main, ["log", "reassign", *words, "--server", cluster.address(1)])
    return said.exit_code, " ".join((said.output + said.stderr).split())


def test_replicas_are_spread_over_the_racks_of_the_configuration(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    for node, rack in ((1, "a"), (2, "a"), (3, "b")):
        configure(cluster, node, rack)
    cluster.start()
    wait_until(lambda: racks(cluster) == {1: "a", 2: "a", 3: "b"}, "all racks are told")
    log = cluster.call(lambda admin: admin.create_log("spread", partitions=6, replicas=2))
    assert all(3 in partition["replicas"] for partition in log["partitions"])
    cluster.stop(2)
    configure(cluster, 2, "c")
    cluster.start(2)
    wait_until(lambda: racks(cluster)[2] == "c", "the new rack is told")


def test_an_operator_puts_replicas_into_one_rack_only_if_they_say_so(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    for node, rack in ((1, "a"), (2, "a"), (3, "b")):
        configure(cluster, node, rack)
    cluster.start()
    wait_until(lambda: racks(cluster) == {1: "a", 2: "a", 3: "b"}, "all racks are told")
    log = cluster.create("apart", 2, 2)
    status, said = reassign(cluster, f"{log}/0", "--to", "1,2")
    assert status != 0
    assert f"{log}/0: nodes 1, 2 stand in rack a, and other nodes are free: 3 (rack b); name one of these" in said
    assert reassign(cluster, f"{log}/0", "--to", "1,2", "--allow-same-rack")[0] == 0
    cluster.kill(3)
    wait_until(lambda: reassign(cluster, f"{log}/1", "--to", "1,2")[0] == 0, "a rack that is down is not waited for")
