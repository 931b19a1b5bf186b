"""Breakable links of an inventory's cluster, made of the proxies that the role `toxiproxy` has set up.

No setting maps proxies to ways. A node's configuration says where it dials each other node, and where clients find it.
A proxy of its own host that listens at such an address is the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos.cannot_run import BrokenOff, CannotRun
from chaos.cluster.cluster import CLASSES
from chaos.cluster.links import CLIENTS, NODES, Links
from chaos.cluster.provisioned.ssh import OrderFailed, SshConnection, advice
from chaos.proxies import Way


@dataclass
class RemoteProxy:
    """A proxy on a host, with the interface that `chaos.proxies.Way` needs; the host's agent undoes its faults."""

    connection: SshConnection
    name: str
    listen: str
    upstream: str

    def _order(self, name: str, /, **arguments: Any) -> None:
        try:
            self.connection.order(name, proxy=self.name, **arguments)
        except OrderFailed as error:
            raise BrokenOff(f"{error}: the run was broken off") from error  # not a fault of the cluster

    def add_toxic(self, type: str, stream: str, name: str, attributes: Mapping[str, int]) -> None:
        toxic = {"type": type, "stream": stream, "name": name, "attributes": dict(attributes)}
        self._order("toxic", toxic=toxic)

    def destroy_toxic(self, name: str) -> None:
        self._order("no_toxic", name=name)

    def disable(self) -> None:
        self._order("enable", enabled=False)

    def enable(self) -> None:
        self._order("enable", enabled=True)


@dataclass
class Endpoints:
    """Addresses of one node. `dials`: those of the other nodes; `listeners`: the advertised one of each listener."""

    node: int
    connection: SshConnection
    dials: Mapping[int, str]
    listener: str
    listeners: Mapping[str, str]
    proxies: dict[str, RemoteProxy] = field(default_factory=dict)  # by listen address

    def ask(self) -> None:
        try:
            told: list[dict[str, Any]] = self.connection.order("proxies")
        except OrderFailed as error:
            raise CannotRun(f"{error}{advice(error.kind)}") from error
        self.proxies = {one["listen"]: RemoteProxy(self.connection, **one) for one in told}

    @property
    def past_proxies(self) -> str:
        """Address of a listener without a proxy; if there is none, that of the clients' listener."""
        plain = [address for address in self.listeners.values() if address not in self.proxies]
        wanted = self.listeners[self.listener]
        return wanted if wanted not in self.proxies or not plain else plain[0]


def missing(nodes: Mapping[int, Endpoints]) -> str:
    """Say which way has no proxy; "" if each has one."""
    for node, ends in nodes.items():
        for other, address in ends.dials.items():
            if address not in ends.proxies:
                return f"node {node} reaches node {other} at {address}, and no proxy on its host listens there"
        if len(ends.dials) < len(nodes) - 1:
            return f"node {node} has not been told where the others are (holdfast_node_discovery: static)"
        if ends.listeners[ends.listener] not in ends.proxies:
            return f"no proxy on the host of node {node} stands before listener {ends.listener}"
    return ""


def _way(ends: Endpoints, address: str) -> Way:
    way = Way(ends.proxies[address])
    way.name = f"{ends.connection.host.name}/{way.name}"  # proxies of two hosts may have the same name
    return way


def links_between(nodes: Mapping[int, Endpoints], links: Links) -> None:
    """Fill the table of links; no way may be missing."""
    for node, ends in nodes.items():
        for other, address in ends.dials.items():
            links.put(_way(ends, address), str(node), str(other), NODES)
        before = _way(ends, ends.listeners[ends.listener])
        for who in CLASSES:
            links.put(before, who, str(node), CLIENTS)
