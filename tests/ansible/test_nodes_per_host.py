"""A host with several nodes: each with its own service, ports, data and configuration, and one release."""

from __future__ import annotations

import pytest

from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.hosts.network import HostNetwork
from tests.ansible.playbooks import PlayOutcome
from tests.ansible.security.closed import OPERATOR, Closed, ask
from tests.ansible.steps import NODE, done, process, running

NODES = 3
IDS = [1, 101, 201]


@whole_of_provisioning
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_nodes_of_a_host_come_stay_and_go(one_host: HostNetwork, closed: Closed) -> None:
    host = one_host.hosts[0]
    bare = host.written()
    closed.name({OPERATOR: "of-the-operator"}, [])
    closed.control.variables |= {
        "holdfast_nodes_per_host": NODES,
        "holdfast_node_healthy_within_s": 60,
        "holdfast_node_logs": [{"name": "events", "partitions": 6, "replicas": 3}],
    }
    done(closed.control.play("site"))
    again = done(closed.control.play("site"))
    assert again.changed == 0, again.text
    assert set(again.recap) == {"n1", "n1-2", "n1-3"}

    nodes = ask(host, "node list")["nodes"]
    assert [node["node"] for node in nodes] == IDS
    assert {node["rack"] for node in nodes} <= {"", "n1"}  # noted once the cluster's version knows of racks
    assert [node["rpc_address"] for node in nodes] == [f"{host.inside}:{port}" for port in (7101, 7111, 7121)]
    assert [node["listeners"]["outside"] for node in nodes] == [f"{host.outside}:{port}" for port in (5672, 5682, 5692)]
    assert len(host.ssh("ls -d /opt/holdfast/releases/*/").stdout.split()) == 1
    assert len({process(host, service) for service in (NODE, f"{NODE}-2", f"{NODE}-3")}) == NODES

    before = running(host)
    changed = done(closed.control.play("site", holdfast_node_cache_mib=64))
    assert changed.changed > 0
    assert not set(before.splitlines()) & set(running(host).splitlines())
    done(closed.control.play("verify"))
    refused = closed.control.play("site", holdfast_nodes_per_host=17)
    assert says(refused, "holdfast_nodes_per_host: 17 on n1")
    torn_down(closed)
    assert running(host) == ""
    assert {path for path in host.written() - bare if "holdfast" in path and "/var/lib/holdfast" not in path} == set()


def says(outcome: PlayOutcome, text: str) -> bool:
    return outcome.status != 0 and text in " ".join(outcome.text.split())


def torn_down(closed: Closed) -> None:
    name = str(closed.control.variables["holdfast_node_cluster"])
    done(closed.control.play("teardown", teardown_confirmed=name))
