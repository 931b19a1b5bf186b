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
