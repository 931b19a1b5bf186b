"""Nodes and clients of schedules in which the metadata's own state machine says what moves, and the operators there.

* `Scaling`: groups are spread over nodes that are new, and brought back to the first ones, again and again.
* `ReplacingByMoves`: a node is lost for good, and its replicas go elsewhere. In the end it comes back as it was.
* `ToAndFro`: a replica leaves a node, and comes back to it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cluster.metadata import PartitionRecord
from cluster.raft import RaftGroup
from cluster.raft.membership.changes import NextStep
from tests.simulation.moving.board import GroupWishes
from tests.simulation.moving.load import MovingLoad
from tests.simulation.moving.node import MovingNode
from tests.simulation.moving.targets import TargetBoard, TargetedGroup

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

READ_AT_ONCE = 3
"""Commands that a node may read before it looks what they mean: two moves of a group may look like one."""

FIRST_NODES = 3
"""Nodes that are there when a cluster begins which is to be scaled."""


class TargetNode(MovingNode):
    is_away = False
    """Nobody starts it."""

    def start(self) -> None:
        if not self.is_away:
            super().start()

    def _read_at_once(self) -> int:
        return self.schedule.randomness.randint(1, min(READ_AT_ONCE, self.board.length - self.seen))

    def _end(self, step: NextStep, group: RaftGroup, known: GroupWishes) -> None:
        """As the driver of a node does; what it reports is on its way for a while."""
        latest, board = group.configuration, self.board
        assert isinstance(board, TargetBoard)
        assert latest is not None
        if not group.is_settled or latest.version <= known.configuration.version or board.is_held:
            return
        self.schedule.count("reported")
        number, after_s = group.group_id, self.schedule.randomness.choice((0.0, 0.01, 0.3, 2.0))
        self.schedule.at(self.schedule.now + after_s, lambda: board.report(number, latest))


class Operators:
    """Those that state targets; each look is one decision, or none."""

    first_nodes: int | None = None
    """Of a cluster's nodes; None: all are there from the start."""

    def __init__(self, load: TargetLoad) -> None:
        self.load = load
        self.schedule: Schedule = load.schedule

    @property
    def board(self) -> TargetBoard:
        return self.load.targets

    def look(self) -> None:
        raise NotImplementedError

    def groups(self) -> dict[int, TargetedGroup]:
        return {group: known for group, known in self.board.now().items() if isinstance(known, TargetedGroup)}

    def resting(self) -> dict[int, PartitionRecord]:
        return {group: known.as_record(group) for group, known in self.groups().items() if known.is_at_rest}

    def aim(self, group: int, nodes: Sequence[int], why: str) -> None:
        self.schedule.trace(f"{why}: group {group} is to be on {nodes}")
        self.schedule.count(why)
        self.board.aim(group, nodes)

    def some(self, nodes: Sequence[int], count: int) -> list[int]:
        return self.schedule.randomness.sample(list(nodes), count)

    def sometimes_cancels(self, share: float) -> None:
        for group, known in self.groups().items():
            if not known.is_at_rest and self.schedule.randomness.random() < share:
                self.schedule.count("cancel")
                self.board.cancel(group)


class Scaling(Operators):
    first_nodes = FIRST_NODES

    def __init__(self, load: TargetLoad) -> None:
        super().__init__(load)
        self._is_wide = False

    def look(self) -> None:
        resting = self.resting()
        if len(resting) < len(self.board.founders):
            self.sometimes_cancels(0.01)
            return
        if self.schedule.somebody_lacks_memory:
            return
        self._is_wide = not self._is_wide
        nodes = self.schedule.node_ids if self._is_wide else self.schedule.node_ids[:FIRST_NODES]
        for group, record in resting.items():
            self.aim(group, self.some(nodes, len(record.replicas)), "scaled up" if self._is_wide else "scaled down")


class ReplacingByMoves(Operators):
    """One node at a time is away for good, so each group can do without it."""

    def __init__(self, load: TargetLoad) -> None:
        super().__init__(load)
        self.away: TargetNode | None = None

    def look(self) -> None:
        if self.away is None:
            self._lose()
        elif self.is_replaced() and self.schedule.randomness.random() < 0.5:
            self.comes_back()
        else:
            self._move_elsewhere()

    def _lose(self) -> None:
        self.away = node = self.schedule.nodes[self.schedule.randomness.choice(self.schedule.node_ids)]
        self.schedule.trace(f"{node.id} is lost for good")
        self.schedule.count("lost for good")
        self.schedule.faults.crash(node)
        node.is_away = True
        self._move_elsewhere()

    def _move_elsewhere(self) -> None:
        assert self.away is not None
        others = [node for node in self.schedule.node_ids if node != self.away.id]
        for group, known in self.groups().items():
            record = known.as_record(group)
            if self.away.id in record.wanted:
                staying = [node for node in record.wanted if node != self.away.id]
                new = self.some([node for node in others if node not in staying], len(record.wanted) - len(staying))
                self.aim(group, [*staying, *new], "replaced")

    def is_replaced(self) -> bool:
        """No group has a place for it any more."""
        assert self.away is not None
        resting = self.resting()
        return len(resting) == len(self.board.founders) and all(
            self.away.id not in record.replicas for record in resting.values()
        )

    def comes_back(self) -> None:
        assert self.away is not None
        node, self.away = self.away, None
        self.schedule.count("came back")
        node.is_away = False
        self.schedule.start(node)


class ToAndFro(Operators):
    def __init__(self, load: TargetLoad) -> None:
        super().__init__(load)
        self._left: dict[int, tuple[int, ...]] = {}
        """Nodes on which the replicas of a group were before."""

    def look(self) -> None:
        self.sometimes_cancels(0.02)
        if self.schedule.somebody_lacks_memory:
            return
        for group, record in self.resting().items():
            before = self._left.pop(group, None)
            if before is not None:
                self.aim(group, self.some(before, len(before)), "fro")
                continue
            free = [node for node in self.schedule.node_ids if node not in record.replicas]
            count = self.schedule.randomness.randint(1, min(len(free), len(record.replicas)))
            staying = self.some(record.replicas, len(record.replicas) - count)
            self._left[group] = record.replicas
            self.aim(group, [*staying, *self.some(free, count)], "to")


class TargetLoad(MovingLoad):
    def __init__(self, schedule: Schedule, operators: Callable[[TargetLoad], Operators]) -> None:
        self.schedule = schedule
        self._first_nodes = getattr(operators, "first_nodes", None)
        super().__init__(schedule)
        self.operators = operators(self)

    def _new_board(self) -> TargetBoard:
        schedule = self.schedule
        nodes, replicas = schedule.node_ids, [log.replicas for log in schedule.plan.logs]
        self.targets = TargetBoard(nodes, replicas, nodes[: self._first_nodes])
        return self.targets

    def _wish(self) -> None:
        if self.schedule.randomness.random() < 0.05:
            self.board.is_held = not self.board.is_held
        if not self.board.is_held:
            self.operators.look()

    # ---- the end

    def begin_healing(self, healthy: Sequence[Any]) -> None:
        super().begin_healing([node for node in healthy if not node.is_away])
        if isinstance(self.operators, ReplacingByMoves) and self.operators.away is not None:
            self.operators.look()

    def is_healthy(self) -> bool:
        if not super().is_healthy():
            return False
        operators = self.operators
        if not isinstance(operators, ReplacingByMoves) or operators.away is None:
            return True
        self._healthy = [*self._healthy, operators.away]
        operators.comes_back()
        return False
