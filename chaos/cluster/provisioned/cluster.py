"""The cluster of an inventory during a run; its nodes ran before the run, and run after it."""

from __future__ import annotations

import contextlib
import secrets
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chaos.cannot_run import CannotRun
from chaos.cluster.cluster import ChaosCluster
from chaos.cluster.provisioned.inventory import InventoryHost
from chaos.cluster.provisioned.links import Endpoints, links_between, missing
from chaos.cluster.provisioned.node import RemoteNode
from chaos.cluster.provisioned.ssh import SshConnection
from holdfast.client import AuthenticationError, HoldfastError, NotAuthorizedError, Security

T = TypeVar("T")
S = TypeVar("S")

SAYS_WHO_LEADS = ("debug", "info")
"""Levels at which a node's log tells when the node begins to lead."""
CLOCK_LOOKS = 5
DELETED_WITHIN_S = 60.0
LOOK_AGAIN_S = 0.5


@dataclass(frozen=True)
class Provisioned:
    """Access to the cluster of an inventory.

    `warn`: takes texts about things that a person must fix after a run. `listener`: the listener for clients; "": the
    first one of the nodes' configuration. `patience_s`: time for the hosts to answer and the cluster to be whole."""

    hosts: Sequence[InventoryHost]
    warn: Callable[[str], None]
    security: Security = field(default_factory=Security)
    listener: str = ""
    patience_s: float = 0.0


