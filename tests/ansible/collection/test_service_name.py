"""The role service_name: its configurations are judged by the programs themselves, and a proxy that runs with one leads
real nodes' clients to them, under their own addresses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import ConnectionException, Message

from holdfast.cli.local_cluster import child_processes
from tests.ansible.playbooks import COLLECTION, ansible_directory
from tests.integration.clusters.cluster import Cluster, ClusterSettings, wait_until
from tests.integration.workloads.plain import connected, read
from tests.ports import free_ports

CLIENT = "127.0.0.77"
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
HAPROXY, KEEPALIVED = (shutil.which(name, path=PATH) for name in ("haproxy", "keepalived"))

pytestmark = [
    pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it"),
    pytest.mark.skipif(not HAPROXY or not KEEPALIVED, reason="not installed: scripts/system-packages.sh proxy"),
]


def render(into: Path, nodes: dict[str, Any], given: dict[str, Any]) -> Path:
    """Write the configurations for these nodes. `given`: variables of the role."""
    directory = ansible_directory()
    assert directory is not None
    hosts = {"service_names": {"hosts": {"front": {}}}, "holdfast_nodes": {"hosts": nodes}}
    inventory = into / "hosts.json"
    inventory.write_text(json.dumps({"all": {"children": hosts}}))
    said = {"into": str(into), "given": given, "ansible_python_interpreter": sys.executable}
    playbook = Path(__file__).with_name("render_service_name.yml")
    done = subprocess.run(
        [str(directory / "ansible-playbook"), "-i", str(inventory), str(playbook), "-e", json.dumps(said)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(COLLECTION / "ansible.cfg")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return into


def verdict(*words: object) -> tuple[int, str]:
    """The status and words of a program, which may signal its whole group, as keepalived does."""
    done = subprocess.run(
        [*map(str, words)], capture_output=True, text=True, check=False, start_new_session=True, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


NODES = {f"node{number}": {"holdfast_node_address": f"192.0.2.{number}"} for number in (1, 2, 3)}
MULTICAST = 0x1000
"""Flag of an interface that VRRP can use."""
INTERFACES = [
    name
    for _, name in socket.if_nameindex()
    if name != "lo" and int(Path(f"/sys/class/net/{name}/flags").read_text(), 16) & MULTICAST
]
FLOATING = {"service_name_address": "192.0.2.100/24", "service_name_interface": (*INTERFACES, "eth0")[0]}


@pytest.mark.parametrize("proxy", [True, False], ids=["before a proxy", "before a node"])
def test_both_programs_take_what_is_written(tmp_path: Path, proxy: bool) -> None:
    made = render(tmp_path, NODES, {**FLOATING, "service_name_proxy": proxy})
    status, said = verdict(HAPROXY, "-c", "-f", made / "haproxy.cfg")
    assert status == 0, said
    if INTERFACES:
        status, said = verdict(KEEPALIVED, "--config-test", "--use-file", made / "keepalived.conf")
        assert status == 0 or (status == -signal.SIGTERM and not proxy), said  # with a script it ends by its own signal
        assert not said
    written = (made / "haproxy.cfg").read_text()
    assert all(f"bind *:{port}" in written for port in (5672, 5671, 443))
    assert written.count("    server node") == len(NODES)


def test_the_programs_would_have_said_if_they_did_not(tmp_path: Path) -> None:
    made = render(tmp_path, NODES, FLOATING)
    spoilt = tmp_path / "spoilt.cfg"
    spoilt.write_text((made / "haproxy.cfg").read_text().replace("balance leastconn", "balance best"))
    assert verdict(HAPROXY, "-c", "-f", spoilt)[0] != 0
    spoilt.write_text((made / "keepalived.conf").read_text().replace("advert_int", "advert_integer"))
    assert "advert_integer" in verdict(KEEPALIVED, "--config-test", "--use-file", spoilt)[1]


def test_a_node_is_asked_whether_it_is_ready(tmp_path: Path) -> None:
    question = COLLECTION / "roles/service_name/files/node_ready.py"
    assert verdict(sys.executable, question, "127.0.0.1", next(iter(free_ports(1))))[0] == 1


# ------------------------------------------------------------------------------------------------- a proxy that runs


@contextmanager
def nodes(directory: Path, ports: Sequence[tuple[int, int]]) -> Iterator[Cluster]:
    """Nodes with a listener for proxies each. `ports`: of that and of monitoring."""
    more = {
        number: f'[[listener]]\nname = "service"\nbind = "127.0.0.1:{port}"\nproxies = ["127.0.0.1"]\n'
        f'[monitoring]\nbind = "127.0.0.1:{monitoring}"'
        for number, (port, monitoring) in enumerate(ports, 1)
    }
    cluster = Cluster(directory, ClusterSettings(nodes=len(more), more_of=more))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def reached(port: int) -> bool:
    """Tell whether a client by the proxy comes to a node that serves."""
    try:
        with connected(f"127.0.0.1:{port}") as connection:
            connection.create_sender("orders")
    except (ConnectionException, OSError):
        return False
    return True


def logged(cluster: Cluster) -> str:
    return "".join(node.log_path.read_text(encoding="utf-8") for node in cluster.nodes.values())


@pytest.mark.cluster
def test_a_proxy_leads_clients_to_nodes_that_serve_under_their_own_addresses(tmp_path: Path) -> None:
    service, *free = free_ports(7)
    ports = list(zip(free[:3], free[3:], strict=True))
    with nodes(tmp_path / "cluster", ports) as cluster:
        cluster.create("orders", 1)
        hosts = {
            f"node{number}": {
                "holdfast_node_address": "127.0.0.1",
                "service_name_node_port": port,
                "holdfast_node_monitoring_port": monitoring,
            }
            for number, (port, monitoring) in enumerate(ports, 1)
        }
        given = {
            "service_name_bind": ["127.0.0.1"],
            "service_name_ports": [service],
            "service_name_max_connections": 100,
        }
        made = render(tmp_path, hosts, given)
        proxy = child_processes.spawn([str(HAPROXY), "-db", "-f", str(made / "haproxy.cfg")])
        try:
            wait_until(lambda: reached(service), "the proxy leads to a node")
            with connected(f"127.0.0.1:{service}") as connection:
                connection.create_sender("orders").send(Message("through the proxy"))
            with socket.create_connection(("127.0.0.1", service), source_address=(CLIENT, 0)) as stranger:
                stranger.sendall(b"nonsense" * 4)
                stranger.shutdown(socket.SHUT_WR)
            wait_until(lambda: CLIENT in logged(cluster), "a node logs the client by its own address")
            cluster.kill(1)
            wait_until(lambda: reached(service), "the proxy leads to another node")
            with connected(f"127.0.0.1:{service}") as connection:
                connection.create_sender("orders").send(Message("after a kill"))
            found = [event.body for event in read(cluster.address(2), "orders", 2)]
            assert found == ["through the proxy", "after a kill"]
        finally:
            proxy.kill()
            proxy.wait()
