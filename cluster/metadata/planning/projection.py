"""The cluster as it will be when a plan has been carried out, while the plan is being made.

The rules: a replica goes only to a node that is active, up, and told how full it is, and never above the mark for
targets, with all that is on its way there; space counts as free for it only when nothing has it any more. A node whose
disk is relieved gets nothing in that plan, not even what was taken from it. What moves twice while the plan is made
moves once in the plan, from where it is to where it ends, and the reason told is one for which it ends there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from cluster.metadata.placement import leader_of, least_crowded, most_room_first, rack_of
from cluster.metadata.planning.balance_input import (
    REPORT_LIMIT_S,
    BalanceInput,
    NodeLoad,
    PartitionLoad,
)
from cluster.metadata.planning.plan import BalancePlan, Reassignment
from cluster.metadata.types import BalanceSettings

FILL_STEPS = 20
"""Steps in which disks are compared: nodes that differ by less than 5 % of their disks are as full as each other."""

MOST_OBSTACLES = 20

FOLLOWS = "preferred leaders follow other moves of this plan"

Sized = tuple[int, int]
"""(bytes of one replica, group)"""


class Projection:
    def __init__(self, load: BalanceInput, settings: BalanceSettings) -> None:
        self.settings = settings
        self.nodes: dict[int, NodeLoad] = {node.node: node for node in sorted(load.nodes, key=lambda one: one.node)}
        self.racks = {node.node: node.rack for node in load.nodes if node.rack}
        self.partitions: dict[int, PartitionLoad] = {
            one.group: one for one in sorted(load.partitions, key=lambda one: one.group)
        }
        self.targets: dict[int, tuple[int, ...]] = {}
        self.held: Counter[int] = Counter()
        self.held_bytes: Counter[int] = Counter()
        self.led: Counter[int] = Counter()
        self.obstacles: dict[str, None] = {}
        self._coming: Counter[int] = Counter()
        self._going: Counter[int] = Counter()
        self._touched: dict[int, None] = {}
        self._whys: dict[tuple[int, int | None], str] = {}  # group and giver, in the order of the plan
        self._movable: dict[int, list[Sized]] = {node: [] for node in self.nodes}
        for partition in self.partitions.values():
            self._enter(partition)
        for sized in self._movable.values():
            sized.sort()
        self.receivers = {node for node, told in self.nodes.items() if takes_replicas(told)}
        self.relieved: set[int] = set()
        """Nodes that get nothing: their disks are above the mark, or were before this plan."""

    def _enter(self, partition: PartitionLoad) -> None:
        target = self.targets[partition.group] = partition.target or partition.replicas
        self.led[target[0]] += 1
        for node in target:
            self.held[node] += 1
            self.held_bytes[node] += partition.size_bytes
            if node not in partition.replicas:
                self._coming[node] += partition.size_bytes
            elif partition.is_movable and node in self._movable:
                self._movable[node].append((partition.size_bytes, partition.group))

    # -- looking

    def movable(self, node: int) -> list[Sized]:
        """Replicas on a node that may move, the smallest first."""
        return list(self._movable[node])

    def from_size(self, node: int, size: Sized) -> Iterator[Sized]:
        """Replicas on a node that may move, from a size on."""
        sized = self._movable[node]
        return (sized[at] for at in range(bisect_left(sized, size), len(sized)))

    def below(self, node: int, size: Sized) -> Iterator[Sized]:
        """Replicas on a node that may move and are smaller, the largest first."""
        sized = self._movable[node]
        return (sized[at] for at in range(bisect_left(sized, size) - 1, -1, -1))

    def needed_bytes(self, node: int) -> int:
        """Bytes that a node's disk needs when all has been carried out, and what is dead has been given back."""
        told = self.nodes[node]
        return told.used_bytes - told.garbage_bytes + self._coming[node] - self._going[node]

    def fits(self, group: int, node: int) -> bool:
        """Tell whether a node's disk takes a replica and stays below the mark for targets."""
        told, partition = self.nodes[node], self.partitions[group]
        if node in self.relieved:
            return False
        if not told.capacity_bytes or node in partition.replicas:
            return True
        after = told.used_bytes + self._coming[node] + partition.size_bytes
        return after * 100 <= told.capacity_bytes * self.settings.disk_target

    def can_have(self, group: int, node: int) -> bool:
        """Tell whether a node can get a replica, or keep the one that it has."""
        if node in self.partitions[group].replicas and self.is_above_mark(node):
            return False
        return node in self.receivers and self.fits(group, node)

    def is_above_mark(self, node: int) -> bool:
        """Tell whether a node takes replicas, and its disk needs more than the mark."""
        told = self.nodes[node]
        if not takes_replicas(told) or not told.capacity_bytes:
            return False
        return self.needed_bytes(node) * 100 > told.capacity_bytes * self.settings.disk_high

    def may_move(self, group: int, giver: int, receiver: int) -> bool:
        """Tell whether a replica can go to a node, and no rack is more crowded for it."""
        target = self.targets[group]
        if receiver in target or receiver not in self.receivers or not self.fits(group, receiver):
            return False
        rack, left = rack_of(self.racks, receiver), self.crowd(group)
        if rack == (was := rack_of(self.racks, giver)):
            return True
        return left[rack] <= left[was] - 1

    def crowd(self, group: int) -> Counter[str | int]:
        """Replicas of a group by rack."""
        return Counter(rack_of(self.racks, node) for node in self.targets[group])

    def best_receiver(self, group: int, giver: int, among: Collection[int] | None = None) -> int | None:
        """The node to which a replica should go from `giver`; None: there is none."""
        target = self.targets[group]
        others = [node for node in target if node != giver]
        found = [
            node
            for node in (self.receivers if among is None else among)
            if node in self.receivers and node not in target and self.fits(group, node)
        ]
        if not found:
            return None
        return min(
            least_crowded(found, others, self.racks),
            key=lambda node: most_room_first(node, self.held, self.led, self._fill(node)),
        )

    def _fill(self, node: int) -> int:
        told = self.nodes[node]
        if not told.capacity_bytes:
            return 0
        return (told.used_bytes + self._coming[node]) * FILL_STEPS // told.capacity_bytes

    # -- deciding

    def move(self, group: int, giver: int, receiver: int, why: str) -> None:
        """Put a replica elsewhere. The leadership that it was preferred for goes to the member with the fewest."""
        partition, target = self.partitions[group], self.targets[group]
        size = partition.size_bytes
        for node, step in ((giver, -1), (receiver, 1)):
            self.held[node] += step
            self.held_bytes[node] += step * size
            if node in partition.replicas:
                self._going[node] -= step * size
            else:
                self._coming[node] += step * size
        sized = self._movable.get(giver, [])
        at = bisect_left(sized, (size, group))
        if at < len(sized) and sized[at] == (size, group):
            del sized[at]
        insort(self._movable[receiver], (size, group))
        members = tuple(receiver if node == giver else node for node in target)
        if target[0] == giver:
            self.led[giver] -= 1
            leader = leader_of(members, self.held, self.led)
            self.led[leader] += 1
            members = (leader, *(node for node in members if node != leader))
        self.targets[group] = members
        self._touched.setdefault(group)
        self._whys.pop((group, receiver), None)  # it stays where it was, after all
        if giver in partition.replicas:
            self._whys[group, giver] = why

    def prefer(self, group: int, leader: int, why: str) -> None:
        """Put the leadership elsewhere, and no bytes."""
        members = self.targets[group]
        self.led[members[0]] -= 1
        self.led[leader] += 1
        self.targets[group] = (leader, *(node for node in members if node != leader))
        self._touched.setdefault(group)
        self._whys[group, None] = why

    def obstacle(self, told: str) -> None:
        """Note what the plan cannot do. Of many the first are told, which are enough to begin with."""
        if len(self.obstacles) < MOST_OBSTACLES:
            self.obstacles.setdefault(told)

    def plan(self) -> BalancePlan:
        """The plan of all that was decided. What came back to where it was is no part of it."""
        return BalancePlan(tuple(self._reassignments()), tuple(self.obstacles))

    def _reassignments(self) -> Iterable[Reassignment]:
        whys: dict[int, str] = {}
        for (group, _), why in self._whys.items():
            whys.setdefault(group, why)
        for group in self._touched:
            whys.setdefault(group, FOLLOWS)
        for group, why in whys.items():
            partition, target = self.partitions[group], self.targets[group]
            if target != partition.replicas:
                yield Reassignment(group, partition.configuration_version, target, why)


def takes_replicas(node: NodeLoad) -> bool:
    return not node.leaving and not node.away_s and node.report_age_s <= REPORT_LIMIT_S
