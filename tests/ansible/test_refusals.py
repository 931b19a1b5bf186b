"""What cannot work is refused before anything is changed, with the variable to mend."""

from __future__ import annotations

import copy
import platform
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.hosts.spaces import PYTHON
from tests.ansible.playbooks import ControlHost

Hosts = dict[str, dict[str, Any]]

pytestmark = whole_of_provisioning


def elsewhere(hosts: Hosts) -> None:
    hosts["n2"]["ansible_host"] = "10.77.0.250"


def unknown_name(hosts: Hosts) -> None:
    hosts["n2"]["ansible_host"] = "no-such-host.invalid"


def foreign_address(hosts: Hosts) -> None:
    hosts["n3"]["holdfast_node_address"] = "10.77.0.251"


def foreign_listener(hosts: Hosts) -> None:
    hosts["n1"]["holdfast_node_listeners"][1]["bind"] = "10.79.0.1:5672"


def one_id_twice(hosts: Hosts) -> None:
    hosts["n3"]["holdfast_node_id"] = 1


def no_id(hosts: Hosts) -> None:
    del hosts["n3"]["holdfast_node_id"]


def servers_alike(hosts: Hosts) -> None:
    hosts["n2"]["zookeeper_id"] = 1


def another_bundle(hosts: Hosts) -> None:
    hosts["n2"]["holdfast_node_bundle"] = __file__


def no_python(hosts: Hosts) -> None:
    hosts["n2"]["holdfast_node_python"] = "/usr/bin/python2"


def foreign_server_address(hosts: Hosts) -> None:
    hosts["n2"]["zookeeper_address"] = "10.77.0.252"


def another_listener(hosts: Hosts) -> None:
    hosts["n2"]["holdfast_node_listeners"] = hosts["n2"]["holdfast_node_listeners"][:1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "variables", "said"),
    [
        (elsewhere, {}, "ansible_host: n2 is not reached at 10.77.0.250"),
        (unknown_name, {}, "ansible_host: n2 is not reached at no-such-host.invalid"),
        (foreign_address, {}, "holdfast_node_address: 10.77.0.251: this host has no such address"),
        (foreign_listener, {}, "holdfast_node_listeners: 10.79.0.1: this host has no such address"),
        (one_id_twice, {}, "holdfast_node_id: must be set on every host"),
        (no_id, {}, "holdfast_node_id: must be set on every host"),
        (servers_alike, {}, "zookeeper_id: must be set on every host"),
        (another_bundle, {}, "holdfast_node_bundle:"),
        (no_python, {}, "holdfast_node_python: /usr/bin/python2 is no Python"),
        (foreign_server_address, {}, "zookeeper_address: 10.77.0.252: this host has no such address"),
        (another_listener, {}, "holdfast_node_listeners: must have the same names on every node"),
        (
            None,
            {"holdfast_node_durability": "often"},
            "value of holdfast_node_durability must be one of: fsync, replicated",
        ),
        (None, {"zookeeper_client_port": "many"}, "argument 'zookeeper_client_port' is of type"),
        (
            None,
            {"common_supervisor": "upstart"},
            "value of common_supervisor must be one of: auto, systemd, supervisord",
        ),
        (
            None,
            {"common_nofile": 2**30},
            "common_nofile: 1073741824 open files, but this host lets no process have more",
        ),
        (None, {"zookeeper_min_disk_mib": 10**9}, "zookeeper_min_disk_mib: /var/lib/holdfast-zookeeper has"),
        (None, {"holdfast_node_zookeeper_group": "nobody"}, "holdfast_node_discovery: zookeeper, but group nobody"),
        (
            None,
            {"holdfast_node_peer_addresses": {"n2": "127.0.0.1:17102"}},
            "names other hosts of group holdfast_nodes, with a host:port for each, where holdfast_node_discovery is",
        ),
        (None, {"holdfast_node_anonymous": "never"}, "holdfast_node_operator: no name, and nobody is let in without a"),
        (None, {"holdfast_node_min_disk_mib": 10**9}, "holdfast_node_min_disk_mib: /var/lib/holdfast/data has"),
        (
            None,
            {"holdfast_node_certificates": "given", "holdfast_node_key_file": "/nowhere/node.key"},
            "holdfast_node_certificates: given, but on the control host one of",
        ),
        (None, {"holdfast_node_logs": [{"name": "x", "replicas": 4}]}, "holdfast_node_logs: x asks for 4 replicas"),
        (
            None,
            {"holdfast_node_bundle": "/nowhere/bundle.tar.gz"},
            "holdfast_node_bundle: /nowhere/bundle.tar.gz is no",
        ),
    ],
)
def test_it_is_refused(
    network: HostNetwork,
    control: ControlHost,
    spoil: Callable[[Hosts], None] | None,
    variables: dict[str, Any],
    said: str,
) -> None:
    hosts = copy.deepcopy(control.hosts)
    if spoil is not None:
        spoil(hosts)
    refused(network, control, said, hosts=hosts, **variables)


