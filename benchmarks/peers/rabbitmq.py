"""A three-node RabbitMQ cluster on loopback, from Debian's package, in one temporary directory.

The packaged broker is a machine-wide service: its scripts change to a system user and to /var/lib, all Erlang programs
share its epmd, and its ports are fixed. So the real scripts below /usr/lib/rabbitmq/bin are called directly. The
environment gives every directory, port and name, a HOME of our own (for the cookie), and an epmd of our own on its own
port.

The durable kinds are measured: quorum queues (Raft, fsync before the confirm) and streams (no fsync: acknowledged from
the page caches of a majority). Queues are declared through the management plugin on loopback, since 3.10 cannot declare
over AMQP 1.0. Its statistics are off, so that they do not slow the broker.

    python -m benchmarks.peers.rabbitmq        # starts a cluster, prints its ports, ends it at Ctrl-C
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from benchmarks.driver.link import LinkOptions
from benchmarks.driver.wire import Url
from benchmarks.peers.base import (
    LOOPBACK,
    PeerFailed,
    PeerUnavailable,
    TargetLog,
    accepts,
    free_ports,
    wait_until,
)
from benchmarks.peers.servers import OUTPUT, ServerCluster, play

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
NODES = 3
START_TIMEOUT_S = 90.0
HTTP_TIMEOUT_S = 30.0
USER = PASSWORD = "guest"
PLUGINS = "[rabbitmq_amqp1_0,rabbitmq_management]."
HOW_TO_GET_IT = (
    "RabbitMQ is not installed: its rows are left out. On Debian and Ubuntu: apt-get install rabbitmq-server "
    "(its service need not run: the benchmark starts a cluster of its own)"
)


class RabbitMQ(ServerCluster):
    name = "rabbitmq"

    def __init__(self, directory: Path | None = None) -> None:
        if not SERVER.exists() or not shutil.which("epmd"):
            raise PeerUnavailable(HOW_TO_GET_IT)
        super().__init__(directory)
        ports = free_ports(1 + 3 * NODES)
        self._epmd_port = ports[0]
        self.amqp_ports = ports[1 : 1 + NODES]
        self._http_ports = ports[1 + NODES : 1 + 2 * NODES]
        self._dist_ports = ports[1 + 2 * NODES :]

    # life of the cluster

    def _bring_up(self) -> None:
        epmd_environment = os.environ | {"ERL_EPMD_PORT": str(self._epmd_port)}
        epmd = subprocess.Popen(
            ["epmd", "-port", str(self._epmd_port), "-address", LOOPBACK],
            env=epmd_environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._helpers.append(epmd)
        wait_until(lambda: accepts(self._epmd_port), "the start of epmd", START_TIMEOUT_S)
        cookie = self._root / ".erlang.cookie"
        cookie.write_text("HOLDFASTBENCHMARK")
        cookie.chmod(0o400)
        self._launch(0)  # the first node forms the cluster; the others, started together, find it and join
        self._await_node(0)
        for index in range(1, NODES):
            self._launch(index)
        for index in range(1, NODES):
            self._await_node(index)
        wait_until(self._is_whole, "the forming of the cluster", START_TIMEOUT_S)

    def _launch(self, index: int) -> None:
        home = self._home(index + 1)
        home.mkdir()
        (home / "rabbitmq.conf").write_text(self._configuration(index))
        (home / "enabled_plugins").write_text(PLUGINS)
        (home / "env.conf").touch()
        self._servers[self._node(index)] = self._spawn([str(SERVER)], index + 1, self._environment(index, home))

    @staticmethod
    def _node(index: int) -> str:
        return f"bench{index + 1}@localhost"

    def _environment(self, index: int, home: Path) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(home.parent),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": self._node(index),
            "RABBITMQ_CONF_ENV_FILE": str(home / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home),
            "RABBITMQ_MNESIA_DIR": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_LOGS": str(home / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(home / "config"),
            "RABBITMQ_SCHEMA_DIR": str(home / "schema"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_DIST_PORT": str(self._dist_ports[index]),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_CRASH_DUMP_SECONDS": "0",
        }

    def _configuration(self, index: int) -> str:
        lines = [
            f"listeners.tcp.1 = {LOOPBACK}:{self.amqp_ports[index]}",
            f"management.tcp.ip = {LOOPBACK}",
            f"management.tcp.port = {self._http_ports[index]}",
            "management_agent.disable_metrics_collector = true",
            "cluster_formation.peer_discovery_backend = classic_config",
            "log.file.level = warning",
            "vm_memory_high_watermark.relative = 0.8",
            "disk_free_limit.absolute = 500MB",
        ]
        lines += [f"cluster_formation.classic_config.nodes.{i + 1} = {self._node(i)}" for i in range(NODES)]
        return "\n".join(lines) + "\n"

    def _await_node(self, index: int) -> None:
        server = self._servers[self._node(index)]

        def serves() -> bool:
            if server.poll() is not None:
                raise PeerFailed(f"node {index + 1} ended with status {server.returncode}")
            return accepts(self.amqp_ports[index]) and accepts(self._http_ports[index])

        try:
            wait_until(serves, f"the start of RabbitMQ node {index + 1}", START_TIMEOUT_S)
        except PeerFailed as error:
            raise PeerFailed(f"{error}; its log ends: {self._log_tail(index + 1, 'log', OUTPUT)}") from error

    def _is_whole(self) -> bool:
        try:
            nodes = self._http("GET", "/api/nodes?columns=name,running")
        except (OSError, http.client.HTTPException, PeerFailed):
            return False
        return len(nodes) == NODES and all(node.get("running") for node in nodes)

    # queues and streams

    def create(self, kind: str, partitions: int = 1) -> TargetLog:
        """Create a queue (`kind`: quorum or stream) that the first node leads, to which the driver connects."""
        if partitions != 1:
            raise PeerFailed("a queue has no partitions")
        name = self._next_name(kind)
        group_size = {"quorum": "x-quorum-initial-group-size", "stream": "x-initial-cluster-size"}[kind]
        arguments = {"x-queue-type": kind, "x-queue-leader-locator": "client-local", group_size: NODES}
        declaration = {"durable": True, "auto_delete": False, "arguments": arguments}
        self._http("PUT", f"/api/queues/%2F/{name}", declaration)
        leader = self._await_replicas(name)
        filter_kind = "rabbitmq-stream" if kind == "stream" else "none"
        url = Url(LOOPBACK, self.amqp_ports[0], f"/amq/queue/{quote(name)}", USER, PASSWORD)
        return TargetLog(
            name, url, LinkOptions(), url,
            LinkOptions(filter_kind=filter_kind, start="latest"),  # type: ignore[arg-type]
            LinkOptions(filter_kind=filter_kind, start="earliest"),  # type: ignore[arg-type]
            leader, keeps=kind == "stream",
        )  # fmt: skip

    def _await_replicas(self, name: str) -> str:
        """Wait for all replicas; return the leader's name.

        Without statistics the interface does not show a stream's replicas, but each has a directory of segments.
        """
        found: dict[str, Any] = {}

        def whole() -> bool:
            found.update(self._http("GET", f"/api/queues/%2F/{name}"))
            segments = {path.parts[-5] for path in self._root.glob(f"broker*/data/stream/*{name}_*/*.segment")}
            return len(found.get("members", segments)) == NODES

        try:
            wait_until(whole, f"the replication of {name} to {NODES} nodes", START_TIMEOUT_S)
        except PeerFailed as error:
            raise PeerFailed(f"{error}; last seen: {found}") from error
        return str(found.get("leader") or found["node"])

    def delete(self, target: TargetLog) -> None:
        self._http("DELETE", f"/api/queues/%2F/{target.name}")

    def processes(self) -> dict[str, psutil.Process]:
        """Return the Erlang VM below each start script.

        Parents come before children, since a fork of a VM has the VM's name until its exec.
        """
        found: dict[str, psutil.Process] = {}
        for name, server in self._servers.items():
            for child in psutil.Process(server.pid).children(recursive=True):
                if name not in found and child.name().startswith("beam"):
                    found[name] = child
        return found

    def version(self) -> str:
        return f"RabbitMQ {self._http('GET', '/api/overview')['rabbitmq_version']}"

    def _http(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        connection = http.client.HTTPConnection(LOOPBACK, self._http_ports[0], timeout=HTTP_TIMEOUT_S)
        try:
            connection.request(
                method, path, json.dumps(body) if body is not None else None,
                {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"},
            )  # fmt: skip
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise PeerFailed(f"RabbitMQ refused {method} {path}: {answer.status} {text.decode(errors='replace')}")
        return json.loads(text) if text else None


def _reached_at(target: TargetLog) -> str:
    return f"amqp://{USER}:{PASSWORD}@{LOOPBACK}:{target.send_url.port}/{target.send_url.address}"


if __name__ == "__main__":
    play(RabbitMQ(), ("quorum", "stream"), _reached_at)
