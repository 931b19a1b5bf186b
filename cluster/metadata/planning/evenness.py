"""Goals of a plan that come last: nodes hold as many replicas, as many bytes, and are preferred by as many partitions.

The rules: a goal is looked at only where it is missed by more than its bound, and then brought near, so that the next
change does not call for a move again. Counts are made even with replicas of the size by which bytes become even, too;
bytes with the largest that help. Neither makes worse what an earlier goal has reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cluster.metadata.placement import balance_leaders
from cluster.metadata.planning.projection import Projection, Sized

COUNT_BOUND, COUNT_PERCENT = 2, 5
"""Replicas are uneven when two nodes differ by more than this, and by more than the percentage of the mean."""

BYTES_PERCENT = 15
BYTES_GOAL_PERCENT = 5
"""Bytes are uneven when two nodes differ by more than that percentage of the mean; they are brought to the second."""

BYTES_BOUND = 256 << 20
"""Difference of bytes that is not worth a move."""

SMALLEST: Sized = (-1, -1)
LARGEST: Sized = (1 << 70, 0)


def even_replicas(projection: Projection) -> None:
    nodes = sorted(projection.receivers)
    if not nodes or _spread(projection.held, nodes) <= _count_bound(projection, nodes):
        return
    choice, fresh = _Choice(projection), True
    while True:
        found = _next_by_count(projection, nodes, choice)
        if found is not None:
            giver, receiver, group = found
            projection.move(group, giver, receiver, f"node {giver} holds more replicas than others")
            fresh = False
        elif fresh:
            return
        else:  # what could not move may be able to, after all that has moved
            choice, fresh = _Choice(projection), True


def _next_by_count(projection: Projection, nodes: list[int], choice: _Choice) -> tuple[int, int, int] | None:
    held, weights = projection.held, projection.held_bytes
    for giver in sorted(nodes, key=lambda node: (-held[node], -weights[node], node)):
        for receiver in sorted(nodes, key=lambda node: (held[node], weights[node], node)):
            if held[giver] - held[receiver] < 2:
                break
            wanted = _size_to_give(projection, nodes, giver)
            if (group := choice.take(giver, receiver, wanted)) is not None:
                return giver, receiver, group
    return None


def _size_to_give(projection: Projection, nodes: list[int], giver: int) -> int:
    """Size of the replicas by which a node would come to the mean of replicas and of bytes at once."""
    held, weights = projection.held, projection.held_bytes
    replicas = len(nodes) * held[giver] - sum(held[node] for node in nodes)
    more = len(nodes) * weights[giver] - sum(weights[node] for node in nodes)
    return max(0, more) // max(1, replicas)


class _Choice:
    """Choice of the replica that goes from one node to another: the legal one that is nearest to a size. What was
    looked at in vain is not looked at again."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._passed: dict[tuple[int, int], tuple[Sized, Sized]] = {}  # from the first up to below the second
        self._spent: set[tuple[int, int]] = set()

    def take(self, giver: int, receiver: int, wanted: int) -> int | None:
        pair, start = (giver, receiver), (wanted, 0)
        if pair in self._spent:
            return None
        low, high = self._passed.get(pair, (start, start))
        if not low <= start <= high:
            low = high = start
        smaller = self._first_legal(self._projection.below(giver, low), giver, receiver)
        larger = self._first_legal(self._projection.from_size(giver, high), giver, receiver)
        self._passed[pair] = _behind(smaller) if smaller else SMALLEST, larger or LARGEST
        if smaller is None and larger is None:
            self._spent.add(pair)
            return None
        if larger is None or (smaller is not None and wanted - smaller[0] <= larger[0] - wanted):
            assert smaller is not None
            return smaller[1]
        return larger[1]

    def _first_legal(self, replicas: Iterator[Sized], giver: int, receiver: int) -> Sized | None:
        return next((sized for sized in replicas if self._projection.may_move(sized[1], giver, receiver)), None)


def _behind(sized: Sized) -> Sized:
    return sized[0], sized[1] + 1


