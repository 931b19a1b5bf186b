"""A simulated node that coordinates transactions, takes part in them, and has clients of them.

What runs is production code: `CoordinatorReplica` and its markers, participants, and for clients `LeaderCalls` and
`TransactionManager`. It dies at the crash points of that code, too, if the schedule has armed one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from node.client_transactions.coordinator_lookup import Coordinators
from node.client_transactions.transactional_ids import TransactionManager
from node.transaction_coordinator.coordinator_commands import NodeStart
from tests.simulation.checker import Violation
from tests.simulation.transactions.questions import QuestionNetwork, Questions
from tests.simulation.world.nodes import SimNode
from tests.simulation.world.rpc.lives import LIFE, NodeCrashed

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

TICK_S = 0.5

AT_LEAST_S = 0.01
"""Out of touch, when that is seen for the first time."""


class TransactionalNode(SimNode):
    transactions: TransactionManager
    questions: Questions

    def _start(self) -> None:
        super()._start()
        if self.life > 1 and self.is_running:
            self.schedule.load.admin.register_start(self.id, self.life)

    def _compose(self) -> None:
        super()._compose()
        self.questions = Questions(self.schedule)
        self.missing = Missing(self)
        self.network = QuestionNetwork(self.questions, self, self.missing)
        self.replicas.attach(self.network)
        coordinators = Coordinators(self.view, _nobody, _nobody)
        self.transactions = TransactionManager(self.id, self.replicas.calls, coordinators, self._this_start)
        self.after(self.schedule.now + self.schedule.randomness.uniform(0.0, TICK_S), self._tick)

    def _this_start(self) -> NodeStart:
        return NodeStart(self.id, self.incarnation, self.life)

    def _in_life(self, life: int, action: Callable[[], None]) -> None:
        if self.life != life or not self.is_running:
            return
        token = LIFE.set(self.own_life)
        try:
            action()
        except NodeCrashed:
            self.dies()
        finally:
            LIFE.reset(token)

    def dies(self) -> None:
        self.schedule.trace(f"{self.id} dies at a crash point")
        self.crash(lose_unsynced=self.schedule.plan.power_loss)

    def _tick(self) -> None:
        self.after(self.schedule.now + TICK_S, self._tick)
        if self.schedule.now < self._paused_until:
            return
        now_s = self.clock.monotonic()
        self.missing.look(TICK_S)
        for coordinator in self.replicas.coordinators():
            coordinator.tick(now_s)
        for replica in self.replicas.all_open():
            if replica.is_leader:
                replica.taking_part.check(replica.group, now_s)


class Missing:
    """Seconds that a node has been out of touch with each of the others, as it sees it at its ticks."""

    def __init__(self, node: TransactionalNode) -> None:
        self._node = node
        self._lost_s: dict[int, float] = {}

    def look(self, passed_s: float) -> None:
        for peer in self._node.schedule.node_ids:
            if peer != self._node.id and not self._hears(peer):
                self._lost_s[peer] = self._lost_s[peer] + passed_s if peer in self._lost_s else AT_LEAST_S
            else:
                self._lost_s.pop(peer, None)

    def lost_s(self, peer: int) -> float:
        return self._lost_s.get(peer, 0.0)

    def _hears(self, peer: int) -> bool:
        schedule = self._node.schedule
        other, own = schedule.nodes[peer], self._node.id
        stands = all(link.is_up and not link.is_cut for link in (schedule.links[own, peer], schedule.links[peer, own]))
        return stands and other.is_running and schedule.now >= other._paused_until


class CrashPoints:
    """Armed by the schedule, one at a time: who reaches it dies there."""

    def __init__(self, schedule: Schedule, names: Sequence[str]) -> None:
        self._schedule, self._names = schedule, names
        self.armed: set[str] = set()

    def arm(self) -> None:
        """Some other one when the last one was reached."""
        if not self.armed and self._names:
            self.armed.add(self._schedule.randomness.choice(self._names))

    def reached(self, name: str) -> None:
        life = LIFE.get()
        if life is None:
            raise Violation(f"{name} was reached in no node's name")
        if name not in self.armed or not life.node.is_running:
            return
        self.armed.discard(name)
        self._schedule.count(f"crash {name}")
        if asyncio.current_task() is not None:  # else whoever began this, in the node, ends it
            node: Any = life.node
            node.dies()
        raise NodeCrashed


async def _nobody(*_: object) -> Any:
    raise Violation("the coordinators are there, and are made again")
