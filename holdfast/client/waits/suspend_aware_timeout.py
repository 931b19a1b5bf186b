"""A bound on waits that does not count the time in which this process stood still.

Problem: a process that is stopped for longer than a wait may last finds its time over when it goes on, while the
answer lies unread in its socket. `asyncio.timeout` gives it up even if the loop reads it in the same turn.
Rules never broken: of a standstill one step counts at most; after one there is a moment to read what has arrived.
Rejected: one clock per loop that counts standstills: it would have to tick also while nobody waits.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

STEP_S = 1.0
LATE_S = 0.5  # a step that ends so late is a standstill; and so long is the moment after one


class Patience:
    """Like `asyncio.timeout`, and may be entered again: what was waited before counts."""

    def __init__(self, bound_s: float) -> None:
        self.spent_s = 0.0
        self._bound_s = bound_s
        self._may_read_on = True  # once: a program that blocks its loop for ever must not wait for ever

    @property
    def left_s(self) -> float:
        return self._bound_s - self.spent_s

    async def __aenter__(self) -> Patience:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._begin_step(self.left_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._count_step()
        await self._timeout.__aexit__(kind, error, trace)

    def _begin_step(self, most_s: float) -> None:
        self._begun_s, self._step_s = self._loop.time(), max(0.0, min(STEP_S, most_s))
        self._timer = self._loop.call_at(self._begun_s + self._step_s, self._end_step)

    def _count_step(self) -> bool:
        """Count the step, and return True if this process stood still in it."""
        passed_s = self._loop.time() - self._begun_s
        stood_still = passed_s - self._step_s > LATE_S
        self.spent_s += self._step_s if stood_still else passed_s
        return stood_still

    def _end_step(self) -> None:
        stood_still = self._count_step()
        if self.left_s > 0:
            self._begin_step(self.left_s)
        elif stood_still and self._may_read_on:
            self._may_read_on = False
            self._begin_step(LATE_S)
        else:
            self._begun_s = self._loop.time()
            self._timeout.reschedule(self._begun_s)
