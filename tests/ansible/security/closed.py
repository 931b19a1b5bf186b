"""A closed cluster on a host of its own: the inventory that names its operator and users, and commands on the host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.playbooks import ControlHost, PlayOutcome

OPERATOR = "ops"


class Closed:
    """A control host whose inventory names an operator and users."""

    def __init__(self, network: HostNetwork, directory: Path, bundle: Path) -> None:
        self.control = ControlHost(network, directory, bundle)
        self.control.groups |= {"zookeepers": [], "toxiproxies": []}
        self.control.variables |= {"holdfast_node_discovery": "static"}
        self.secrets: set[str] = set()

    def name(self, passwords: dict[str, str], grants: list[str], **roles: list[str]) -> None:
        self.secrets |= set(passwords.values())
        self.control.write_vault(vault=passwords)
        self.control.variables |= {
            "holdfast_node_operator": OPERATOR,
            "holdfast_node_operator_password": "{{ vault." + OPERATOR + " }}",
            "holdfast_node_users": [
                {"name": user, "password": "{{ vault." + user + " }}", "roles": roles.get(user, [])}
                for user in passwords
                if user != OPERATOR
            ],
            "holdfast_node_grants": grants,
        }

    def play(self, name: str, *arguments: str, **variables: Any) -> PlayOutcome:
        """As talkative as it gets; no secret is said."""
        outcome = self.control.play(name, "-vvv", "--diff", *arguments, **variables)
        for secret in self.secrets:
            assert secret not in outcome.text
        return outcome


def ask(host: NetworkHost, words: str, user: str = "", password: str = "") -> dict[str, Any]:
    """A command on the host, as that user; without one as the operator by its file."""
    who = f"--config /dev/null --user {user} --password-file /dev/stdin" if user else ""
    config = "HOLDFAST_CONFIG=/etc/holdfast/operator.toml"
    told = host.ssh(f"echo {password} | {config} holdfast {words} --json {who} --server {host.inside}:5672")
    return dict(json.loads(told.stdout or told.stderr))
