"""Pace of copies: as fast as the node's limit allows, and slower while clients feel it.

The problem: whoever copies as fast as it can makes the producers of all other partitions wait, and a fixed low rate
makes moves take hours. The rule: four times a second this node looks how long its turns take, since every event waits
for one or two of them. Long turns take three tenths of the pace away, short ones give a little back.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.raft.snapshot.bandwidth import SendBudget

LOOK_EVERY_S = 0.25

BUSY_TURN_S = 0.025
"""Length of a turn, on average over a look, that clients feel. One that syncs a disk takes some milliseconds."""

Turns = Callable[[], tuple[int, float]]
"""Turns of the Raft loop since the start, and the seconds that they took."""


class CopyPace:
    def __init__(self, budget: SendBudget, turns: Turns) -> None:
        self._budget = budget
        self._turns = turns
        self._before = turns()
        self._looked_at = 0.0

    def look(self, now: float) -> None:
        """Adapt the pace to the turns since the last look. Called while this node copies."""
        if now - self._looked_at < LOOK_EVERY_S:
            return
        count, seconds = self._turns()
        turns, took = count - self._before[0], seconds - self._before[1]
        is_recent = now - self._looked_at < 4 * LOOK_EVERY_S
        self._before, self._looked_at = (count, seconds), now
        if is_recent and turns:
            self._budget.adapt(is_busy=took / turns > BUSY_TURN_S)
