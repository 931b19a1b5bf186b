"""Goal of a plan that comes first: nothing lies on nodes that are lost, or that leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cluster.metadata.planning.balance_input import NodeLoad
from cluster.metadata.planning.projection import Projection

MOST_LOST_OF_ALL = 4
"""A repair is made while at most one in so many nodes is away: more are a fault of the network, or of the site."""


def lost_nodes(projection: Projection) -> list[int]:
    """Nodes that are away for so long that their replicas should be made elsewhere. None while too much is away."""
    limit_s = projection.settings.replace_after_s
    lost = [node for node, told in projection.nodes.items() if told.away_s > limit_s]
    if lost and (fault := too_much_is_away(projection.nodes)) is not None:
        projection.obstacle(f"node {lost[0]} is not replaced: {fault}")
        return []
    return lost


def too_much_is_away(nodes: Mapping[int, NodeLoad]) -> str | None:
    """Reason why a repair might copy all that is about to come back; None: there is none."""
    away = [told for told in nodes.values() if told.away_s]
    racks = {told.rack for told in away if told.rack}
    if len(racks) > 1:
        return f"nodes of {len(racks)} racks are away ({', '.join(sorted(racks))}); start them"
    if len(away) >= 2 and len(away) * MOST_LOST_OF_ALL > len(nodes):
        return f"{len(away)} of {len(nodes)} nodes are away; start them, or remove them with `holdfast node remove`"
    return None


def empty(projection: Projection, nodes: Mapping[int, str], receivers: Collection[int] | None = None) -> None:
    """Move all that lies on nodes elsewhere. `nodes`: and why. `receivers`: only there."""
    for group, partition in projection.partitions.items():
        givers = [node for node in projection.targets[group] if node in nodes]
        if not givers:
            continue
        if not partition.is_movable:
            if not partition.target:
                projection.obstacle(f"{partition.name} has no leader: a majority of its replicas must be up")
            elif set(givers) & set(partition.target):
                projection.obstacle(f"{partition.name} is being moved already: see `holdfast cluster moves`")
            continue
        for giver in givers:
            receiver = projection.best_receiver(group, giver, receivers)
            if receiver is None:
                projection.obstacle(_nowhere(projection, group, giver, receivers))
            else:
                projection.move(group, giver, receiver, nodes[giver])


def _nowhere(projection: Projection, group: int, giver: int, receivers: Collection[int] | None) -> str:
    partition, target = projection.partitions[group], projection.targets[group]
    log, count = partition.name.rpartition("/")[0], len(target)
    if receivers is not None:
        named = ", ".join(f"node {node}" for node in sorted(receivers))
        if set(receivers) <= set(target):
            return f"{partition.name} has a replica on {named} already: move its other one with `holdfast node remove`"
        return f"{named} cannot take {partition.name}: it must be up, active and have room on its disk"
    free = [node for node in projection.receivers if node not in target]
    if free:
        return (
            f"no node has room for {partition.name} ({partition.size_bytes >> 20} MiB): disks may be filled up to "
            f"{projection.settings.disk_target} %; add a node, or shorten the retention of logs"
        )
    return (
        f"{log} has {count} replicas, and without node {giver} there are {len(projection.receivers - {giver})} nodes "
        f"for them; add a node, or `holdfast log alter {log} --replicas` with fewer"
    )