def even_bytes(projection: Projection) -> None:
    nodes = sorted(projection.receivers)
    mean = _mean(projection.held_bytes, nodes)
    bound = max(BYTES_BOUND, mean * BYTES_PERCENT // 100)
    goal = max(BYTES_BOUND // 2, mean * BYTES_GOAL_PERCENT // 100)
    if not nodes or _spread(projection.held_bytes, nodes) <= bound:
        return
    while (missed_by := _spread(projection.held_bytes, nodes)) > goal:
        if _even_out(projection, nodes, goal, _move_largest):
            continue
        if missed_by <= bound or not _even_out(projection, nodes, goal, _exchange):
            return


Step = Callable[[Projection, list[int], int, int, int], bool]
"""Makes two nodes more even by at most so many bytes. False: it could not."""


def _even_out(projection: Projection, nodes: list[int], goal: int, step: Step) -> bool:
    weights = projection.held_bytes
    for giver in sorted(nodes, key=lambda node: (-weights[node], node)):
        for receiver in sorted(nodes, key=lambda node: (weights[node], node)):
            gap = weights[giver] - weights[receiver]
            if gap <= goal:
                break
            if step(projection, nodes, giver, receiver, gap // 2):
                return True
    return False


def _move_largest(projection: Projection, nodes: list[int], giver: int, receiver: int, most: int) -> bool:
    if not _keeps_counts(projection, nodes, giver, receiver):
        return False
    for size, group in projection.below(giver, (most + 1, 0)):
        if size and projection.may_move(group, giver, receiver):
            projection.move(group, giver, receiver, _holds_more_bytes(giver))
            return True
    return False


def _exchange(projection: Projection, nodes: list[int], giver: int, receiver: int, most: int) -> bool:
    """Move a large replica one way and a small one the other, where the counts allow nothing else."""
    back = _smallest(projection, receiver, giver)
    if back is None:
        return False
    for size, group in projection.below(giver, (most + back[0] + 1, 0)):
        if size <= 2 * back[0]:  # it would move much for little
            return False
        if projection.may_move(group, giver, receiver):
            projection.move(group, giver, receiver, _holds_more_bytes(giver))
            projection.move(back[1], receiver, giver, f"a larger replica of node {giver} goes elsewhere in exchange")
            return True
    return False


def _holds_more_bytes(node: int) -> str:
    return f"node {node} holds more bytes than others"


def _smallest(projection: Projection, giver: int, receiver: int) -> Sized | None:
    found = projection.from_size(giver, SMALLEST)
    return next((sized for sized in found if projection.may_move(sized[1], giver, receiver)), None)


def _keeps_counts(projection: Projection, nodes: list[int], giver: int, receiver: int) -> bool:
    """Tell whether the counts stay within their bound, or get no worse, when a replica moves."""
    held = projection.held
    if held[giver] > held[receiver]:
        return True
    after = {**{node: held[node] for node in nodes}, giver: held[giver] - 1, receiver: held[receiver] + 1}
    return _spread(after, nodes) <= _count_bound(projection, nodes)


def even_leaders(projection: Projection) -> None:
    """Change who is preferred, where that makes the counts of preferred leaders even."""
    nodes = sorted(projection.receivers)
    if not nodes or _spread(projection.led, nodes) <= _bound(projection.led, nodes):
        return
    groups = [
        group
        for group, partition in projection.partitions.items()
        if partition.is_movable and projection.targets[group][0] in projection.receivers
    ]
    chosen = [[node for node in projection.targets[group] if node in projection.receivers] for group in groups]
    before = [projection.targets[group][0] for group in groups]
    leaders, led = list(before), {node: projection.led[node] for node in nodes}
    balance_leaders(chosen, leaders, led)
    for group, was, leader in zip(groups, before, leaders, strict=True):
        if leader != was:
            projection.prefer(group, leader, f"node {was} is preferred by more partitions than others")


def _count_bound(projection: Projection, nodes: list[int]) -> int:
    return _bound(projection.held, nodes)


def _bound(counts: Mapping[int, int], nodes: list[int]) -> int:
    return max(COUNT_BOUND, _mean(counts, nodes) * COUNT_PERCENT // 100)


def _mean(counts: Mapping[int, int], nodes: list[int]) -> int:
    return sum(counts[node] for node in nodes) // len(nodes) if nodes else 0


def _spread(counts: Mapping[int, int], nodes: list[int]) -> int:
    values = [counts[node] for node in nodes]
    return max(values) - min(values)
