"""A three-node Holdfast cluster on loopback, started as a user starts it: by the command line, as separate processes.

Nothing here imports Holdfast: the benchmark uses the cluster from outside. The driver connects to the first node, which
sends it to the leader by a link redirect.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.driver.link import LinkOptions
from benchmarks.driver.wire import Url
from benchmarks.peers.base import Driver, PeerFailed, TargetLog, wait_until

NODES = REPLICAS = 3
COMMAND_TIMEOUT_S = 120.0
LEADER_TIMEOUT_S = 30.0
PARTITION = "0"
PARTITION_PROPERTY = "event-streams-partition"
OUTPUT_TAIL_CHARACTERS = 2000


class Holdfast:
    def __init__(
        self,
        durability: str = "fsync",
        directory: Path | None = None,
        environment: dict[str, str] | None = None,
        nodes: int = NODES,
    ) -> None:
        """`environment`: in which the commands, the nodes and our own client run; None: in that of this process."""
        self.name = f"holdfast-{durability}"
        self.durability = durability
        self.nodes = nodes
        self._parent = directory
        self._environment = environment or {}
        self._client_environment = environment
        self._directory: Path | None = None
        self._amqp: list[str] = []
        self._processes: dict[str, psutil.Process] = {}
        self._created = 0

    def start(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-", dir=self._parent))
        shape = ("--nodes", str(self.nodes), "--durability", self.durability)
        self._up(*shape)

    def restart(self, more: Callable[[int], str]) -> None:
        """Restart the cluster with further sections in each node's configuration."""
        self._cli("cluster", "down", "--dir", self._dir)
        for number in range(1, self.nodes + 1):
            with (Path(self._dir) / f"node{number}" / "node.toml").open("a") as config:
                config.write(more(number))
        self._up()

    def log_in(self, user: str, password_file: Path) -> None:
        """Let the commands of this peer log in as that user from now on."""
        config = Path(self._dir) / "client.toml"
        names = {"user": user, "password_file": str(password_file)}
        config.write_text("[security]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in names.items()))
        self._environment = {**self._environment, "HOLDFAST_CONFIG": str(config)}

    def _up(self, *shape: str) -> None:
        answer = self._cli("cluster", "up", *shape, "--detach", "--dir", self._dir)
        self._processes = {f"node{node['node']}": psutil.Process(node["pid"]) for node in answer["nodes"]}
        self._amqp = [node["amqp"] for node in answer["nodes"]]

    def stop(self) -> None:
        if self._directory is None:
            return
        try:
            with contextlib.suppress(PeerFailed):  # a cluster that did not start cannot be stopped
                self._cli("cluster", "down", "--dir", self._dir)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    @property
    def _dir(self) -> str:
        assert self._directory is not None, "the cluster was not started"
        return str(self._directory)

    def create_log(self, partitions: int, within_s: float = LEADER_TIMEOUT_S) -> tuple[str, dict[str, str]]:
        """Create a log with three replicas; return its name and the leader of each partition."""
        self._created += 1
        name = f"bench-{self._created}"
        server = ("--server", self._amqp[0])
        self._cli("log", "create", name, "--partitions", str(partitions), "--replicas", str(REPLICAS), *server)
        leaders: dict[str, str] = {}

        def led() -> bool:
            with contextlib.suppress(PeerFailed):  # on a busy machine a call may fail
                leaders.update(self.leaders(name))
            return len(leaders) == partitions

        wait_until(led, f"the election of leaders for {name}", within_s)
        return name, leaders

    def leaders(self, name: str) -> dict[str, str]:
        """Return the leader of each partition that has one now."""
        found = self._cli("log", "describe", name, "--server", self._amqp[0])["partitions"]
        return {str(one["partition"]): f"node{one['leader']}" for one in found if one.get("leader")}

    def log_file(self, node: str) -> Path:
        """Return the path of the node's log."""
        return Path(self._dir) / node / "node.log"

    def start_again(self) -> None:
        """Start dead nodes again."""
        self._up()

    @property
    def addresses(self) -> list[str]:
        """Addresses of the nodes for clients."""
        return list(self._amqp)

    def create(self, kind: str, partitions: int = 1) -> TargetLog:
        """Create a log. `kind`: log, with the AMQP driver bound to its first partition; or own-client."""
        name, leaders = self.create_log(partitions)
        host, _, port = self._amqp[0].rpartition(":")
        url = Url(host, int(port), name)
        bound = {PARTITION_PROPERTY: PARTITION}
        tail = LinkOptions(follow_redirects=True, properties=bound, filter_kind="event-streams", start="latest")
        start = LinkOptions(follow_redirects=True, properties=bound, filter_kind="event-streams", start="earliest")
        send = LinkOptions(follow_redirects=True, properties=bound)
        driver: Driver = "own" if kind == "own-client" else "amqp"
        return TargetLog(
            name, url, send, url, tail, start, leaders[PARTITION], driver, environment=self._client_environment
        )

    def delete(self, target: TargetLog) -> None:
        self.delete_log(target.name)

    def delete_log(self, name: str) -> None:
        self._cli("log", "delete", name, "--yes", "--server", self._amqp[0])

    def processes(self) -> dict[str, psutil.Process]:
        return dict(self._processes)

    def node_at(self, amqp_port: int) -> str:
        """Return the name of the node that listens at a port, a key of `processes`."""
        ports = [int(address.rpartition(":")[2]) for address in self._amqp]
        return f"node{ports.index(amqp_port) + 1}"

    def version(self) -> str:
        return f"Holdfast {importlib.metadata.version('holdfast')}"

    def _cli(self, *arguments: str) -> Any:
        """Run a `holdfast` command and return its decoded JSON output."""
        words = f"holdfast {' '.join(arguments[:2])}"
        try:
            answer = subprocess.run(
                [sys.executable, "-m", "holdfast.cli", *arguments, "--json"],
                capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False,
                env=os.environ | self._environment, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise PeerFailed(f"{words} took longer than {COMMAND_TIMEOUT_S:g} s") from error
        if answer.returncode:
            said = (answer.stderr or answer.stdout)[-OUTPUT_TAIL_CHARACTERS:].strip()
            raise PeerFailed(f"{words} ended with status {answer.returncode}: {said}")
        return json.loads(answer.stdout) if answer.stdout.strip() else None
