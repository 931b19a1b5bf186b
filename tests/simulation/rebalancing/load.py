"""The usual clients, and an operator that lets partitions move meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.metadata import LogRecord, cancel_moves, reassign
from cluster.raft.membership.configuration import Configuration, founding
from cluster.raft.membership.quorum import Quorum
from tests.simulation.moving.load import bears_a_loss
from tests.simulation.workload.load import ClusterLoad

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

MOVE_EVERY_S = 0.5
CANCELLED = 0.15
"""Share of the operator's looks at which all moves are called back."""


class RebalancedLoad(ClusterLoad):
    def start(self) -> None:
        super().start()
        self._schedule.every(MOVE_EVERY_S, self._move)

    def _move(self) -> None:
        schedule, randomness = self._schedule, self._schedule.randomness
        if not self.admin.has_set_up or not self.admin.is_done or schedule.somebody_lacks_memory:
            return
        if randomness.random() < CANCELLED:
            schedule.count("cancel")
            self.admin.ask(cancel_moves())
            return
        log: LogRecord = randomness.choice(self.admin.logs())
        partition = randomness.choice(log.partitions)
        target = randomness.sample(schedule.node_ids, len(partition.replicas))
        schedule.count("aimed")
        self.admin.ask(reassign([(partition.group, 0, target)]))

    # ---- nodes that lose their disks

    def can_lose(self, node: SimNode) -> bool:
        return super().can_lose(node) and all(
            bears_a_loss(configuration, node.id)
            for group in self._partitions
            for configuration in self._in_force(group)
        )

    def _in_force(self, group_id: int) -> list[Configuration]:
        """Configurations that may decide: the latest committed one, and those that running replicas have."""
        judge: Any = self._schedule.judges[group_id]
        groups = [node.multiraft.groups.get(group_id) for node in self._schedule.nodes.values() if node.is_running]
        held = [group.configuration for group in groups if group is not None and group.configuration is not None]
        committed = judge.latest if judge.configurations else self._founding(group_id)
        return [committed, *(one for one in held if one.version > committed.version)]

    def _founding(self, group_id: int) -> Configuration:
        """The first configuration of a group of which nobody has committed anything."""
        partitions = (partition for log in self.admin.logs() for partition in log.partitions)
        made = next((one.founders for one in partitions if one.group == group_id), None)
        return founding(made or self._schedule.judges[group_id].members)

    # ---- the end

    def begin_healing(self, healthy: Sequence[SimNode]) -> None:
        super().begin_healing(healthy)
        self.admin.ask(cancel_moves())

    def _does_its_duty(self, group_id: int, nodes: Sequence[SimNode]) -> bool:
        clients = self._partitions[group_id]
        sound = frozenset(node.id for node in nodes if clients.is_sound(node))
        if not all(Quorum(configuration).is_reached(sound) for configuration in self._in_force(group_id)):
            return True  # no majority: nothing can be asked of it
        return super()._does_its_duty(group_id, nodes) and self._is_settled(group_id, nodes)

    def _is_settled(self, group_id: int, nodes: Sequence[SimNode]) -> bool:
        """Nothing moves, and nobody has a replica that has no place."""
        for node in nodes:
            found = node.view.group(group_id)
            if found is None or found[1].move is not None or found[1].target:
                return False
            held = node.multiraft.groups.get(group_id)
            wanted = found[1].replica_on(node.id)
            if (held is None) != (wanted is None) or (held and wanted and held.birth != wanted.birth):
                return False
        return True


def usual_load(schedule: Schedule) -> ClusterLoad:
    return (RebalancedLoad if schedule.plan.rebalances else ClusterLoad)(schedule)
