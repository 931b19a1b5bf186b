"""Goal of a plan: the replicas of a partition stand in as many racks as there are, and evenly.

What an operator names is judged by the same measure, before it is stated (`shared_rack`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.metadata.placement import rack_of
from cluster.metadata.planning.balance_input import BalanceInput
from cluster.metadata.planning.projection import Projection
from cluster.metadata.types import BalanceSettings


@dataclass(frozen=True, slots=True)
class SharedRack:
    """Replicas of a partition that share a rack without need."""

    rack: str
    nodes: tuple[int, ...]
    """Nodes of that rack that are to have a replica."""
    free: tuple[tuple[int, str], ...]
    """Nodes that could have one of these replicas instead, each with its rack."""


def shared_rack(load: BalanceInput, settings: BalanceSettings, group: int, target: Sequence[int]) -> SharedRack | None:
    """Find a rack to which a target brings a replica of a partition, although another rack has two replicas fewer and a
    node for this one. None: there is none.

    A node that is to give up its replica is such a node, too: it could keep it.
    """
    projection = Projection(load, settings)
    if group not in projection.partitions:
        return None
    crowd = Counter(rack_of(projection.racks, node) for node in target)
    coming = [node for node in target if node not in projection.partitions[group].replicas]
    for rack in sorted({projection.racks[node] for node in coming if node in projection.racks}):
        free = tuple(
            (node, projection.racks.get(node, ""))
            for node in projection.nodes
            if node not in target
            and crowd[rack_of(projection.racks, node)] + 1 < crowd[rack]
            and projection.can_have(group, node)
        )
        if free:
            return SharedRack(rack, tuple(node for node in target if projection.racks.get(node) == rack), free)
    return None


def spread_over_racks(projection: Projection) -> None:
    """Move a replica out of a rack that has at least two more of its partition than another one with a node for it."""
    if not projection.racks:
        return
    for group, partition in projection.partitions.items():
        if not partition.is_movable:
            continue
        while (found := _crowded(projection, group)) is not None:
            giver, receiver, rack = found
            projection.move(group, giver, receiver, f"rack {rack} has {partition.name} more than once")


def _crowded(projection: Projection, group: int) -> tuple[int, int, str | int] | None:
    crowd = projection.crowd(group)
    if max(crowd.values()) < 2:
        return None
    givers = [node for node in projection.targets[group] if crowd[rack_of(projection.racks, node)] >= 2]
    # The fullest rack first; there the node that holds the most, and the preferred leader last.
    givers.sort(key=lambda node: (-crowd[rack_of(projection.racks, node)], -projection.held[node], node))
    for giver in givers:
        rack = rack_of(projection.racks, giver)
        among = [
            node
            for node in projection.receivers
            if crowd[rack_of(projection.racks, node)] + 1 < crowd[rack] and projection.may_move(group, giver, node)
        ]
        receiver = projection.best_receiver(group, giver, among) if among else None
        if receiver is not None:
            return giver, receiver, rack
    return None
