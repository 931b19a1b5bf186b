"""Goal of a plan: no disk is fuller than its mark. Replicas go until it is at the lower one.

The rules: what counts is what a disk needs. Space that nobody needs any more is given back by the node itself, which
takes a while; to move more replicas away would not speed that up. And a disk that is relieved gets nothing in the same
plan. Else later goals would bring it another replica of what has just left, and the next plan would move on the same
disk again, without end.
"""

from __future__ import annotations

from cluster.metadata.planning.projection import Projection


def relieve_disks(projection: Projection) -> None:
    """Move replicas away from disks above the mark: the largest that are needed, and no more than are."""
    marks = projection.settings
    projection.relieved = {node for node in projection.nodes if projection.is_above_mark(node)}
    for node in sorted(projection.relieved):
        _relieve(projection, node, projection.nodes[node].capacity_bytes * marks.disk_low // 100)
        if projection.is_above_mark(node):
            projection.obstacle(
                f"the disk of node {node} is above {marks.disk_high} %, and nothing of it can move elsewhere: add a "
                "node, or shorten the retention of logs"
            )


def _relieve(projection: Projection, node: int, wanted: int) -> None:
    """Move replicas until no more than the wanted bytes are used: the largest of those that are not too much, and the
    smallest of the others when that does not do."""
    for size, group in reversed(projection.movable(node)):
        if size and size <= projection.needed_bytes(node) - wanted:
            _move(projection, group, node)
    for _, group in projection.movable(node):
        if projection.needed_bytes(node) <= wanted:
            return
        if projection.partitions[group].size_bytes >= projection.needed_bytes(node) - wanted:
            _move(projection, group, node)


def _move(projection: Projection, group: int, giver: int) -> None:
    among = [node for node in projection.receivers if projection.may_move(group, giver, node)]
    receiver = projection.best_receiver(group, giver, among) if among else None
    if receiver is not None:
        projection.move(group, giver, receiver, f"the disk of node {giver} is above its mark")
