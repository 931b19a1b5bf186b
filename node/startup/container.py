"""Entry point of the container image: a node whose configuration comes from environment variables.

    python -m node.startup.container          write the configuration, then become the node
    python -m node.startup.container health   exit status 0: the node is ready

A file at /etc/holdfast/node.toml is used as it is, and variables are then refused, since a node cannot obey both. No
variable has a default that opens the cluster: a password or `HOLDFAST_ANONYMOUS=always` has to be given. A variable
that nobody knows is refused, so that a misspelt one does not go unnoticed.

Where the configuration of the Event Hubs emulator is mounted, the container is `holdfast emulator`. It lets everybody
in, as that emulator does, and takes none of the variables.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from holdfast.client.errors import HoldfastError
from holdfast.client.transport.security.scram import password_keys
from node.config import ConfigError, load, parse

GIVEN = Path("/etc/holdfast/node.toml")
"""A configuration of the user's own."""

HUBS = Path("/Eventhubs_Emulator/ConfigFiles/Config.json")
"""Hubs of a user whose tools expect the emulator's image."""

HOME = Path("/var/lib/holdfast")
"""Volume of the node's data, and of the configuration made from the environment."""

MADE = "node.toml"
"""Name of that configuration."""

AMQP_PORT, RPC_PORT, MONITORING_PORT, EMULATOR_HEALTH_PORT = 5672, 7101, 9101, 5300
HEALTH_TIMEOUT_S = 5.0
FILE_MODE = 0o640

VARIABLES = {
    "HOLDFAST_NODE_ID": "number of this node: its place in HOLDFAST_NODES, from 1 (default 1)",
    "HOLDFAST_NODES": "host:port at which nodes reach each other, all of them, with commas between (default: one)",
    "HOLDFAST_CLUSTER": "name of the cluster (default holdfast)",
    "HOLDFAST_ADVERTISE": "host:port at which clients reach this node (default: its host in HOLDFAST_NODES, port 5672)",
    "HOLDFAST_DURABILITY": "fsync or replicated (default fsync)",
    "HOLDFAST_USER": "name of the administrator that a new cluster begins with (default operator)",
    "HOLDFAST_PASSWORD": "that administrator's password",
    "HOLDFAST_PASSWORD_FILE": "file with that password, such as a secret of the container runtime",
    "HOLDFAST_ANONYMOUS": "always: let everybody do everything, without a password",
}

OTHERS = re.compile(r"HOLDFAST_(SERVER|CONFIG|SERVICE_.*|PORT|PORT_.*)")
"""Variables of the `holdfast` command, which runs in the container, too; and those that Kubernetes makes of a service
with the name `holdfast`."""