@pytest.mark.slow
def test_a_port_in_use_is_refused_with_who_has_it(network: HostNetwork, control: ControlHost) -> None:
    with listening(network.hosts[0], 5672):
        text = refused(network, control, "holdfast_node_listeners: port 5672 of 10.77.0.1 is in use by")
    assert "http.server" in text
    with listening(network.hosts[1], 2181):
        refused(network, control, "zookeeper_client_port: port 2181 of 10.77.0.2 is in use by")


@pytest.mark.slow
def test_a_bundle_for_another_python_is_refused(network: HostNetwork, control: ControlHost, tmp_path: Path) -> None:
    (tmp_path / "PYTHON").write_text("3.99 pdp11\n")
    bundle = tmp_path / "holdfast-bundle-1.2.3.tar.gz"
    with tarfile.open(bundle, "w:gz") as archive:
        archive.add(tmp_path / "PYTHON", "./PYTHON")
    refused(network, control, "but what is installed is for 3.99 pdp11", holdfast_node_bundle=str(bundle))
    bundle.write_bytes(bundle.read_bytes()[:20])  # a copy that was broken off
    refused(network, control, f"holdfast_node_bundle: {bundle} is no bundle", holdfast_node_bundle=str(bundle))


@pytest.mark.slow
def test_a_bundle_without_supervisord_is_refused(network: HostNetwork, control: ControlHost, tmp_path: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor} {platform.machine()}\n"
    (tmp_path / "PYTHON").write_text(version)
    bundle = tmp_path / "holdfast-bundle-1.2.3.tar.gz"
    with tarfile.open(bundle, "w:gz") as archive:
        archive.add(tmp_path / "PYTHON", "./PYTHON")
    refused(network, control, f"common_bundle: {bundle} has no supervisord", holdfast_node_bundle=str(bundle))


@pytest.mark.slow
def test_mixed_versions_are_refused(network: HostNetwork, control: ControlHost) -> None:
    host = network.hosts[2]
    assert (
        host.ssh("mkdir -p /opt/holdfast && ln -s /opt/holdfast/releases/0.0.9 /opt/holdfast/current").returncode == 0
    )
    try:
        refused(network, control, "holdfast_node_bundle: version")
    finally:
        host.ssh("rm -r /opt/holdfast")


def refused(network: HostNetwork, control: ControlHost, said: str, **more: Any) -> str:
    before = [host.written() for host in network.hosts]
    outcome = control.play("site", reach_within_s=5, **more)
    text = " ".join(outcome.text.split())
    assert outcome.status != 0, outcome.text
    assert said in text, outcome.text
    assert outcome.changed == 0, outcome.text
    assert [host.written() for host in network.hosts] == before
    return text


@contextmanager
def listening(host: NetworkHost, port: int) -> Iterator[None]:
    """A stranger's server on the host."""
    command = f"{PYTHON} -m http.server {port} --bind {host.inside}"
    pid = host.ssh(f"{command} >/dev/null 2>&1 & echo $!").stdout.strip()
    probe = f"{PYTHON} -c 'import socket; socket.create_connection((\"{host.inside}\", {port}), 5)'"
    assert (
        host.ssh(f"for i in 1 2 3 4 5 6 7 8 9; do {probe} 2>/dev/null && exit 0; sleep 1; done; exit 1").returncode == 0
    )
    try:
        yield
    finally:
        host.ssh(f"kill {pid}")
