"""Nodes that reach each other through proxies, one for each ordered pair of nodes, so that a direction can be cut.

A node dials a peer to send to it, and hears what others send over the connections that they dialled. A cut of what
arrives at a node, as a broken cable or a firewall makes it, therefore takes two kinds of bytes away: what goes upstream
on the ways *to* it, and what comes downstream, answers to calls of its own, on the ways *from* it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from chaos.proxies import Direction, ProxyServer, Way
from tests.integration.clusters.cluster import Cluster


class PeerWays:
    """Between all nodes of a cluster that was not started yet."""

    def __init__(self, server: ProxyServer, cluster: Cluster) -> None:
        self._ways: dict[tuple[int, int], Way] = {
            (sender, peer): server.way(f"{sender}-to-{peer}", cluster.nodes[peer].rpc)
            for sender in cluster.nodes
            for peer in cluster.nodes
            if sender != peer
        }
        cluster.dial({pair: way.address for pair, way in self._ways.items()})

    @contextlib.contextmanager
    def cut(self, node: int, *, hears: bool, is_heard: bool, freezes: bool = False) -> Iterator[None]:
        """Nothing that others send arrives at the node unless it `hears`; nothing of its own arrives unless it
        `is_heard`. Connections that were cut end with the block. `freezes`: the bytes stand still instead, until then.
        """
        orders: dict[Way, list[contextlib.AbstractContextManager[None]]] = {}
        for (sender, peer), way in self._ways.items():
            if node not in (sender, peer):
                continue
            harm = way.frozen if freezes else way.swallowing
            inward: Direction
            outward: Direction
            inward, outward = ("upstream", "downstream") if peer == node else ("downstream", "upstream")
            cut = ([] if hears else [inward]) + ([] if is_heard else [outward])
            orders[way] = [harm(direction) for direction in cut]
        with ThreadPoolExecutor(len(orders)) as hands:  # to thaw takes seconds for each way
            stacks = [contextlib.ExitStack() for _ in orders]
            try:
                list(hands.map(_enter_all, stacks, orders.values()))
                yield
            finally:
                list(hands.map(contextlib.ExitStack.close, stacks))


def _enter_all(stack: contextlib.ExitStack, blocks: Iterable[contextlib.AbstractContextManager[None]]) -> None:
    for block in blocks:
        stack.enter_context(block)
