"""Pace of copies: as fast as the cluster's setting allows, and slower while clients feel it.

The problem: whoever copies as fast as it can makes the producers of all other partitions wait, and a fixed low rate
makes moves take hours. The rules: copies begin slowly. Four times a second a node that sends or takes in copies looks
how long clients wait for it (`client_waits`), and how long its turns are, since every event waits for one or two of
them. When either is too long, three tenths of the pace are taken away; else the pace grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cluster.raft.snapshot.bandwidth import CopyBudgets
from node.movement.client_waits import ClientWaits

LOOK_EVERY_S = 0.25
SAMPLE_EVERY_S = 0.02
CALM_SAMPLE_EVERY_S = 0.5

COPIES_END_S = 1.0
"""Time without a copied byte after which the next copy begins slowly again."""

BUSY_TURN_S = 0.025
"""Length of a turn, on average over a look, that clients feel. One that syncs a disk takes some milliseconds."""

BUSY_WAIT_S = 0.008
BUSY_TIMES = 1.5
"""Clients feel a wait that is longer than this, and so many times as long as while nothing is copied."""

Turns = Callable[[], tuple[int, float]]
"""Turns of the Raft loop since the start, and the seconds that they took."""


class CopyPace:
    def __init__(
        self,
        budgets: CopyBudgets,
        limit: Callable[[], int],
        turns: Turns,
        waits: ClientWaits,
        clock: Callable[[], float],
    ) -> None:
        self._budgets = budgets
        self._limit = limit
        self._turns = turns
        self._waits = waits
        self._clock = clock
        self._before = turns()
        self._look_at = 0.0
        self._copies = False

    async def run(self) -> None:
        """Adapt the pace, until cancelled."""
        while True:
            wait_s = self.look()
            await asyncio.sleep(wait_s)

    def look(self) -> float:
        """Adapt the pace to how clients fare. Returns the time until it has to be looked at again."""
        now = self._clock()
        self._budgets.limit(self._limit())
        copies = now - max(self._budgets.out.used_at, self._budgets.into.used_at) < COPIES_END_S
        if not copies:
            self._budgets.begin_slowly()
        if not copies or not self._copies:
            self._copies, self._before, self._look_at = copies, self._turns(), now + LOOK_EVERY_S
        elif now >= self._look_at:
            self._budgets.adapt(is_busy=self._is_busy())
            self._look_at = now + LOOK_EVERY_S
        self._waits.sample(is_calm=not copies)
        return SAMPLE_EVERY_S if copies else CALM_SAMPLE_EVERY_S

    def _is_busy(self) -> bool:
        count, seconds = self._turns()
        turns, took = count - self._before[0], seconds - self._before[1]
        self._before = (count, seconds)
        if turns and took / turns > BUSY_TURN_S:
            return True
        return self._waits.recent_s() > max(BUSY_WAIT_S, BUSY_TIMES * self._waits.calm_s())
