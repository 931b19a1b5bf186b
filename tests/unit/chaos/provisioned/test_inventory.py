"""Which hosts an inventory has is Ansible's to say; what a run cannot go to, it refuses with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chaos.cannot_run import CannotRun
from chaos.cluster.provisioned.inventory import InventoryHost, hosts_in, read
from tests.ansible.playbooks import COLLECTION, ansible_directory

needs_ansible = pytest.mark.skipif(ansible_directory() is None, reason="no Ansible here: make test brings it")


def told(group: dict[str, Any], **hosts: dict[str, Any]) -> dict[str, Any]:
    return {"_meta": {"hostvars": hosts}, "holdfast_nodes": group}


def one(**variables: Any) -> dict[str, Any]:
    return told({"hosts": ["n1"]}, n1=variables)


def test_a_host_is_reached_as_its_variables_say() -> None:
    [host] = hosts_in(
        one(
            ansible_host="192.0.2.1", ansible_user="ops", ansible_port=2222, ansible_ssh_private_key_file="~/key",
            ansible_ssh_common_args="-o 'ProxyCommand=ssh -W %h:%p jump'", ansible_ssh_extra_args="-4",
            ansible_python_interpreter="/usr/bin/python3.12", ansible_become_method="sudo",
        )
    )  # fmt: skip
    arguments = ("-o", "ProxyCommand=ssh -W %h:%p jump", "-4")
    assert host == InventoryHost("n1", "192.0.2.1", "ops", "2222", "~/key", arguments, "/usr/bin/python3.12")


def test_a_host_without_variables_is_reached_by_its_name() -> None:
    assert hosts_in(told({"hosts": ["n1"]})) == [InventoryHost("n1", "n1")]
    assert hosts_in(one(ansible_python_interpreter="auto_silent")) == [InventoryHost("n1", "n1")]


def test_hosts_of_groups_below_belong_to_it_once() -> None:
    found = hosts_in(told({"hosts": ["n1"], "children": ["east"]}) | {"east": {"hosts": ["n2", "n1"]}})
    assert [host.name for host in found] == ["n1", "n2"]


def test_one_host_under_two_names_is_refused() -> None:
    """It would stand in its own way."""
    group = {"hosts": ["n1", "n2"]}
    with pytest.raises(CannotRun, match=r"n1 and n2 are one host, 192\.0\.2\.1"):
        hosts_in(told(group, n1={"ansible_host": "192.0.2.1"}, n2={"ansible_host": "192.0.2.1"}))
    jumps = {f"n{one}": {"ansible_host": "10.0.0.1", "ansible_ssh_common_args": f"-J j{one}"} for one in (1, 2)}
    assert len(hosts_in(told(group, **jumps))) == 2


def test_the_group_may_be_another_one() -> None:
    inventory = told({"hosts": ["n9"]}, n1={"holdfast_node_group": "mine"}) | {"mine": {"hosts": ["n1"]}}
    assert [host.name for host in hosts_in(inventory)] == ["n1"]


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"ansible_host": "{{ address }}"}, "n1: ansible_host is a template, {{ address }}"),
        ({"ansible_port": {"__ansible_vault": "..."}}, "n1: ansible_port is a secret or a list"),
        ({"ansible_connection": "docker"}, "n1: ansible_connection is docker"),
        ({"ansible_become_method": "su"}, "n1: ansible_become_method is su"),
        ({"ansible_ssh_common_args": "-o 'unfinished"}, "n1: ansible_ssh_common_args cannot be taken apart"),
    ],
)
def test_what_a_run_cannot_use_is_refused(variables: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotRun) as refused:
        hosts_in(one(**variables))
    assert str(refused.value).startswith(why)


def test_two_groups_are_one_too_many() -> None:
    hosts = {name: {"holdfast_node_group": name} for name in ("a", "b")}
    with pytest.raises(CannotRun, match="holdfast_node_group is not the same on all hosts: a, b"):
        hosts_in(told({}, **hosts))


def test_without_ansible_it_is_said_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRun, match="pip install ansible-core"):
        read(tmp_path)
    with pytest.raises(CannotRun, match=f"no ansible-inventory in {tmp_path}, nor in its bin"):
        read(tmp_path, tmp_path)


def test_an_inventory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=f"there is no {tmp_path}/hosts.yml"):
        read(tmp_path / "hosts.yml")


@needs_ansible
def test_the_example_inventories_are_read() -> None:
    hosts = read(COLLECTION / "inventories/three", ansible_directory())
    expected = [InventoryHost(f"node{number}", f"192.0.2.1{number}", "root") for number in (1, 2, 3)]
    assert hosts == expected


@needs_ansible
def test_an_inventory_without_nodes_is_refused_with_what_ansible_says(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"all": {"children": {"others": {"hosts": {"n1": {}}}}}}))
    with pytest.raises(CannotRun, match="has no host in group holdfast_nodes"):
        read(inventory, ansible_directory())
    inventory.write_text("[unfinished\n")
    with pytest.raises(CannotRun, match=r"holdfast_nodes, as the playbooks want it: .*parse"):
        read(inventory, ansible_directory())


@needs_ansible
def test_a_vault_needs_its_password(tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text(json.dumps({"holdfast_nodes": {"hosts": {"n1": {}}}}))
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n3031\n")
    with pytest.raises(CannotRun, match="--vault-password-file names the file"):
        read(tmp_path / "hosts.json", ansible_directory())
