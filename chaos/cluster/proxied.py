"""The cluster that a run starts for itself: its nodes, and the links between them and to them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.clock import OffsetClock
from chaos.cluster import registrations
from chaos.cluster.cluster import CLASSES, ChaosCluster
from chaos.cluster.links import CLIENTS, NODES, ZOOKEEPER
from chaos.cluster.nodes import ClusterNode, NodeFailed, configuration
from chaos.cluster.zookeeper import Ensemble
from chaos.disk import FaultyDisk
from chaos.ports import free_port
from chaos.proxies import ProxyServer
from holdfast.client import HoldfastError

LOOPBACK = "127.0.0.1"
DIRECT = "direct"
"""The listener that is reached past the proxies: it serves every partition as a gateway."""
REGISTRY = "/holdfast"
SESSION_S = 1.0
"""Of a node in ZooKeeper: short, so that faults of seconds end it."""


@dataclass(frozen=True)
class Shape:
    """How the cluster of a run is made."""

    nodes: int = 3
    durability: str = "fsync"
    with_disks: bool = False  # that fail or lose power on order
    with_clocks: bool = False  # that go wrong on order
    with_zookeeper: bool = False  # nodes find each other in it, and reach each other past the proxies
    defects: Mapping[int, str] = field(default_factory=dict)  # node -> deliberate fault; 0: of all


class ProxiedCluster(ChaosCluster):
    """Each class of clients is behind proxies of its own, with a listener whose address map names them."""

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
        for node in self.nodes.values():
            node.config_path.write_text(configuration(self._sections(node)), encoding="utf-8")

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
        """How it finds the others."""
        if self.ensemble is not None:
            # All read one address of a node there, so there is no way of its own for each pair.
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

    def _sections(self, node: ClusterNode) -> dict[str, Any]:
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
            **self._found(node),
            "listener": [*listeners, {"name": DIRECT, "bind": self._addresses[node.id, DIRECT], "redirect": "never"}],
            "storage": {"durability": self.shape.durability, "min_free_bytes": 0},
            "log": {"level": "info"},
        }

    # ---------------------------------------------------------------- addresses

    def servers(self, who: str) -> list[str]:
        """Where clients of a class find the nodes: at their proxies."""
        return [self.links.ways[who, str(node), CLIENTS].address for node in self.nodes]

    def direct(self, node: int) -> str:
        """Past the proxies."""
        return self._addresses[node, DIRECT]

    # ---------------------------------------------------------------- processes

    def start(self, *numbers: int) -> None:
        """These nodes, or all that are down, and ZooKeeper before them; returns when each has said that it is ready."""
        if self.ensemble is not None:
            self.ensemble.start()
        self.spawn(*numbers)
        for number in numbers or self.nodes:
            self.nodes[number].wait_ready()

    def spawn(self, *numbers: int) -> None:
        """The same without waiting."""
        for number in numbers or self.nodes:
            if not self.nodes[number].is_running:
                disk = self.disks.get(number)
                self.nodes[number].spawn(disk.environment() if disk is not None else None)

    def kill(self, *numbers: int) -> None:
        """kill -9."""
        for number in numbers:
            self.nodes[number].kill()

    def heal(self) -> None:
        """Whatever was done: every node runs, none stands still, every clock is right, no disk fails. Proxies are whole
        already: what harms them is a block that was left."""
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
        """What is done to this node may end it for good. Afterwards it runs again: with its data, if it takes them."""
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
        """The node starts with an empty disk; an operator lets it in, and touches no other before it votes again."""
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
        """Each of the others is asked by itself, for only one that has met the node can let it in."""
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
        """Every node is stopped, as an operator would."""
        for node in self.nodes.values():
            node.look()
            status = node.stop()
            if status not in (0, None):
                node.complaints.append(f"it was asked to stop and ended with status {status}")

    def stores(self) -> dict[int, Path]:
        return {number: node.data_dir for number, node in self.nodes.items()}

    def let_go(self) -> None:
        """Nobody will ask anything of it: its nodes end."""
        for node in self.nodes.values():
            node.kill()
        if self.ensemble is not None:
            self.ensemble.kill()

    def keep_logs(self) -> None:
        """They lie with the data of its nodes, in the run's directory."""

    def close(self) -> None:
        """Idempotent. Nothing of it is left."""
        self.let_go()
        super().close()

    # ---------------------------------------------------------------- questions, past the proxies

    @property
    def registry(self) -> str:
        """In ZooKeeper: what nodes register below."""
        return f"{REGISTRY}/{self.name}/nodes"

    def registered(self) -> dict[int, int]:
        """Node -> session that its registration belongs to, past the proxies. Raises `registrations.unanswered()`.

        A server of the ensemble may not have heard yet what another one has told: it asks the leader first."""
        assert self.ensemble is not None
        with self.ensemble.client() as client:
            client.sync_async(self.registry).get(timeout=registrations.ANSWER_WITHIN_S)
            return {row.node: row.session for row in registrations.look(client, self.registry, 0)}

    def all_registered(self) -> bool:
        """False as well where ZooKeeper cannot say."""
        with contextlib.suppress(*registrations.unanswered()):
            return set(self.registered()) == set(self.nodes)
        return False
