"""Goal of a plan: the replicas of a partition stand in as many racks as there are, and evenly."""

from __future__ import annotations

from cluster.metadata.placement import rack_of
from cluster.metadata.planning.projection import Projection


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
