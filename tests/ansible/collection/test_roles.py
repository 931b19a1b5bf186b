"""What can be said of the roles without a host: documented from their specifications, and clean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.conftest import whole_of_provisioning
from tests.ansible.playbooks import COLLECTION, ROOT, ansible_directory

ROLES = sorted(path for path in (COLLECTION / "roles").iterdir() if path.is_dir())


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_and_specification_say_the_same(role: Path) -> None:
    options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    specified = {name: option["default"] for name, option in options.items() if not option.get("required")}
    assert load(role / "defaults/main.yml") == specified
    assert not [name for name, option in options.items() if option.get("required") and "default" in option]
    assert all(name.startswith(role.name + "_") for name in options)
    assert all(option.get("description") for option in options.values())


def test_a_cluster_is_closed_unless_it_is_opened_by_hand() -> None:
    assert load(COLLECTION / "roles/holdfast_node/defaults/main.yml")["holdfast_node_anonymous"] == "never"
    for inventory in (COLLECTION / "inventories").iterdir():
        given = dict(load(inventory / "hosts.yml")["all"].get("vars", {}))
        for path in inventory.glob("group_vars/**/*.yml"):
            given |= load(path)
        assert given.get("holdfast_node_operator_password") == "{{ vault_operator }}", inventory


def test_each_readme_is_what_its_specification_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/role_docs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_role_has_its_parts(role: Path) -> None:
    for part in ("defaults/main.yml", "meta/main.yml", "meta/argument_specs.yml", "tasks/main.yml", "README.md"):
        assert (role / part).exists(), part
    assert all(task.get("tags") for task in load(role / "tasks/main.yml")), (
        "every part of a role can be asked for by tag"
    )


@pytest.mark.parametrize("name", ["three", "five", "chaos"])
def test_the_example_inventories_can_be_read(name: str) -> None:
    hosts = load(COLLECTION / f"inventories/{name}/hosts.yml")["all"]["children"]["holdfast_nodes"]["hosts"]
    assert len(hosts) == {"three": 3, "five": 5, "chaos": 3}[name]
    assert len({host["holdfast_node_id"] for host in hosts.values()}) == len(hosts)


@whole_of_provisioning
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it")
def test_ansible_lint_has_nothing_to_say_at_its_production_profile(tmp_path: Path) -> None:
    directory = ansible_directory()
    assert directory is not None
    done = subprocess.run(
        [str(directory / "ansible-lint"), "--offline", "--nocolor", "--profile", "production"],
        cwd=COLLECTION, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", "ANSIBLE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
