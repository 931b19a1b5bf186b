"""Servers of `holdfast cluster up`, for commands that ask a cluster.

The rule: a directory that was named means all of its nodes. Without a name only a cluster counts that listens now, in
one of the two directories that commands make clusters in when they are told none; of two that listen neither is meant.
Rejected: a search upwards, or a list of clusters per user: the same command would mean different clusters.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from holdfast.cli.shared.errors import EXIT_USAGE, CliError

USUAL_DIRECTORIES = (Path("var/cluster"), Path("var/run"))
"""Directories of `holdfast cluster up`, and of `holdfast demo`, which `make run` is."""

USUAL_SERVERS = ["127.0.0.1:5672", "127.0.0.1:5673", "127.0.0.1:5674"]

CLUSTER_FILE = "cluster.json"
CONNECT_S = 0.5


def servers_of(directory: Path) -> list[str]:
    """The AMQP addresses of all nodes of the cluster in a directory."""
    path = directory / CLUSTER_FILE
    try:
        return [str(node["amqp"]) for node in json.loads(path.read_text(encoding="utf-8"))["nodes"]]
    except FileNotFoundError:
        raise CliError(f"{directory} holds no cluster (there is no {CLUSTER_FILE})", exit_code=EXIT_USAGE) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{path} cannot be read: {error}", exit_code=EXIT_USAGE) from error


def usual_servers() -> list[str]:
    """Servers of the cluster that runs in a usual directory; else the usual ports."""
    found = {
        directory: servers
        for directory in USUAL_DIRECTORIES
        if (directory / CLUSTER_FILE).is_file() and any(map(_listens, servers := servers_of(directory)))
    }
    if len({tuple(servers) for servers in found.values()}) > 1:
        raise CliError(
            f"two clusters run here, in {' and in '.join(map(str, found))}",
            advice="say which one is meant: --server " + " or --server ".join(map(str, found)),
            exit_code=EXIT_USAGE,
        )
    return next(iter(found.values()), USUAL_SERVERS)


def _listens(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), CONNECT_S):
            return True
    except OSError:
        return False