class ProvisionedCluster(ChaosCluster):
    beginning = "connecting to the hosts, and looking whether the cluster is whole"
    ending = "the logs of the nodes are fetched; the nodes run on"

    def __init__(self, directory: Path, provisioned: Provisioned) -> None:
        super().__init__(directory, "", provisioned.security)
        self._provisioned = provisioned
        self._connections = [SshConnection(host) for host in provisioned.hosts]
        self.nodes: dict[int, RemoteNode] = {}
        self._made: list[str] = []  # logs
        self._is_open = False
        self._ends: dict[int, Endpoints] = {}
        self.no_links = "nobody has looked yet"

    # ---------------------------------------------------------------- before anything is done

    def start(self, *numbers: int) -> None:
        """Start these nodes, or all; the first call also connects to every host. Raises CannotRun."""
        if not self._is_open:
            self._open()
            self._is_open = True
        self.spawn(*numbers)
        for number in numbers or self.nodes:
            self.nodes[number].wait_ready()

    def _open(self) -> None:
        deadline_s = time.monotonic() + self._provisioned.patience_s
        told = _each(lambda one: one.open(self._provisioned.patience_s), self._connections)
        found = [self._node(connection, one) for connection, one in zip(self._connections, told, strict=True)]
        for name, node in found:
            host = node.connection.host.name
            if node.id in self.nodes:
                raise CannotRun(f"{host} and {self._host(node.id)} both run node {node.id}: one is another cluster's")
            if self.name not in ("", name):
                raise CannotRun(f"{host} runs a node of cluster {name}, the others of {self.name}")
            self.name = name
            self.nodes[node.id] = node
        self.nodes = dict(sorted(self.nodes.items()))
        _each(Endpoints.ask, list(self._ends.values()))
        self.no_links = missing(self._ends)
        if not self.no_links:
            links_between(self._ends, self.links)
        self._wait(self._not_ready, deadline_s)
        self._check_login()
        self._wait(self._apart, deadline_s)
        taken = {str(one["name"]) for one in self.call(lambda admin: admin.list_logs())}
        while not self.prefix or any(name.startswith(self.prefix) for name in taken):
            self.prefix = f"chaos-{secrets.token_hex(3)}-"

    @staticmethod
    def _wait(look: Callable[[], str], deadline_s: float) -> None:
        """Repeat a check until it finds nothing wrong. Raises CannotRun at the deadline."""
        while why := look():
            if time.monotonic() > deadline_s:
                raise CannotRun(f"{why}: a run begins with a cluster that is whole")
            time.sleep(LOOK_AGAIN_S)

    def _not_ready(self) -> str:
        """Say which node is not ready. A ready node knows a leader of everything that it stores, and may lead."""
        for node in self.nodes.values():
            if why := node.unready():
                return f"{self._host(node.id)}: node {node.id} is not ready: {why}"
        return ""

    def _apart(self) -> str:
        """Say which node does not reach another one, as every node itself reports it."""
        for node in self.nodes.values():
            where = f"{self._host(node.id)}: node {node.id}"
            try:
                told = self.call(lambda admin: admin.cluster_status(), [node.id])["nodes"]
            except HoldfastError as error:
                return f"{where} does not answer: {error}"
            if apart := [int(one["node"]) for one in told if not one["up"]]:
                return f"{where} does not reach {_numbers(apart)}"
        return ""

    def _host(self, node: int) -> str:
        return self.nodes[node].connection.host.name

    def _node(self, connection: SshConnection, told: dict[str, Any]) -> tuple[str, RemoteNode]:
        """Make a node from its host's report; return it after the name of its cluster."""
        host = connection.host.name
        try:
            config = tomllib.loads(told["config"])
            number, name = int(config["node"]["id"]), str(config["cluster"]["name"])
            listeners = {str(one["name"]): str(one.get("advertise", one["bind"])) for one in config["listener"]}
            health = str(config["monitoring"]["bind"])
            peers = {int(one["id"]): str(one["address"]) for one in config["cluster"].get("peers", [])}
        except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
            raise CannotRun(f"{host}: the configuration of its node is not what the role writes: {error!r}") from error
        if (level := config.get("log", {}).get("level", "info")) not in SAYS_WHO_LEADS:
            raise CannotRun(
                f"{host}: its node logs at {level}, and who leads is told at info: set holdfast_node_log_level: info"
            )
        wanted = self._provisioned.listener or next(iter(listeners))
        if wanted not in listeners:
            raise CannotRun(f"{host}: it has no listener {wanted}; --listener may name {', '.join(listeners)}")
        node = RemoteNode(
            number, connection, health, listeners[wanted], told["log"], told["size"], _shift_s(connection), told["pid"],
            self.directory / f"node{number}", next(iter(listeners.items())),
        )  # fmt: skip
        peers.pop(number, None)
        self._ends[number] = Endpoints(number, connection, peers, wanted, listeners)
        return name, node

    def _check_login(self) -> None:
        """Check that every node accepts our login, and that the inventory has all nodes of the cluster."""
        known: set[int] = set()
        for node in self.nodes.values():
            where = f"{self._host(node.id)}: node {node.id}, asked at {self.direct(node.id)},"
            try:
                self.call(lambda admin, node=node: admin.node_status(node.id), [node.id])  # type: ignore[misc]
                known = {int(one["node"]) for one in self.call(lambda admin: admin.list_nodes(), [node.id])}
            except (AuthenticationError, NotAuthorizedError) as error:
                raise CannotRun(
                    f"{where} does not let us in: {error}; a run needs an administrator: --user and --password-file"
                ) from error
            except HoldfastError as error:
                raise CannotRun(
                    f"{where} does not answer: {error}; is that address reached from here (else name another "
                    "--listener), and does it want TLS (--ca)?"
                ) from error
        if known != set(self.nodes):
            raise CannotRun(
                f"the inventory has nodes {_numbers(self.nodes)}, but cluster {self.name} has {_numbers(known)}: a run "
                "needs to reach each of them"
            )

    # ---------------------------------------------------------------- addresses

    def servers(self, who: str) -> list[str]:
        return [node.advertised for node in self.nodes.values()]

    def direct(self, node: int) -> str:
        return self._ends[node].past_proxies

    # ---------------------------------------------------------------- processes

    def spawn(self, *numbers: int) -> None:
        for node in self._some(numbers):
            if not node.is_running:
                node.spawn()

    def kill(self, *numbers: int) -> None:
        _each(RemoteNode.kill, self._some(numbers))

    def _some(self, numbers: Iterable[int]) -> list[RemoteNode]:
        return [self.nodes[number] for number in list(numbers) or self.nodes]

    def heal(self) -> None:
        """Heal each node, even if another one fails."""
        _each(RemoteNode.resume, self._some([]))
        _each(RemoteNode.look, self._some([]))
        self.start()

    def hand_over(self, node: int) -> None:
        """Move the leaderships of a node to others. Its agent is told before and after, as it may be a new one then."""
        self._drained(node)
        try:
            super().hand_over(node)
        finally:
            self._drained(node)

    def _drained(self, node: int) -> None:
        listener, server = self.nodes[node].first_listener
        self.nodes[node].order("drained", node=node, server=server, listener=listener)

    def lead_again(self, node: int) -> None:
        super().lead_again(node)
        self.nodes[node].order("leads")

    # ---------------------------------------------------------------- the run's own logs

    def create_log(self, log: str, partitions: int) -> None:
        self._made.append(log)
        super().create_log(log, partitions)

    def _delete_logs(self) -> None:
        """Delete the logs that this run has made, and no others; warn about those that are left."""
        deadline_s = time.monotonic() + DELETED_WITHIN_S
        while self._made:
            log = self._made[-1]
            try:
                if log in {str(one["name"]) for one in self.call(lambda admin: admin.list_logs())}:
                    self.call(lambda admin, log=log: admin.delete_log(log))  # type: ignore[misc]
                self._made.pop()
            except HoldfastError as error:
                if time.monotonic() > deadline_s:
                    names = ", ".join(self._made)
                    self._provisioned.warn(f"these logs are left: {names} ({error}); holdfast log delete ends them")
                    return
                time.sleep(LOOK_AGAIN_S)

    def keep_logs(self) -> None:
        names, self._made = ", ".join(self._made), []
        if names:
            self._provisioned.warn(f"the run has failed, and its logs are kept: {names}; holdfast log delete ends them")

    # ---------------------------------------------------------------- the end

    def conclude(self) -> None:
        for node in self.nodes.values():
            node.fetch_log()

    def let_go(self) -> None:
        for told in _each(SshConnection.close, self._connections):
            if told:
                self._provisioned.warn(f"{told}: see to it that its node runs (playbooks/site.yml does)")

    def close(self) -> None:
        self.let_go()
        self._delete_logs()
        super().close()


