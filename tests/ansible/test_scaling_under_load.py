"""A cluster grows, shrinks, and has nodes replaced, alive and dead, while clients outside use it: nothing that was
acknowledged is lost, doubled or out of order.

One test, because each part needs what the parts before it made; its parts are the functions it calls.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.ansible.conftest import hosts_up, whole_of_provisioning
from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.playbooks import ControlHost
from tests.ansible.steps import (
    LOG,
    NODE,
    PARTITIONS,
    done,
    node_numbers,
    nothing_was_lost,
    process,
    running,
    under_load,
)
from tests.integration.clusters.cluster import wait_until

PER_SECOND = int(os.environ.get("HOLDFAST_SCALED_PER_SECOND", "500"))
REPLICAS = 3

pytestmark = whole_of_provisioning


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetwork]:
    yield from hosts_up(tmp_path_factory, 5)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nodes_come_go_and_are_replaced_under_load(
    network: HostNetwork, control: ControlHost, measured: Callable[[str], None]
) -> None:
    a_cluster_of_three(control, network)
    measured(f"grown, replaced and shrunk under load: {json.dumps(it_grows_and_shrinks(control, network))}")
    measured(f"a dead host replaced under load: {json.dumps(a_dead_host_is_replaced(control, network))}")
    its_return_is_harmless(control, network)
    a_host_without_its_data_is_replaced(control, network)


def a_cluster_of_three(control: ControlHost, network: HostNetwork) -> None:
    first, *_ = network.hosts
    control.groups |= {"holdfast_nodes": ["n1", "n2", "n3"], "zookeepers": [], "toxiproxies": []}
    control.variables |= {
        "holdfast_node_discovery": "static",
        "holdfast_node_logs": [{"name": LOG, "partitions": PARTITIONS, "replicas": REPLICAS}],
        "holdfast_node_settled_within_s": 300,
    }
    done(control.play("site"))
    finalized = first.ssh(f"holdfast cluster finalize --heard-s 0 --json --server {first.inside}:5672")
    assert finalized.returncode == 0, finalized.stderr


@contextmanager
def used(network: HostNetwork, hosts: Sequence[NetworkHost]) -> Iterator[dict[str, object]]:
    """Clients that were given these hosts use the cluster; what they say stands in what is yielded, afterwards."""
    report: dict[str, object] = {}
    with under_load(network, PER_SECOND, hosts=hosts) as produced:
        yield report
        report |= produced()
    nothing_was_lost(report)
    assert report["read"] == report["sent"], report


def it_grows_and_shrinks(control: ControlHost, network: HostNetwork) -> dict[str, object]:
    """3 -> 4 -> one of the first replaced -> 3, for clients that know the first three nodes."""
    first, second, _, fourth, _ = network.hosts
    with used(network, network.hosts[:3]) as report:
        control.groups["holdfast_nodes"] = ["n1", "n2", "n3", "n4"]
        done(control.play("scale-out", "-e", "balance=true"))
        assert node_numbers(first) == [1, 2, 3, 4]
        assert 4 in places(first)
        control.groups["holdfast_nodes"] = ["n1", "n2", "n3", "n4", "n5"]
        done(control.play("replace-node", "-e", "old=n2", "-e", "new=n5"))
        assert node_numbers(first) == [1, 3, 4, 5]
        control.groups["holdfast_nodes"] = ["n1", "n3", "n4", "n5"]
        done(control.play("scale-in", "-e", "nodes=n4", "-e", "wipe=true"))
        assert node_numbers(first) == [1, 3, 5]
        control.groups["holdfast_nodes"] = ["n1", "n3", "n5"]
    assert [running(host) for host in (second, fourth)] == ["", ""]
    assert places(first) == {1, 3, 5}
    return report


def a_dead_host_is_replaced(control: ControlHost, network: HostNetwork) -> dict[str, object]:
    """It stays in the inventory, and is not reached; so does the play that is run again."""
    first, _, third, _, fifth = network.hosts
    control.hosts["n4"]["holdfast_node_id"] = 6
    control.groups["holdfast_nodes"] = ["n1", "n3", "n4", "n5"]
    with used(network, [first, third, fifth]) as report:
        third.kill()
        replaced = done(control.play("replace-node", "-e", "old=n3", "-e", "new=n4"))
        assert node_numbers(first) == [1, 5, 6]
        done(control.play("replace-node", "-e", "old=n3", "-e", "new=n4"))
    assert "n3 is not reached" in " ".join(replaced.text.split())
    assert places(first) == {1, 5, 6}
    refused = control.play("scale-out")
    assert refused.status != 0
    assert "n3 is not reached" in " ".join(refused.text.split())
    assert "n1 is not reached" not in " ".join(refused.text.split())
    return report


def its_return_is_harmless(control: ControlHost, network: HostNetwork) -> None:
    """With all its data, and with its service, which starts at boot: it is told that it was removed, and ends."""
    first, _, third, fourth, fifth = network.hosts
    others = [running(host) for host in (first, fourth, fifth)]
    with used(network, [third, fifth]):
        third.start()
        end_of_log = "tail -n 20 /var/log/holdfast/node.log"
        wait_until(lambda: "node 3 was removed" in third.ssh(end_of_log).stdout, "the word that node 3 was removed", 60)
        wait_until(lambda: process(third, NODE) == "0", "the end of node 3")
        for play, said in (("site", "node 3 (n3): the cluster runs, and has no"), ("scale-out", "node 3 was removed")):
            refused = control.play(play)
            assert refused.status != 0
            assert said in " ".join(refused.text.split()), refused.text
        assert node_numbers(first) == [1, 5, 6]
        done(control.play("replace-node", "-e", "old=n3", "-e", "new=n4", "-e", "wipe=true"))
        control.groups["holdfast_nodes"] = ["n1", "n4", "n5"]
        done(control.play("site"))
    assert running(third) == ""
    assert [running(host) for host in (first, fourth, fifth)] == others
    done(control.play("verify"))


def a_host_without_its_data_is_replaced(control: ControlHost, network: HostNetwork) -> None:
    """A bare host is reached where the old node was; the one that was removed before comes as another node."""
    first, _, third, fourth, fifth = network.hosts
    control.hosts["n3"]["holdfast_node_id"] = 7
    control.groups["holdfast_nodes"] = ["n1", "n3", "n4", "n5"]
    with used(network, [first, fourth]):
        fifth.kill()
        fifth.rebuild()
        done(control.play("replace-node", "-e", "old=n5", "-e", "new=n3"))
        assert node_numbers(first) == [1, 6, 7]
        control.groups["holdfast_nodes"] = ["n1", "n3", "n4"]
        done(control.play("site"))
    assert places(first) == {1, 6, 7}
    assert running(fifth) == ""
    assert process(third, NODE) != "0"
    done(control.play("verify"))


def places(host: NetworkHost) -> set[int]:
    """The nodes on which the log lies."""
    told = json.loads(host.ssh(f"holdfast log describe {LOG} --json --server {host.inside}:5672").stdout)
    assert all(len(one["replicas"]) == REPLICAS for one in told["partitions"])
    return {node for one in told["partitions"] for node in one["replicas"]}
