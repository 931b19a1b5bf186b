"""Runs ansible-playbook from the control host, and reads what it says."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ansible.hosts.network import HostNetwork
from tests.ansible.hosts.spaces import PYTHON

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = ROOT / "ansible"
CLUSTER = "provisioned"
SECRET = "node:a-secret-of-the-test"


def ansible_directory() -> Path | None:
    """The environment that `make test` and `make provision-test` make."""
    found = os.environ.get("HOLDFAST_ANSIBLE", "")
    return Path(found) / "bin" if found else None


def _toxiproxy() -> str:
    """The program, as the repository's script finds or builds it; empty when it cannot be had."""
    script = [str(ROOT / "scripts/toxiproxy.sh"), "--optional"]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout.strip()


@dataclass
class PlayOutcome:
    status: int
    text: str
    took_s: float = 0.0

    @property
    def recap(self) -> dict[str, dict[str, int]]:
        """Host -> ok, changed, unreachable, failed, ..."""
        lines = re.findall(r"^(\S+)\s+: (ok=.*)$", self.text, re.MULTILINE)
        return {host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)} for host, counts in lines}

    @property
    def changed(self) -> int:
        return sum(counts["changed"] for counts in self.recap.values())


class ControlHost:
    """The control host: an inventory, a vault and the playbooks."""

    def __init__(self, network: HostNetwork, directory: Path, bundle: Path) -> None:
        self._network = network
        self.directory = directory
        self.inventory = directory / "hosts.json"
        self._password = directory / "vault-password"
        self._password.write_text("of-the-vault\n")
        self._password.chmod(0o600)
        self.hosts: dict[str, dict[str, Any]] = {}
        names = [host.name for host in network.hosts]
        self.groups = {"holdfast_nodes": names, "zookeepers": names, "toxiproxies": names[:1], "spark_clients": []}
        for host in network.hosts:
            self.hosts[host.name] = {
                "ansible_host": host.inside,
                "holdfast_node_id": host.number,
                "zookeeper_id": host.number,
                "holdfast_node_listeners": [
                    {"name": name, "bind": f"{address}:5672", "advertise": f"{address}:5672"}
                    for name, address in (("default", host.inside), ("outside", host.outside))
                ],
            }
        self.variables: dict[str, Any] = {
            "ansible_user": "root",
            "ansible_python_interpreter": PYTHON,
            "holdfast_node_python": PYTHON,
            "holdfast_node_bundle": str(bundle),
            "holdfast_node_cluster": CLUSTER,
            "holdfast_node_discovery": "zookeeper",
            "holdfast_node_anonymous": "always",  # for tests that name no operator
            "holdfast_node_logs": [{"name": "events", "partitions": 6, "replicas": len(network.hosts)}],
            "holdfast_node_min_disk_mib": 64,
            "zookeeper_min_disk_mib": 64,
            "zookeeper_heap_mib": 96,
            "common_apply_kernel": False,  # the kernel is this machine's, and not the test's
            "common_nofile": min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),  # a host here has no more
            "reach_within_s": 10,
        }
        self.proxied = ""
        if not (binary := _toxiproxy()):
            self.groups["toxiproxies"] = []
        else:
            first = network.hosts[0]
            self.proxied = f"{first.outside}:15672"
            self.variables["toxiproxy_binary"] = binary
            proxy = {"name": "amqp", "listen": self.proxied, "upstream": f"{first.outside}:5672"}
            self.hosts[first.name]["toxiproxy_proxies"] = [proxy]
        self.write_vault()

    def write_vault(self, **secrets: Any) -> None:
        """Variables that are in no other file of the control host, besides ZooKeeper's secret."""
        plain = self.directory / "group_vars" / "all" / "vault.yml"
        plain.parent.mkdir(parents=True, exist_ok=True)
        plain.write_text(json.dumps({"holdfast_node_zookeeper_auth": SECRET, **secrets}))
        self.encrypt(plain)
        assert SECRET not in plain.read_text()

    def encrypt(self, path: Path) -> None:
        """A file of the control host, by the vault's password."""
        done = self._run("ansible-vault", "encrypt", "--vault-password-file", str(self._password), str(path))
        assert done.status == 0, done.text

    def write_inventory(self, hosts: dict[str, dict[str, Any]], variables: dict[str, Any], path: Path) -> None:
        groups = {group: {"hosts": {name: {} for name in names}} for group, names in self.groups.items()}
        path.write_text(json.dumps({"all": {"hosts": hosts, "vars": variables, "children": groups}}, indent=1))

    def play(
        self, name: str, *arguments: str, hosts: dict[str, dict[str, Any]] | None = None, **variables: Any
    ) -> PlayOutcome:
        """Run a playbook; `hosts` and `variables` differ from the inventory's for this once."""
        self.write_inventory(hosts or self.hosts, {**self.variables, **variables}, self.inventory)
        return self._run(
            "ansible-playbook", "-i", str(self.inventory), "--vault-password-file", str(self._password),
            str(COLLECTION / "playbooks" / f"{name}.yml"), *arguments,
        )  # fmt: skip

    def _command(self, program: str, *arguments: str) -> list[str]:
        directory = ansible_directory()
        assert directory is not None
        return self._network.control.command(str(directory / program), *arguments)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(COLLECTION / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.directory / "ansible-home"),
            "ANSIBLE_PRIVATE_KEY_FILE": str(self._network.key),
            "ANSIBLE_SSH_COMMON_ARGS": f"-o UserKnownHostsFile={self._network.known_hosts}",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.directory / "cp"),
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
        }

    def _run(self, program: str, *arguments: str) -> PlayOutcome:
        began_s = time.monotonic()
        done = subprocess.run(
            self._command(program, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, env=self._environment(), cwd=COLLECTION, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        outcome = PlayOutcome(done.returncode, done.stdout, time.monotonic() - began_s)
        with (self.directory / "plays.log").open("a") as log:
            log.write(f"===== {program} {' '.join(arguments)}: {outcome.took_s:.1f} s\n{outcome.text}\n")
        return outcome
