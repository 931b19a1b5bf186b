"""Quorum of a configuration: the one place that knows how many are enough.

The problem: a majority is asked for in four places (what is committed, who is elected, whether a leader is still
heard, whether a read is confirmed), and a number that is copied into each of them is wrong in one of them after a
change. The rule: all four ask this object, which is made anew with each configuration. While a configuration is joint a
quorum is a majority of the old voters *and* one of the new ones.

It speaks of nodes: within one configuration a node has one birth, and answers of another one are not heard (`step`).

Rejected: a majority of the union of both sets. It is safe with one replica in and one out, and stops when the rack is
lost which both of them share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from typing import TypeVar

from cluster.raft.interfaces import NodeId
from cluster.raft.membership.configuration import Configuration

Known = TypeVar("Known", int, float)


class Quorum:
    """Majorities of one configuration."""

    __slots__ = ("_halves", "nodes")

    def __init__(self, configuration: Configuration | None) -> None:
        """None: nothing is known of the group, and nobody is enough."""
        sets = () if configuration is None else (configuration.voters, configuration.outgoing)
        voters = [frozenset(replica.node for replica in replicas) for replicas in sets if replicas]
        self._halves = tuple((nodes, len(nodes) // 2 + 1) for nodes in voters)
        self.nodes: frozenset[NodeId] = frozenset().union(*voters)
        """All that vote, in the old set or in the new one."""

    def is_reached(self, by: Set[NodeId]) -> bool:
        """True if these are enough."""
        return bool(self._halves) and all(len(by & nodes) >= needed for nodes, needed in self._halves)

    def is_alone(self, node: NodeId) -> bool:
        """True if this node is all of them."""
        return self.nodes == {node}

    def is_whole_set(self, node: NodeId) -> bool:
        """True if this node is all old voters, or all new ones: what it alone has stored is decided, for that set."""
        return any(nodes == {node} for nodes, _ in self._halves)

    def is_pair(self) -> bool:
        """True if old and new voters are two in all: each of them is in every quorum."""
        return len(self.nodes) == 2

    def is_needed(self, node: NodeId) -> bool:
        """True if this node is in every quorum."""
        return any(node in nodes and len(nodes) == needed for nodes, needed in self._halves)

    def held_by_all_of_one(self, known: Callable[[NodeId], Known]) -> Known:
        """The greatest value that every member of some quorum has reached. `known`: the value of each voter."""
        return min(_reached(nodes, needed, known) for nodes, needed in self._halves)


def _reached(nodes: Collection[NodeId], needed: int, known: Callable[[NodeId], Known]) -> Known:
    return sorted(map(known, nodes), reverse=True)[needed - 1]
