"""Judge of a partition that moves: of its events, and of its configurations. Its members are those that vote now."""

from __future__ import annotations

from cluster.raft.membership.configuration import Configuration
from tests.simulation.moving.judge import MovingJudge
from tests.simulation.world.events import PartitionJudge


class MovingPartitionJudge(MovingJudge, PartitionJudge):
    def _is_committed_configuration(self, node: int, index: int, configuration: Configuration) -> None:
        super()._is_committed_configuration(node, index, configuration)
        self.members = tuple(sorted({replica.node for replica in self.latest.all_voters}))