def main(arguments: list[str]) -> int:
    """Become the node or the emulator, or answer for its health. Return the status of `health`, or 2 for a mistake."""
    try:
        if arguments == ["health"]:
            return health(health_url())
        if arguments:
            raise ConfigError(f"{' '.join(arguments)!r}: write nothing, or `health`")
        os.execv(sys.executable, [sys.executable, "-m", *program(os.environ)])
    except (ConfigError, HoldfastError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def program(environment: Mapping[str, str]) -> list[str]:
    """Return the module to run, with its words. Raises ConfigError, as `configuration` does."""
    if not HUBS.exists():
        return ["node", "--config", str(configuration(environment))]
    if GIVEN.exists():
        raise ConfigError(f"{GIVEN}: {HUBS} is there, too, and an emulator lets everybody in; leave one of the two out")
    if given := _given(environment):
        raise ConfigError(
            f"{min(given)}: {HUBS} is there, and an emulator has no such variables; leave one of the two out"
        )
    return ["holdfast.cli", "emulator", "--hubs", str(HUBS), "--bind", "0.0.0.0", "--dir", str(HOME / "emulator")]


def configuration(environment: Mapping[str, str]) -> Path:
    """Return the file of the node's configuration; write it from the environment if the user mounted none.

    Raises:
        ConfigError: a variable is unknown, lacks, or has a value that cannot work.
    """
    given = _given(environment)
    if unknown := sorted(given.keys() - VARIABLES.keys()):
        known = "".join(f"\n  {name}: {meaning}" for name, meaning in VARIABLES.items())
        raise ConfigError(f"{unknown[0]}: there is no such variable; there are:{known}")
    if GIVEN.exists():
        if given:
            raise ConfigError(f"{min(given)}: {GIVEN} is mounted and says everything; leave the variables out")
        return GIVEN
    text = document(given)
    path = HOME / MADE
    parse(text, "configuration from the environment")
    _write(path, text)
    return path


def _given(environment: Mapping[str, str]) -> dict[str, str]:
    """Our variables: those that say what the container shall be."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith("HOLDFAST_") and not OTHERS.fullmatch(name)
    }


def document(given: Mapping[str, str]) -> str:
    """Return the configuration that variables ask for, as TOML. Raises ConfigError, OSError for a password's file."""
    number = given.get("HOLDFAST_NODE_ID", "1")
    nodes = [node.strip() for node in given.get("HOLDFAST_NODES", f"127.0.0.1:{RPC_PORT}").split(",")]
    if not number.isdecimal() or not 1 <= int(number) <= len(nodes):
        raise ConfigError(f"HOLDFAST_NODE_ID: {number!r} is no place in HOLDFAST_NODES, 1..{len(nodes)}")
    own_host = nodes[int(number) - 1].rpartition(":")[0]
    host = own_host if "HOLDFAST_NODES" in given else "localhost"
    listener = {"bind": f"0.0.0.0:{AMQP_PORT}", "advertise": given.get("HOLDFAST_ADVERTISE", f"{host}:{AMQP_PORT}")}
    peers = ", ".join(f"{{ id = {place}, address = {_quoted(node)} }}" for place, node in enumerate(nodes, start=1))
    return "\n".join(
        [
            "# Written from the environment at each start of the container.",
            _section("node", {"id": int(number), "data_dir": str(HOME / "data")}),
            _section("cluster", {"name": given.get("HOLDFAST_CLUSTER", "holdfast"), "peers_without_tls": True}),
            f"peers = [{peers}]",
            _section("[listener]", listener),
            _section("storage", {"durability": given.get("HOLDFAST_DURABILITY", "fsync")}),
            _section("monitoring", {"bind": f"0.0.0.0:{MONITORING_PORT}"}),
            _section("security", _security(given)),
            "",
        ]
    )


def _security(given: Mapping[str, str]) -> dict[str, str]:
    password = given.get("HOLDFAST_PASSWORD")
    if path := given.get("HOLDFAST_PASSWORD_FILE"):
        if password is not None:
            raise ConfigError("HOLDFAST_PASSWORD, HOLDFAST_PASSWORD_FILE: give one of the two")
        password = Path(path).read_text(encoding="utf-8").rstrip("\n")
    if anonymous := given.get("HOLDFAST_ANONYMOUS"):
        if password is not None:
            raise ConfigError("HOLDFAST_ANONYMOUS: there is a password; leave one of the two out")
        if anonymous != "always":
            raise ConfigError(f"HOLDFAST_ANONYMOUS: {anonymous!r} is not `always`; leave it out, and give a password")
        return {"anonymous": anonymous}
    if not password:
        raise ConfigError(
            "HOLDFAST_PASSWORD: none given; give the administrator one (or HOLDFAST_PASSWORD_FILE), or set "
            "HOLDFAST_ANONYMOUS=always to let everybody do everything"
        )
    first_user = HOME / "first-user.json"
    _write(first_user, json.dumps({"name": given.get("HOLDFAST_USER", "operator"), **password_keys(password)}))
    return {"anonymous": "never", "first_user_file": str(first_user)}


def health_url() -> str:
    """Return the address at which the container tells its health. Raises ConfigError if it does not."""
    if HUBS.exists():
        return f"http://127.0.0.1:{EMULATOR_HEALTH_PORT}/health"
    if not (bind := load(GIVEN if GIVEN.exists() else HOME / MADE).monitoring.bind):
        raise ConfigError("monitoring.bind: is not set, so that nobody can ask for the node's health")
    return f"http://127.0.0.1:{bind.rpartition(':')[2]}/health/ready"


def health(url: str) -> int:
    """Ask whether the container is ready, and print the answer. Returns 0 if it is."""
    try:
        with urllib.request.urlopen(url, timeout=HEALTH_TIMEOUT_S) as answer:
            print(answer.read().decode())
            return 0
    except urllib.error.HTTPError as error:
        print(error.read().decode())
    except OSError as error:
        print(f"{url}: {error}")
    return 1


def _section(name: str, values: Mapping[str, object]) -> str:
    return "\n".join([f"\n[{name}]", *(f"{key} = {_quoted(value)}" for key, value in values.items())])


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.chmod(FILE_MODE)
    new.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
