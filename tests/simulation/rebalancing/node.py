"""A node whose partitions move: replicas are opened and erased, and moves driven, by the code of production.

Reports of moves reach the metadata leader over the links, late, or not at all.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cluster.features import Features
from cluster.metadata import encode_command
from cluster.metadata.metadata_pb2 import Command
from cluster.raft import METADATA_GROUP, Outcome, RaftError, RaftGroup
from cluster.raft.membership.configuration import Replica
from cluster.versions import MEMBERS_CHANGE_FROM
from node.movement.driver import LOOK_AT_LED_S, MoveDriver
from tests.simulation.watched_groups import WatchedMultiRaft
from tests.simulation.world.nodes import SimNode

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule


class RebalancedMultiRaft(WatchedMultiRaft):
    """The judge of a group hears of its replicas that begin, and of those that are erased."""

    def open_group(self, group_id: int, members: Any, machine: Any, **options: Any) -> RaftGroup:
        group = super().open_group(group_id, members, machine, **options)
        if group_id != METADATA_GROUP and group.remembers_nothing and not group.log_store.mute:
            self._judge(group_id).opens(Replica(self.node.id, group.birth))
        return group

    def close_group(self, group_id: int, *, erase: bool, over: bool = False) -> None:
        if erase and over:
            self._judge(group_id).erases(Replica(self.node.id, self.groups[group_id].birth))
            self.node.readmission.group_ended(group_id)
            self.node.schedule.count("erased")
        super().close_group(group_id, erase=erase, over=over)

    def _judge(self, group_id: int) -> Any:
        return self.node.schedule.judges[group_id]


class ReportingDriver(MoveDriver):
    """The driver, whose reports the node carries, and whose configurations are counted."""

    node: RebalancedNode

    def _propose(self, command: Command) -> None:
        self.node.report(command)

    def _proposed(self, entry: str, _: Outcome) -> None:
        self.node.schedule.count(f"move: {entry}")


class RebalancedNode(SimNode):
    multiraft_type = RebalancedMultiRaft
    begins_current = False

    def _features(self) -> Features:
        return Features(heard=MEMBERS_CHANGE_FROM)

    def _compose(self) -> None:
        metadata = self.schedule.judges.get(METADATA_GROUP)
        self._known_at_start = 0 if metadata is None else metadata.highest
        super()._compose()
        peers: Any = self
        self.moves = ReportingDriver(
            self.multiraft, self.view, _nobody_asks, peers, self.features, lambda: self.metadata.is_leader
        )
        self.moves.node = self
        self.after(self.schedule.now, self._confirm)
        self.after(self.schedule.now, self._drive)

    def _confirm(self) -> None:
        """Take the metadata for current once all is applied that was committed when this life began."""
        if self.metadata.applied_index >= self._known_at_start:
            self.replicas.metadata_are_current()
        else:
            self.after(self.schedule.now + self.schedule.randomness.uniform(0.01, 0.3), self._confirm)

    def _drive(self) -> None:
        if self.schedule.now >= self._paused_until:
            self.moves.drive(self.schedule.now)
        self.after(self.schedule.now + self.schedule.randomness.uniform(0.3, 1.0) * LOOK_AT_LED_S, self._drive)

    # ---- reports

    def report(self, command: Command) -> None:
        leaders = [node for node in self.schedule.nodes.values() if node.leads(METADATA_GROUP)]
        if not leaders:
            return
        leader = self.schedule.randomness.choice(leaders)
        self.schedule.count("reported")
        if leader is self:
            self.take_report(command)
        else:
            self.schedule.carry(self.id, leader.id, lambda node: node.take_report(command))

    def take_report(self, command: Command) -> None:
        with contextlib.suppress(RaftError):
            self.metadata.propose(encode_command(command), _not_waited_for)

    # ---- as the network, for the driver

    def leader_of(self, group: int) -> int | None:
        leads = (node.id for node in self.schedule.nodes.values() if node.leads(group))
        return next((node for node in leads if self.is_up(node)), None)

    def is_up(self, node: int) -> bool:
        return node == self.id or self.schedule.links[self.id, node].is_up

    def client(self, node: int) -> Any:
        raise ConnectionError("no leader lags for so long here")


async def _nobody_asks(command: Command) -> Any:
    raise AssertionError(f"reports go by `report`: {command}")


def _not_waited_for(outcome: Outcome) -> None:
    """A report is repeated until the metadata show it."""


def usual_node(schedule: Schedule, node_id: int) -> SimNode:
    return (RebalancedNode if schedule.plan.rebalances else SimNode)(schedule, node_id)
