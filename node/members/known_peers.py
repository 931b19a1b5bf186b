"""Peers of this node: it follows the nodes that the metadata know.

The problem: a list in a file is out of date as soon as a node joins or leaves, and a node that is started by it would
dial who is gone and refuse who came. The rules: registered nodes are peers, and so are those that the cluster begins
with until they have registered; removed ones never are. What a configuration or a service says of a node's address goes
before the metadata's, since nodes may reach each other in different ways.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from cluster.metadata import MetadataView
from cluster.rpc import PeerNetwork

log = logging.getLogger("holdfast.node")


class KnownPeers:
    def __init__(
        self,
        node_id: int,
        founders: Collection[int],
        told: Mapping[int, str],
        fixed: Collection[int],
        view: MetadataView,
        network: PeerNetwork,
        on_forgotten: Callable[[int], None],
        on_change: Callable[[int], None],
    ) -> None:
        """`founders`: nodes with which the cluster began; none, if this one joined. `told`: addresses of nodes, by the
        configuration, by discovery or by a seed; those of the `fixed` nodes go before the metadata's.
        `on_change(nodes)`: so many nodes there are now, this one included."""
        self._node_id = node_id
        self._founders = frozenset(founders)
        self._told = told
        self._fixed = fixed
        self._view = view
        self._network = network
        self._on_forgotten = on_forgotten
        self._on_change = on_change

    def could_tell(self) -> bool:
        """True if there are peers that could tell this process from an older copy of its node. Those that leave may be
        gone already: of the last commands before a crash this node may not know yet that they were carried out."""
        nodes = self._view.nodes
        return any(node not in nodes or nodes[node].state == "active" for node in self._network.peers)

    def follow(self) -> None:
        """Take in what the metadata say now. Called after each of their changes."""
        network, wanted = self._network, self._wanted()
        before = set(network.peers)
        for node in sorted(before - wanted.keys()):
            network.forget_peer(node)
            self._on_forgotten(node)
        for node, address in sorted(wanted.items()):
            if node not in before:
                network.add_peer(node, address)
            elif node not in self._fixed:
                network.set_address(node, address)
        if before != wanted.keys():
            self._on_change(len(wanted) + 1)

    def _wanted(self) -> dict[int, str]:
        view, told = self._view, self._told
        registered = {node: told[node] if node in self._fixed else one.rpc_address for node, one in view.nodes.items()}
        if self._node_id in view.nodes:
            others = {node: told[node] for node in self._founders if node in told}
        else:
            others = dict(told)  # this node has not heard yet who they are
        wanted = {**others, **registered}
        return {node: address for node, address in wanted.items() if self._may_be_peer(node)}

    def _may_be_peer(self, node: int) -> bool:
        return node != self._node_id and self._view.removed(node) is None
