"""Goal of a plan: no disk is fuller than its mark. Replicas go until it is at the lower one."""

from __future__ import annotations

from cluster.metadata.planning.projection import Projection, takes_replicas


def relieve_disks(projection: Projection) -> None:
    """Move replicas away from disks above the mark: the largest that are needed, and no more than are."""
    for node, told in projection.nodes.items():
        marks = projection.settings
        if not takes_replicas(told) or not told.capacity_bytes:
            continue
        if projection.used_bytes(node) * 100 <= told.capacity_bytes * marks.disk_high:
            continue
        wanted = told.capacity_bytes * marks.disk_low // 100
        _relieve(projection, node, wanted)
        if projection.used_bytes(node) * 100 > told.capacity_bytes * marks.disk_high:
            projection.obstacle(
                f"the disk of node {node} is above {marks.disk_high} %, and nothing of it can move elsewhere: add a "
                "node, or shorten the retention of logs"
            )


def _relieve(projection: Projection, node: int, wanted: int) -> None:
    """Move replicas until no more than the wanted bytes are used: the largest of those that are not too much, and the
    smallest of the others when that does not do."""
    for size, group in reversed(projection.movable(node)):
        if size and size <= projection.used_bytes(node) - wanted:
            _move(projection, group, node)
    for _, group in projection.movable(node):
        if projection.used_bytes(node) <= wanted:
            return
        if projection.partitions[group].size_bytes >= projection.used_bytes(node) - wanted:
            _move(projection, group, node)


def _move(projection: Projection, group: int, giver: int) -> None:
    among = [node for node in projection.receivers if projection.may_move(group, giver, node)]
    receiver = projection.best_receiver(group, giver, among) if among else None
    if receiver is not None:
        projection.move(group, giver, receiver, f"the disk of node {giver} is above its mark")