@dataclass(frozen=True)
class FoundCluster:
    """Facts about a cluster at the first look. `no_links`: why its links cannot be broken; "" if they can."""

    nodes: int
    no_links: str


def look(provisioned: Provisioned, directory: Path) -> FoundCluster:
    """Look at a cluster, without changing it, to see which runs are possible. Raises CannotRun if none is."""
    with contextlib.closing(ProvisionedCluster(directory, provisioned)) as cluster:
        cluster.start()
        return FoundCluster(len(cluster.nodes), cluster.no_links)


def _each(work: Callable[[S], T], those: Sequence[S]) -> list[T]:
    """Do the work for all in parallel; when all have ended, raise the first error if any failed."""
    if not those:
        return []
    with ThreadPoolExecutor(len(those)) as hands:
        futures = [hands.submit(work, one) for one in those]
    return [future.result() for future in futures]


def _shift_s(connection: SshConnection) -> float:
    """Measure the difference of our monotonic clock to the host's wall clock, by the quickest of several pings."""
    best = (float("inf"), 0.0)
    for _ in range(CLOCK_LOOKS):
        asked_s = time.monotonic()
        told = connection.order("ping")
        took_s = time.monotonic() - asked_s
        best = min(best, (took_s, asked_s + took_s / 2 - (told["now_s"] + told["ahead_s"])))
    return best[1]


def _numbers(those: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(those)))
