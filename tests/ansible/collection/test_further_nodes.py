"""Hosts that run several nodes: what each node is told, without a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.playbooks import COLLECTION, ansible_directory

pytestmark = pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it")


def shown(
    directory: Path, hosts: dict[str, dict[str, Any]], *arguments: str, **variables: Any
) -> tuple[int, str, dict[str, Any]]:
    """Status and output of the playbook, and the nodes by their names."""
    programs, into = ansible_directory(), directory / "nodes"
    assert programs is not None
    into.mkdir()
    given = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "into": str(into)}
    given |= {"holdfast_node_bundle": "{{ inventory_dir }}/bundle", **variables}
    children = ({"holdfast_nodes": hosts, "zookeepers": hosts} if hosts else {}) | {"service_names": {"front": {}}}
    inventory = {"all": {"vars": given, "children": {group: {"hosts": members} for group, members in children.items()}}}
    (directory / "hosts.json").write_text(json.dumps(inventory))
    done = subprocess.run(
        [str(programs / "ansible-playbook"), "-i", str(directory / "hosts.json"),
         str(Path(__file__).with_name("show_nodes.yml")), *arguments],
        capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(COLLECTION / "ansible.cfg")},
    )  # fmt: skip
    return (
        done.returncode,
        done.stdout + done.stderr,
        {path.stem: json.loads(path.read_text()) for path in into.iterdir()},
    )


def test_a_play_of_a_host_without_a_node_knows_all_nodes(tmp_path: Path) -> None:
    hosts = {"a": {"holdfast_node_id": 1}, "b": {"holdfast_node_id": 2, "holdfast_nodes_per_host": 3}}
    status, said, found = shown(tmp_path, hosts, "--limit", "front")
    assert status == 0, said
    assert found == {"front": ["a", "b", "b-2", "b-3"]}


def test_an_inventory_without_nodes_has_none(tmp_path: Path) -> None:
    status, said, found = shown(tmp_path, {})
    assert status == 0, said
    assert found == {"front": []}


def test_each_node_of_a_host_has_an_id_ports_data_and_the_rack_of_its_host(tmp_path: Path) -> None:
    listeners = [{"name": "default", "bind": "10.0.0.2:5600", "advertise": "b.example:5600"}]
    hosts = {
        "a": {"ansible_host": "10.0.0.1", "holdfast_node_id": 1, "holdfast_nodes_per_host": 2},
        "b": {
            "ansible_host": "10.0.0.2", "holdfast_node_id": 2, "holdfast_nodes_per_host": 3,
            "holdfast_node_rack": "r", "holdfast_node_listeners": listeners, "holdfast_node_port_step": 5,
        },
        "c": {"ansible_host": "10.0.0.3", "holdfast_node_id": 3},
    }  # fmt: skip
    status, said, nodes = shown(tmp_path, hosts)
    assert status == 0, said
    assert nodes.pop("front") == ["a", "b", "c", "a-2", "b-2", "b-3"]
    assert {name: (node["id"], node["rack"], node["rpc"], node["first"]) for name, node in nodes.items()} == {
        "a": (1, "a", 7101, True), "a-2": (101, "a", 7111, False),
        "b": (2, "r", 7101, True), "b-2": (102, "r", 7106, False), "b-3": (202, "r", 7111, False),
        "c": (3, "", 7101, True),
    }  # fmt: skip
    assert nodes["a-2"]["listeners"] == ["10.0.0.1:5682"]
    assert nodes["b-3"]["listeners"] == ["10.0.0.2:5610"]
    assert len({(name[0], node["data"]) for name, node in nodes.items()}) == len(nodes)
    assert {node["bundle"] for node in nodes.values()} == {f"{tmp_path}/bundle"}


def test_a_play_of_one_host_knows_the_nodes_of_all(tmp_path: Path) -> None:
    hosts = {
        "a": {"ansible_host": "10.0.0.1", "holdfast_node_id": 1},
        "b": {"ansible_host": "10.0.0.2", "holdfast_node_id": 2},
    }
    status, said, nodes = shown(tmp_path, hosts, "--limit", "b*", holdfast_nodes_per_host=2)
    assert status == 0, said
    assert "front" not in nodes, "it is not of the play"
    ports = {"a": 7101, "a-2": 7111, "b": 7101, "b-2": 7111}
    assert {name: node["others"] for name, node in nodes.items()} == {"b": ports, "b-2": ports}


@pytest.mark.parametrize("number", [0, 17])
def test_a_number_of_nodes_that_cannot_be_is_refused(tmp_path: Path, number: int) -> None:
    hosts = {"a": {"holdfast_node_id": 1}}
    status, said, _ = shown(tmp_path, hosts, holdfast_nodes_per_host=number)
    assert status != 0
    assert f"holdfast_nodes_per_host: {number} on a" in " ".join(said.split())


def test_ids_of_hosts_with_several_nodes_leave_room_for_those(tmp_path: Path) -> None:
    status, said, _ = shown(tmp_path, {"a": {"holdfast_node_id": 100}}, holdfast_nodes_per_host=2)
    assert status != 0
    assert "above 1 hosts have ids below 100" in " ".join(said.split())
