"""Table of directed links: (source, destination, protocol) -> the directions of proxies that make up the link.

A node dials a peer to send to it, and receives over the connection that the peer dialled. Each connection carries
responses, too. So bytes from A to B travel upstream on A's way to B, and downstream on B's way to A; both are one link
of this table. A client's link to a node is upstream on the client's way; a node's link to its clients is downstream.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple

from chaos.proxies import Direction, ProxyServer, Way

NODES, CLIENTS, ZOOKEEPER = "grpc", "amqp", "zk"


class NetworkLink(NamedTuple):
    source: str  # "1" for node 1, or a class of clients
    destination: str
    protocol: str


Harm = Callable[[Way, Direction], AbstractContextManager[None]]
"""A fault of one direction of a way, for the duration of a block."""


def swallow(way: Way, direction: Direction) -> AbstractContextManager[None]:
    """Drop all bytes; the connections end with the fault."""
    return way.swallowing(direction)


def freeze(way: Way, direction: Direction) -> AbstractContextManager[None]:
    """Hold back all bytes until the fault ends, then deliver them on the same connections."""
    return way.frozen(direction)


def slow(latency_ms: int) -> Harm:
    return lambda way, direction: way.delayed(direction, latency_ms)


def narrow(kib_per_s: int) -> Harm:
    return lambda way, direction: way.narrowed(direction, kib_per_s)


def slice_bytes(way: Way, direction: Direction) -> AbstractContextManager[None]:
    """Deliver the bytes in pieces of a few bytes, which cuts frames apart."""
    return way.sliced(direction)


class Links:
    """The breakable links of one cluster; they are made before it starts."""

    def __init__(self) -> None:
        self._table: dict[NetworkLink, list[tuple[Way, Direction]]] = {}
        self.ways: dict[tuple[str, str, str], Way] = {}  # (dialler, dialled, protocol)

    def add(self, server: ProxyServer, dials: str, whom: str, protocol: str, upstream: str) -> Way:
        """Make a way from `dials` to `whom`, and add its links."""
        return self.put(server.way(f"{protocol}-{dials}-to-{whom}", upstream), dials, whom, protocol)

    def put(self, way: Way, dials: str, whom: str, protocol: str) -> Way:
        """Add the links of an existing way."""
        self.ways[dials, whom, protocol] = way
        self._table.setdefault(NetworkLink(dials, whom, protocol), []).append((way, "upstream"))
        self._table.setdefault(NetworkLink(whom, dials, protocol), []).append((way, "downstream"))
        return way

    def parts(self, link: NetworkLink) -> list[tuple[Way, Direction]]:
        return self._table[link]

    @property
    def all(self) -> list[NetworkLink]:
        return list(self._table)

    @contextlib.contextmanager
    def harmed(self, links: Iterable[NetworkLink], harm: Harm = swallow) -> Iterator[None]:
        """Break links for the duration of a block.

        Commands go to all proxies in parallel: Toxiproxy takes seconds to thaw a stream whose receiver is gone, since
        it still has bytes to deliver.
        """
        by_way: dict[str, list[AbstractContextManager[None]]] = {}
        for link in links:
            for way, direction in self._table[link]:
                by_way.setdefault(way.name, []).append(harm(way, direction))
        with ThreadPoolExecutor(max_workers=max(1, len(by_way))) as hands:
            stacks = [contextlib.ExitStack() for _ in by_way]
            try:
                list(hands.map(_enter_all, stacks, by_way.values()))
                yield
            finally:
                list(hands.map(contextlib.ExitStack.close, stacks))

    @contextlib.contextmanager
    def refused(self, links: Iterable[NetworkLink]) -> Iterator[None]:
        """Close the connections of links and refuse new ones, in both directions."""
        ways = {way.name: way for link in links for way, _ in self._table[link]}
        with contextlib.ExitStack() as stack:
            for way in ways.values():
                stack.enter_context(way.refusing())
            yield

    # ---------------------------------------------------------------- sets of links

    def between_nodes(self, source: int, destination: int) -> NetworkLink:
        return NetworkLink(str(source), str(destination), NODES)

    def across(self, ones: Iterable[int], others: Iterable[int]) -> list[NetworkLink]:
        """Return the links between two sets of nodes, in both directions."""
        pairs = [(a, b) for a in ones for b in others if a != b]
        return [self.between_nodes(*pair) for pair in pairs] + [self.between_nodes(b, a) for a, b in pairs]

    def into(self, node: int) -> list[NetworkLink]:
        """Return the links from other nodes to a node."""
        return [link for link in self._table if link.protocol == NODES and link.destination == str(node)]

    def out_of(self, node: int) -> list[NetworkLink]:
        """Return the links from a node to other nodes."""
        return [link for link in self._table if link.protocol == NODES and link.source == str(node)]

    def of_clients(self, node: int) -> list[NetworkLink]:
        """Return the links between a node and all clients, in both directions."""
        return [link for link in self._table if link.protocol == CLIENTS and str(node) in link[:2]]

    def to_zookeeper(self, node: int) -> list[NetworkLink]:
        """Return the links between a node and every server of ZooKeeper, in both directions."""
        return [link for link in self._table if link.protocol == ZOOKEEPER and str(node) in link[:2]]


def _enter_all(stack: contextlib.ExitStack, blocks: Iterable[AbstractContextManager[None]]) -> None:
    for block in blocks:
        stack.enter_context(block)
