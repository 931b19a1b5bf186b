"""A cluster that runs without TLS for clients gets it, node by node, and loses it again."""

from __future__ import annotations

import pytest

from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.hosts.network import HostNetwork
from tests.ansible.playbooks import ControlHost
from tests.ansible.steps import (
    done,
    nothing_was_lost,
    numbers,
    one_after_another,
    running,
    teardown_leaves_nothing,
    under_load,
    watched,
)
from tests.authority import Authority

PER_SECOND = 100

pytestmark = whole_of_provisioning


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_running_cluster_moves_to_tls_and_back(network: HostNetwork, control: ControlHost) -> None:
    bare = [host.written() for host in network.hosts]
    control.groups |= {"zookeepers": [], "toxiproxies": []}
    control.variables |= {"holdfast_node_discovery": "static"}
    authority = Authority(control.directory / "tls")
    for host in network.hosts:
        authority.issue("listener", [host.inside], file=host.name)
    done(control.play("site"))
    files = {"cert": "{{ inventory_hostname }}.pem", "key": "{{ inventory_hostname }}.key", "ca": "ca.pem"}
    for kind, name in files.items():
        control.variables[f"holdfast_node_tls_{kind}_file"] = "{{ inventory_dir }}/tls/" + name
    moved(control, network, "on")
    assert network.hosts[0].ssh(f"holdfast log list --server {network.hosts[1].inside}:5672").returncode != 0
    told = "HOLDFAST_CONFIG=/etc/holdfast/client.toml holdfast log list --server"
    assert "events" in network.hosts[0].ssh(f"{told} {network.hosts[1].inside}:5672").stdout
    moved(control, network, "off")
    assert "events" in network.hosts[0].ssh(f"{told} {network.hosts[1].inside}:5672").stdout
    teardown_leaves_nothing(control, network, bare)


def moved(control: ControlHost, network: HostNetwork, tls: str) -> None:
    """The first listener, which plays reach nodes by; those who use the other one notice nothing."""
    before = [running(host) for host in network.hosts]
    nodes = [f"{host.inside}:5672" for host in network.hosts]
    for variables in control.hosts.values():
        variables["holdfast_node_listeners"][0]["tls"] = tls
    with under_load(network, PER_SECOND) as produced, watched(network, nodes) as seen:
        done(control.play("site"))
        away, report = seen(), produced()
    nothing_was_lost(report)
    one_after_another(away, nodes)
    for host, was in zip(network.hosts, before, strict=True):
        assert not numbers(was) & numbers(running(host))
    assert done(control.play("site")).changed == 0
    done(control.play("verify"))
