"""The cluster that a run starts for itself: its nodes, and the links between them and to them."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.clock import OffsetClock
from chaos.cluster import registrations
from chaos.cluster.cluster import CLASSES, ChaosCluster, NodeOfCluster
from chaos.cluster.links import CLIENTS, NODES, ZOOKEEPER
from chaos.cluster.nodes import ClusterNode, NodeFailed, configuration
from chaos.cluster.zookeeper import Ensemble
from chaos.disk import FaultyDisk
from chaos.ports import free_port
from chaos.proxies import ProxyServer
from holdfast.client import HoldfastError
from holdfast.client.admin import AdminClient

LOOPBACK = "127.0.0.1"
DIRECT = "direct"
"""The listener that bypasses the proxies; it serves every partition as a gateway."""
REGISTRY = "/holdfast"
FIRST_GUEST = 101
REMOVED_STATUS = 3
"""Exit status of a node that was removed from its cluster."""
SESSION_S = 1.0
"""Session of a node in ZooKeeper: short, so that faults of a few seconds end it."""


@dataclass(frozen=True)
class Shape:
    """Properties of the cluster that a run starts."""

    nodes: int = 3
    durability: str = "fsync"
    with_disks: bool = False  # disks that fail or lose power on order
    with_clocks: bool = False  # clocks that go wrong on order
    with_zookeeper: bool = False  # discovery by ZooKeeper; nodes then bypass the proxies between them
    defects: Mapping[int, str] = field(default_factory=dict)  # node -> deliberate fault; 0: all nodes


class ProxiedCluster(ChaosCluster):
    """A cluster of our own nodes; each class of clients has its own listener, with its own proxies as addresses."""

    nodes: dict[int, ClusterNode]
    ending = "the nodes stop, and their disks are read"

    def __init__(self, directory: Path, server: ProxyServer, shape: Shape) -> None:
        super().__init__(directory, "chaos")
        self.shape = shape
        self.beginning = f"starting {shape.nodes} nodes"
        self.disks: dict[int, FaultyDisk] = {}
        self.clocks: dict[int, OffsetClock] = {}
        self.ensemble = Ensemble(self.directory) if shape.with_zookeeper else None
        self.nodes = {number: self._node(number) for number in range(1, shape.nodes + 1)}
        self._addresses = {
            (node, listener): f"{LOOPBACK}:{free_port()}"
            for node in self.nodes
            for listener in (*CLASSES, DIRECT, NODES)
        }
        self._add_links(server)
        self.guests: dict[int, ClusterNode] = {}
        """Nodes that have joined, and will leave; their links cannot be broken."""
        self._departed: list[ClusterNode] = []
        self._guest_numbers = itertools.count(FIRST_GUEST)
        for node in self.nodes.values():
            node.config_path.write_text(configuration(self._sections(node, self._found(node))), encoding="utf-8")

    def _node(self, number: int) -> ClusterNode:
        home = self.directory / f"node{number}"
        home.mkdir(parents=True)
        data_dir = home / "data"
        if self.shape.with_disks:
            self.disks[number] = FaultyDisk(home / "disk", home / "side")
            data_dir = self.disks[number].root / "data"
        environment: dict[str, str] = {}
        if self.shape.with_clocks:
            self.clocks[number] = OffsetClock(home / "clock")
            environment = self.clocks[number].environment()
        defect = self.shape.defects.get(number, self.shape.defects.get(0, ""))
        return ClusterNode(number, home, data_dir, environment, defect)

    def _add_links(self, server: ProxyServer) -> None:
        for number in self.nodes:
            for other in self.nodes:
                if other != number and self.ensemble is None:
                    self.links.add(server, str(other), str(number), NODES, self._addresses[number, NODES])
            for place, one in enumerate([] if self.ensemble is None else self.ensemble.servers, 1):
                self.links.add(server, str(number), f"zookeeper{place}", ZOOKEEPER, one.address)
            for who in CLASSES:
                self.links.add(server, who, str(number), CLIENTS, self._addresses[number, who])

    def _found(self, node: ClusterNode) -> dict[str, Any]:
        """Return the sections of a node's configuration by which it finds the others."""
        if self.ensemble is not None:
            # ZooKeeper gives all nodes one address of a node, so pairs have no ways of their own.
            ways = [way for (dials, _, of), way in self.links.ways.items() if (dials, of) == (str(node.id), ZOOKEEPER)]
            hosts = [way.address for way in ways]
            told = {"hosts": hosts, "root": REGISTRY, "initial_nodes": len(self.nodes), "session_timeout_s": SESSION_S}
            return {
                "cluster": {"name": self.name, "address": self._addresses[node.id, NODES]},
                "discovery": {"kind": "zookeeper", "zookeeper": told},
            }

        def reached(peer: int) -> str:
            if peer == node.id:
                return self._addresses[peer, NODES]
            return self.links.ways[str(node.id), str(peer), NODES].address

        peers = [{"id": peer, "address": reached(peer)} for peer in self.nodes]
        return {"cluster": {"name": self.name, "peers": peers}}

    def _sections(self, node: ClusterNode, found: dict[str, Any]) -> dict[str, Any]:
        listeners: list[dict[str, Any]] = [
            {
                "name": who,
                "bind": self._addresses[node.id, who],
                "address_map": {str(peer): self.links.ways[who, str(peer), CLIENTS].address for peer in self.nodes},
            }
            for who in CLASSES
        ]
        return {
            "node": {"id": node.id, "data_dir": str(node.data_dir)},
            **found,
            "listener": [*listeners, {"name": DIRECT, "bind": self._addresses[node.id, DIRECT], "redirect": "never"}],
            "storage": {"durability": self.shape.durability, "min_free_bytes": 0},
            "log": {"level": "info"},
        }

    # ---------------------------------------------------------------- nodes that come and go

    def invite(self) -> int:
        """Start another node, which joins the cluster, and return its number. Numbers are never used again. Raises
        HoldfastError, and starts nothing, if the cluster cannot be told."""
        number = next(self._guest_numbers)
        self.call(lambda admin: admin.add_node(number), self.running)
        node = self.guests[number] = self._node(number)
        for listener in (*CLASSES, DIRECT, NODES):
            self._addresses[number, listener] = f"{LOOPBACK}:{free_port()}"
        seeds = [{"id": peer, "address": self._addresses[peer, NODES]} for peer in self.nodes]
        found = {"name": self.name, "join": True, "address": self._addresses[number, NODES], "peers": seeds}
        node.config_path.write_text(configuration(self._sections(node, {"cluster": found})), encoding="utf-8")
        disk = self.disks.get(number)
        node.spawn(disk.environment() if disk is not None else None)
        return number

    def dismiss(self, number: int) -> None:
        """Let a node that has joined leave, and wait until it has: it moves what it has to others, and ends itself."""
        node = self.guests[number]
        node.wanted_dead = True
        self.wait_for(lambda: self._is_told(lambda admin: admin.remove_node(number)), f"node {number} to be let go")
        self.wait_for(lambda: not node.is_running, f"node {number} to leave")
        if (status := node.kill()) != REMOVED_STATUS:
            raise NodeFailed(number, f"was to leave, and ended with status {status}")
        node.overlook()
        self._departed.append(self.guests.pop(number))

    @property
    def seen_nodes(self) -> list[NodeOfCluster]:
        return [*self.nodes.values(), *self.guests.values(), *self._departed]

    def _is_told(self, work: Callable[[AdminClient], Coroutine[Any, Any, Any]]) -> bool:
        """Tell the cluster something; False while it cannot be told."""
        try:
            self.call(work, self.running)
        except HoldfastError:
            return False
        return True

    # ---------------------------------------------------------------- addresses

    def servers(self, who: str) -> list[str]:
        """Return the addresses of the class's proxies, one for each node."""
        return [self.links.ways[who, str(node), CLIENTS].address for node in self.nodes]

    def direct(self, node: int) -> str:
        """Return the node's address that bypasses the proxies."""
        return self._addresses[node, DIRECT]

    # ---------------------------------------------------------------- processes

    def start(self, *numbers: int) -> None:
        """Start ZooKeeper, then these nodes, or all that are down; return when each is ready."""
        if self.ensemble is not None:
            self.ensemble.start()
        self.spawn(*numbers)
        for number in numbers or self.nodes:
            self.nodes[number].wait_ready()

    def spawn(self, *numbers: int) -> None:
        """Start these nodes, or all that are down, without waiting."""
        for number in numbers or self.nodes:
            if not self.nodes[number].is_running:
                disk = self.disks.get(number)
                self.nodes[number].spawn(disk.environment() if disk is not None else None)

    def kill(self, *numbers: int) -> None:
        """Kill these nodes with SIGKILL."""
        for number in numbers:
            self.nodes[number].kill()

    def heal(self) -> None:
        """End all faults: every node runs, none is paused, every clock is right, no disk fails.

        Proxies are whole already: each of their faults is a `with` block that has ended."""
        for clock in self.clocks.values():
            clock.set_wrong(0)
        for disk in self.disks.values():
            disk.orders.withdraw()
        for node in self.nodes.values():
            node.look()
            if node.is_running:
                node.resume()
        self.start()

    @contextlib.contextmanager
    def expecting_the_worst(self, number: int) -> Iterator[None]:
        """Run a block that may end this node for good, then start it again: with its data, if it accepts them."""
        try:
            yield
        finally:
            node = self.nodes[number]
            try:
                if not node.is_running:
                    node.kill()
                    self.spawn(number)
                node.wait_ready()
                node.overlook()
                node.wanted_dead = False
            except NodeFailed:
                self.replace(number)

    def replace(self, number: int) -> None:
        """Start the node with an empty disk; an operator lets it in and waits until it votes again."""
        node = self.nodes[number]
        node.kill()
        shutil.rmtree(node.data_dir, ignore_errors=True)
        if number in self.disks:
            self.disks[number].orders.withdraw()
            self.disks[number].format()
        self.spawn(number)
        others = [other for other in self.running if other != number]
        self.wait_for(lambda: self._is_let_in(node, others), f"node {number} to be let in without its data")
        node.overlook()
        node.wanted_dead = False
        self.wait_for(lambda: self._has_caught_up(number), f"node {number} to have everything, and to vote")

    def _is_let_in(self, node: ClusterNode, others: Iterable[int]) -> bool:
        """Ask each other node to let it in, since only one that has met the node can do so."""
        for other in others:
            with contextlib.suppress(HoldfastError):
                self.call(lambda admin: admin.readmit_node(node.id), [other])
        return node.ready_within(1.0)

    def _has_caught_up(self, number: int) -> bool:
        try:
            described = self.call(lambda admin: admin.describe_node(number))
        except HoldfastError:
            return False
        return described["catching_up"] == []

    def conclude(self) -> None:
        """Stop every node as an operator would."""
        for node in self.nodes.values():
            node.look()
            status = node.stop()
            if status not in (0, None):
                node.complaints.append(f"it was asked to stop and ended with status {status}")

    def stores(self) -> dict[int, Path]:
        return {number: node.data_dir for number, node in self.nodes.items()}

    def let_go(self) -> None:
        """Kill the nodes and ZooKeeper; no client uses them any more."""
        for node in (*self.nodes.values(), *self.guests.values()):
            node.kill()
        if self.ensemble is not None:
            self.ensemble.kill()

    def keep_logs(self) -> None:
        """Do nothing: the logs are in the run's directory, with the data of the nodes."""

    def close(self) -> None:
        """End all processes of the cluster. Idempotent."""
        self.let_go()
        super().close()

    # ---------------------------------------------------------------- questions, past the proxies

    @property
    def registry(self) -> str:
        """Path in ZooKeeper below which nodes register."""
        return f"{REGISTRY}/{self.name}/nodes"

    def registered(self) -> dict[int, int]:
        """Return node -> session of its registration, past the proxies. Raises `registrations.unanswered()`.

        A server of the ensemble may lag behind the leader, so it syncs with the leader first."""
        assert self.ensemble is not None
        with self.ensemble.client() as client:
            client.sync_async(self.registry).get(timeout=registrations.ANSWER_WITHIN_S)
            return {row.node: row.session for row in registrations.look(client, self.registry, 0)}

    def all_registered(self) -> bool:
        """Tell whether all nodes are registered; False also while ZooKeeper does not answer."""
        with contextlib.suppress(*registrations.unanswered()):
            return set(self.registered()) == set(self.nodes)
        return False
