"""What stands in for parts of a node that a simulated one has of its own: its clock, and its bell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule
    from tests.simulation.world.nodes import SimNode

EPOCH_MS = 1_700_000_000_000
"""When every schedule begins, by the wall clock."""


class NodeClock:
    """Each node's clock has its own zero and runs a little fast or slow; the one for people also jumps."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._zero = schedule.randomness.uniform(1.0, 1e6)
        self._rate = schedule.randomness.uniform(0.97, 1.03)
        skew = schedule.plan.skew_ms
        self.jumped_ms = schedule.randomness.randint(-skew, skew)

    def monotonic(self) -> float:
        return self._zero + self._schedule.now * self._rate

    def to_world(self, at: float) -> float:
        return (at - self._zero) / self._rate + 1e-6

    def wall_ms(self) -> int:
        return EPOCH_MS + self.jumped_ms + int(self._schedule.now * 1000)


class Bell:
    """`node.routing_events.Changes` without a loop: one call soon after, however often it rang."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._rung = False

    def ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._node.after(self._node.schedule.now, self._tell)

    async def wait(self, timeout_s: float) -> None:
        """Nobody is told early: who waits asks again."""
        await asyncio.sleep(timeout_s)

    def _tell(self) -> None:
        self._rung = False
        self._node.replicas.reconcile()
