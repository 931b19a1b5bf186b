"""A cluster that grows, shrinks and has a node replaced by playbooks, while the others go on."""

from __future__ import annotations

import json

import pytest

from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.playbooks import CLUSTER, ControlHost
from tests.ansible.steps import configured, done, node_numbers, running
from tests.integration.clusters.cluster import wait_until


@whole_of_provisioning
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nodes_come_go_and_are_replaced(network: HostNetwork, control: ControlHost) -> None:
    first, second, third = network.hosts
    control.groups |= {"holdfast_nodes": ["n1", "n2"], "zookeepers": [], "toxiproxies": []}
    control.variables |= {
        "holdfast_node_discovery": "static",
        "holdfast_node_logs": [{"name": "events", "partitions": 6, "replicas": 2}],
        "holdfast_node_settled_within_s": 120,
    }
    done(control.play("site"))
    finalized = first.ssh(f"holdfast cluster finalize --heard-s 0 --json --server {first.inside}:5672")
    assert finalized.returncode == 0, finalized.stderr
    sent = first.ssh(f"seq 100 | holdfast produce events --json --server {first.inside}:5672")
    assert json.loads(sent.stdout)["events"] == 100, sent.stderr
    before = running(first), running(second)

    refused = control.play("scale-in", "-e", "nodes=n2")
    assert refused.status != 0
    assert "events has 2 replicas, and 2 nodes would be 1" in " ".join(refused.text.split())

    control.groups["holdfast_nodes"] = ["n1", "n2", "n3"]
    stranger = control.play("site")
    assert stranger.status != 0
    assert "node 3 (n3): the cluster runs, and has no such node" in " ".join(stranger.text.split())
    assert stranger.changed == 0, stranger.text
    check_mode_changes_nothing(control, network, "scale-out", "-e", "balance=true")
    done(control.play("scale-out", "-e", "balance=true"))
    assert node_numbers(first) == [1, 2, 3]
    assert held(first)[3] > 0
    done(control.play("scale-out"))
    done(control.play("site"))
    assert (running(first), running(second)) == before, "a longer list restarts nobody"
    assert done(control.play("site")).changed == 0

    check_mode_changes_nothing(control, network, "scale-in", "-e", "nodes=n2")
    done(control.play("scale-in", "-e", "nodes=n2", "-e", "wipe=true"))
    assert node_numbers(first) == [1, 3]
    assert running(second) == ""
    assert "node" not in second.ssh("ls /etc/holdfast").stdout, "keys of the cluster are left"
    done(control.play("scale-in", "-e", "nodes=n2"))

    control.hosts["n2"]["holdfast_node_id"] = 4
    control.groups["holdfast_nodes"] = ["n1", "n2", "n3"]
    check_mode_changes_nothing(control, network, "replace-node", "-e", "old=n3", "-e", "new=n2")
    done(control.play("replace-node", "-e", "old=n3", "-e", "new=n2"))
    assert node_numbers(first) == [1, 4]
    assert running(third) == ""
    control.groups["holdfast_nodes"] = ["n1", "n2"]
    done(control.play("site"))
    done(control.play("verify"))
    read = first.ssh(f"holdfast consume events --from earliest --until-end --server {first.inside}:5672")
    assert sorted(read.stdout.split()) == sorted(map(str, range(1, 101))), read.stderr
    assert running(first) == before[0]
    a_teardown_goes_on_without_a_dead_host(control, first, second)


def check_mode_changes_nothing(control: ControlHost, network: HostNetwork, name: str, *arguments: str) -> None:
    before = [(configured(host), running(host)) for host in network.hosts]
    nodes = node_numbers(network.hosts[0])
    done(control.play(name, "--check", *arguments))
    assert [(configured(host), running(host)) for host in network.hosts] == before
    assert node_numbers(network.hosts[0]) == nodes


def a_teardown_goes_on_without_a_dead_host(control: ControlHost, alive: NetworkHost, dead: NetworkHost) -> None:
    """It is taken down when it is back, and asked for then, too."""
    dead.kill()
    partly = control.play("teardown", teardown_confirmed=CLUSTER)
    assert partly.status != 0
    assert partly.recap[dead.name]["unreachable"] == 1, partly.text
    assert running(alive) == ""
    assert "holdfast" not in alive.ssh("ls /opt /etc").stdout
    dead.start()
    wait_until(lambda: running(dead) != "", "the node that starts at boot")
    unsure = control.play("teardown", "--limit", dead.name)
    assert unsure.status != 0
    assert f"teardown_confirmed={CLUSTER}" in unsure.text
    assert running(dead) != ""
    done(control.play("teardown", "--limit", dead.name, teardown_confirmed=CLUSTER))
    assert running(dead) == ""


def held(host: NetworkHost) -> dict[int, int]:
    """Replicas of each node, as a plan without a move tells them."""
    told = host.ssh(f"holdfast cluster balance --json --server {host.inside}:5672")
    return {one["node"]: one["replicas"] for one in json.loads(told.stdout)["after"]}
