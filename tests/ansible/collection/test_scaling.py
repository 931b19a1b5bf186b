"""Playbooks that change which nodes a cluster has, or take it down: what they refuse, and what a changed list does,
without a host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.playbooks import COLLECTION, ansible_directory

ROLE = COLLECTION / "roles/holdfast_node"

pytestmark = pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it")


def played(directory: Path, playbook: Path, nodes: int, *arguments: str) -> tuple[int, str]:
    """Run a playbook on nodes that are nowhere, and return its status and what it said."""
    programs = ansible_directory()
    assert programs is not None
    given = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    given |= {"holdfast_node_bundle": "holdfast-bundle-1.0.tar.gz", "holdfast_node_anonymous": "always"}
    hosts = {
        f"n{number}": {"holdfast_node_id": number, "ansible_host": f"10.0.0.{number}"} for number in range(1, nodes + 1)
    }
    groups = {"holdfast_nodes": {"hosts": hosts}, "zookeepers": {"hosts": {"n1": {}}}}
    (directory / "hosts.json").write_text(json.dumps({"all": {"vars": given, "children": groups}}))
    done = subprocess.run(
        [str(programs / "ansible-playbook"), "-i", str(directory / "hosts.json"), str(playbook), *arguments],
        capture_output=True, text=True, check=False,
        env={**os.environ, "ANSIBLE_CONFIG": str(COLLECTION / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("name", ["scale-out", "scale-in", "replace-node", "rolling-upgrade"])
def test_a_playbook_can_be_read(tmp_path: Path, name: str) -> None:
    status, said = played(tmp_path, COLLECTION / f"playbooks/{name}.yml", 3, "--syntax-check")
    assert status == 0, said


@pytest.mark.parametrize("leaving", ["", "n9", "n1,n2,n3"])
def test_scaling_in_refuses_nodes_that_are_not_there_and_to_leave_none(tmp_path: Path, leaving: str) -> None:
    status, said = played(tmp_path, COLLECTION / "playbooks/scale-in.yml", 3, "-e", json.dumps({"nodes": leaving}))
    assert status != 0
    assert f"nodes: {', '.join(leaving.split(',')) or '(none)'}; name some of the nodes n1, n2, n3, and not all" in said


REPLACED = [
    ("n9", "n1"),
    ("n1", "n9"),
    ("n1", "n1"),
    ("", "n1"),
    ("n1,n2", "n3"),
    ("n1,n2", "n3,n3"),
    ("n1,n2", "n3,n1"),
]


@pytest.mark.parametrize(("old", "new"), REPLACED)
def test_replacing_refuses_nodes_that_are_not_there_or_named_twice(tmp_path: Path, old: str, new: str) -> None:
    status, said = played(
        tmp_path, COLLECTION / "playbooks/replace-node.yml", 3, "-e", json.dumps({"old": old, "new": new})
    )
    assert status != 0
    told = ", ".join(old.split(",")) or "(none)"
    assert f"old: {told}, new: {', '.join(new.split(','))}; name as many of the nodes n1, n2, n3 for each" in said


def test_a_teardown_of_some_hosts_is_to_be_confirmed_too(tmp_path: Path) -> None:
    nowhere = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    status, said = played(
        tmp_path, COLLECTION / "playbooks/teardown.yml", 3, "--limit", "n2", "-e", json.dumps(nowhere)
    )
    assert status != 0
    assert "confirm with -e teardown_confirmed=holdfast" in said
    assert "UNREACHABLE" not in said


def test_a_dead_host_is_told_from_the_others(tmp_path: Path) -> None:
    one_is_dead = {
        "ansible_connection": "{{ 'ssh' if inventory_hostname == 'n2' else 'local' }}",
        "ansible_host": "127.0.0.1",
        "ansible_port": 1,
        "reach_within_s": 1,
    }
    status, said = played(tmp_path, COLLECTION / "playbooks/site.yml", 3, "-e", json.dumps(one_is_dead))
    assert status != 0
    assert "ansible_host: n2 is not reached at 127.0.0.1" in said
    assert "n1 is not reached" not in said
    assert "n3 is not reached" not in said


@pytest.mark.parametrize(
    ("told", "joining", "stranger"),
    [
        ({"nodes": [1, 2, 3]}, [], False),
        ({"nodes": [1, 2]}, [], True),
        ({"nodes": [1, 2], "announced": [3]}, [], True),  # and its configuration would found a cluster
        ({"nodes": [1, 2], "announced": [3]}, ["n3"], False),
        ({"nodes": [1, 2]}, ["n3"], True),  # it was removed
        (None, [], False),
    ],
)
def test_a_node_that_a_cluster_does_not_have_is_a_stranger(
    tmp_path: Path, told: dict[str, list[int]] | None, joining: list[str], stranger: bool
) -> None:
    answer = {"nodes": [{"node": node} for node in (told or {}).get("nodes", [])]}
    answer |= {"announced": (told or {}).get("announced", [])}
    cluster = tmp_path / "cluster"
    cluster.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n" if told else "#!/bin/sh\nexit 1\n")
    cluster.chmod(0o755)
    extra = json.dumps({"holdfast_node_cli": str(cluster), "joining": joining})
    status, said = played(tmp_path, Path(__file__).with_name("compare_with_cluster.yml"), 3, "-e", extra)
    assert (status != 0, "node 3 (n3): the cluster runs, and has no such node" in said) == (stranger, stranger), said


def rendered(directory: Path, nodes: int, **variables: Any) -> tuple[dict[str, Path], dict[str, dict[str, Any]]]:
    """Configurations of nodes, and their digests."""
    directory.mkdir()
    for path in (Path(__file__).with_name("show_config.yml"), ROLE / "templates/node.toml.j2"):
        shutil.copy(path, directory)
    extra = json.dumps({"into": str(directory), "role": str(ROLE), **variables})
    status, said = played(directory, directory / "show_config.yml", nodes, "-e", extra)
    assert status == 0, said
    return (
        {path.stem: path for path in directory.glob("n*.toml")},
        {path.stem: json.loads(path.read_text()) for path in directory.glob("n*.json")},
    )


def inspected(config: Path) -> dict[str, Any]:
    """A configuration, as the look at a host tells of it."""
    nowhere = json.dumps({"monitoring": "127.0.0.1:1", "listener": "127.0.0.1:1"})
    command = [sys.executable, str(ROLE / "files/inspect_node.py"), "nowhere", "nowhere", nowhere, str(config)]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@pytest.mark.parametrize("discovery", ["static", "zookeeper"])
def test_a_longer_list_of_hosts_restarts_nobody(tmp_path: Path, discovery: str) -> None:
    before, digests = rendered(tmp_path / "before", 3, holdfast_node_discovery=discovery)
    after, later = rendered(tmp_path / "after", 4, holdfast_node_discovery=discovery)
    assert before["n1"].read_text() != after["n1"].read_text()
    assert [digests[name] for name in before] == [later[name] for name in before]
    for name, path in (before | after).items():
        assert inspected(path)["config"] == later[name]["config"]
    changed = rendered(tmp_path / "changed", 3, holdfast_node_discovery=discovery, holdfast_node_cache_mib=64)[1]
    assert changed["n1"]["config"] != digests["n1"]["config"]
    assert changed["n1"]["wanted"]["digest"] != digests["n1"]["wanted"]["digest"]
    assert inspected(tmp_path / "none.toml")["config"] == ""


def test_a_node_that_joins_says_so_and_keeps_its_digest(tmp_path: Path) -> None:
    founded, digests = rendered(tmp_path / "founded", 3)
    joined, later = rendered(tmp_path / "joined", 3, holdfast_node_joining=True)
    assert not inspected(founded["n1"])["joins"]
    assert inspected(joined["n1"])["joins"]
    assert digests == later
