"""The links of an inventory's cluster that can be broken: by the proxies that the role `toxiproxy` has put there.

Which proxy is whose way is nobody's to declare: a node says where it dials each other node, and where clients find it,
and a proxy of its own host that listens there is the way.
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
    """As `chaos.proxies.Way` wants one: told over the connection to its host, whose agent undoes it in any case."""

    connection: SshConnection
    name: str
    listen: str
    upstream: str

    def _order(self, name: str, /, **arguments: Any) -> None:
        try:
            self.connection.order(name, proxy=self.name, **arguments)
        except OrderFailed as error:
            raise BrokenOff(f"{error}: the run was broken off") from error  # the cluster's fault it is not

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
    """Of one node. `dials`: where it reaches each other one; `listeners`: where clients are sent by each."""

    node: int
    connection: SshConnection
    dials: Mapping[int, str]
    listener: str
    listeners: Mapping[str, str]
    proxies: dict[str, RemoteProxy] = field(default_factory=dict)  # by where they listen

    def ask(self) -> None:
        try:
            told: list[dict[str, Any]] = self.connection.order("proxies")
        except OrderFailed as error:
            raise CannotRun(f"{error}{advice(error.kind)}") from error
        self.proxies = {one["listen"]: RemoteProxy(self.connection, **one) for one in told}

    @property
    def past_proxies(self) -> str:
        """An address of a listener that no proxy stands before; where there is none, that of the clients."""
        plain = [address for address in self.listeners.values() if address not in self.proxies]
        wanted = self.listeners[self.listener]
        return wanted if wanted not in self.proxies or not plain else plain[0]


def missing(nodes: Mapping[int, Endpoints]) -> str:
    """Which way has no proxy; nothing: each has one."""
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
    way.name = f"{ends.connection.host.name}/{way.name}"  # proxies of two hosts may have one name
    return way


def links_between(nodes: Mapping[int, Endpoints], links: Links) -> None:
    """Into the table, where no way is missing."""
    for node, ends in nodes.items():
        for other, address in ends.dials.items():
            links.put(_way(ends, address), str(node), str(other), NODES)
        before = _way(ends, ends.listeners[ends.listener])
        for who in CLASSES:
            links.put(before, who, str(node), CLIENTS)
