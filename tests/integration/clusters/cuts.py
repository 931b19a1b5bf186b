"""Nodes that reach each other through proxies, one for each ordered pair of nodes, so that a direction can be cut.

A node dials a peer to send to it, and hears what others send over the connections that they dialled. A cut of what
arrives at a node, as a broken cable or a firewall makes it, therefore takes two kinds of bytes away: what goes upstream
on the ways *to* it, and what comes downstream, answers to calls of its own, on the ways *from* it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from chaos.proxies import ProxyServer, Way
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
    def cut(self, node: int, *, hears: bool, is_heard: bool) -> Iterator[None]:
        """Nothing that others send arrives at the node unless it `hears`; nothing of its own arrives unless it
        `is_heard`. Connections that were cut end with the block."""
        with contextlib.ExitStack() as stack:
            for (sender, peer), way in self._ways.items():
                if node not in (sender, peer):
                    continue
                inward, outward = ("upstream", "downstream") if peer == node else ("downstream", "upstream")
                if not hears:
                    stack.enter_context(way.swallowing(inward))
                if not is_heard:
                    stack.enter_context(way.swallowing(outward))
            yield
