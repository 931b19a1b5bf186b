"""Hosts of an inventory and their SSH settings, as Ansible reads them: only Ansible knows how to read inventories."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.cannot_run import CannotRun

READ_WITHIN_S = 120.0
PROGRAM = "ansible-inventory"
GROUP = "holdfast_nodes"
GROUP_OF_ROLE = "holdfast_node_group"
"""Variable that gives the role another group."""


@dataclass(frozen=True)
class InventoryHost:
    """A host and how SSH reaches it. `arguments`: further ones for ssh. `python`: the interpreter on the host."""

    name: str
    address: str
    user: str = ""
    port: str = ""
    key_file: str = ""
    arguments: tuple[str, ...] = ()
    python: str = "python3"


def read(inventory: Path, ansible: Path | None = None, vault_password_file: Path | None = None) -> list[InventoryHost]:
    """Read the hosts of the nodes from an inventory. Raises CannotRun.

    `ansible`: the directory of Ansible's programs, or of the environment that has them."""
    if not inventory.exists():
        raise CannotRun(f"there is no {inventory}: name the file or directory that the playbooks are given")
    command = [str(_program(ansible)), "--inventory", str(inventory), "--list"]
    if vault_password_file is not None:
        command += ["--vault-password-file", str(vault_password_file)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=READ_WITHIN_S, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{PROGRAM} did not read {inventory} within {READ_WITHIN_S:g} s") from None
    if done.returncode != 0:
        raise CannotRun(f"{PROGRAM} cannot read {inventory}: {_told(done.stderr)}{_about_vaults(done.stderr)}")
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise CannotRun(f"{PROGRAM} says of {inventory} what is no JSON: {done.stdout[:200]!r}") from None
    hosts = hosts_in(told)
    if not hosts:
        warned = f": {_told(done.stderr)}" if done.stderr.strip() else ""
        raise CannotRun(f"{inventory} has no host in group {GROUP}, as the playbooks want it{warned}")
    return hosts


def _program(ansible: Path | None) -> Path:
    if ansible is not None:
        for place in (ansible / PROGRAM, ansible / "bin" / PROGRAM):
            if place.is_file():
                return place
        raise CannotRun(f"there is no {PROGRAM} in {ansible}, nor in its bin: name where Ansible is by --ansible")
    found = shutil.which(PROGRAM)
    if found is None:
        raise CannotRun(
            f"there is no {PROGRAM} on the PATH, and nothing else reads inventories: install Ansible "
            "(pip install ansible-core), or name the directory where it is by --ansible"
        )
    return Path(found)


def _told(stderr: str) -> str:
    return " ".join(stderr.split())[-600:]


def _about_vaults(stderr: str) -> str:
    if "vault" not in stderr.lower():
        return ""
    return "; --vault-password-file names the file with the vault's password"


def hosts_in(told: Mapping[str, Any]) -> list[InventoryHost]:
    """Extract the hosts of the nodes from the output of `ansible-inventory --list`. Raises CannotRun."""
    variables: Mapping[str, Mapping[str, Any]] = told.get("_meta", {}).get("hostvars", {})
    named = {str(own[GROUP_OF_ROLE]) for own in variables.values() if GROUP_OF_ROLE in own}
    if len(named) > 1:
        raise CannotRun(f"{GROUP_OF_ROLE} is not the same on all hosts: {', '.join(sorted(named))}")
    hosts = [_host(name, variables.get(name, {})) for name in _members(told, named.pop() if named else GROUP)]
    reached: dict[tuple[str, str, tuple[str, ...]], str] = {}  # the jump host is part of the address
    for host in hosts:
        other = reached.setdefault((host.address, host.port, host.arguments), host.name)
        if other != host.name:
            raise CannotRun(f"{other} and {host.name} are one host, {host.address}: see to their ansible_host")
    return hosts


def _members(told: Mapping[str, Any], group: str, above: Sequence[str] = ()) -> list[str]:
    own = told.get(group, {})
    found = list(own.get("hosts", []))
    for child in own.get("children", []):
        if child not in above:
            found += _members(told, child, (*above, group))
    return list(dict.fromkeys(found))


def _host(name: str, variables: Mapping[str, Any]) -> InventoryHost:
    def value(*names: str) -> str:
        for one in names:
            if (found := variables.get(one)) not in (None, ""):
                if not isinstance(found, str | int):
                    raise CannotRun(f"{name}: {one} is a secret or a list, and not a word that ssh could be given")
                if "{{" in str(found):
                    raise CannotRun(
                        f"{name}: {one} is a template, {found}, which {PROGRAM} does not fill in: write its value"
                    )
                return str(found)
        return ""

    if (how := value("ansible_connection")) not in ("", "ssh", "smart"):
        raise CannotRun(f"{name}: ansible_connection is {how}; a run goes to hosts by ssh, and by nothing else")
    if (how := value("ansible_become_method")) not in ("", "sudo"):
        raise CannotRun(f"{name}: ansible_become_method is {how}; a run becomes root by sudo, or logs in as root")
    words = []
    for one in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        try:
            words += shlex.split(value(one))
        except ValueError as error:
            raise CannotRun(f"{name}: {one} cannot be taken apart into words: {error}") from None
    python = value("ansible_python_interpreter")
    return InventoryHost(
        name,
        value("ansible_host", "ansible_ssh_host") or name,
        value("ansible_user", "ansible_ssh_user"),
        value("ansible_port", "ansible_ssh_port"),
        value("ansible_ssh_private_key_file", "ansible_private_key_file"),
        tuple(words),
        python if python.startswith("/") else "python3",
    )
