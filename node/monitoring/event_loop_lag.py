"""Length of the event loop's turns: during one nobody else is served, and heartbeats wait.

The problem: the loop itself does not report it, and a clock around each callback would cost every event. So a timer
asks to be called every INTERVAL_S; its delay is the rest of the turn that kept it waiting. The rule: a machine that is
busy with other processes is not blamed on this one: no more is counted than the processor time that the loop's thread
used since the timer before.

A loop that has next to nothing to do is asked less often, since waking it is most of what an idle node does. While the
thread uses less than INTERVAL_S between two timers, no turn can have been longer, and nothing more is hidden than
otherwise; of the first turn that is longer, QUIET_S may be.

Rejected: asyncio's debug mode, which writes lines and times each callback.
"""

from __future__ import annotations

import asyncio
import time

INTERVAL_S = 0.02
"""Time between timers: a turn may hide so much of its length."""

QUIET_S = 0.1
"""Time between timers after a quiet time, in which the thread used less than QUIET_SHARE of a core."""
QUIET_SHARE = 0.1

PERIOD_S = 30.0
"""Length of a period. The longest turn of this period and of the one before is told, so that a scraper misses none."""


class LoopWatch:
    def __init__(self) -> None:
        self.longest_ever_s = 0.0
        self._longest_s = 0.0
        self._before_s = 0.0
        self.interval_s = INTERVAL_S
        self._due_s = 0.0
        self._period_ends_s = 0.0
        self._used_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def longest_s(self) -> float:
        """Longest turn of the last half minute at least, and of no more than a whole one."""
        return max(self._longest_s, self._before_s)

    def start(self) -> None:
        self._period_ends_s = asyncio.get_running_loop().time() + PERIOD_S
        self._used_s = time.thread_time()
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + self.interval_s
        self._timer = loop.call_at(self._due_s, self._called)

    def _called(self) -> None:
        now_s, used_s = asyncio.get_running_loop().time(), time.thread_time()
        late_s, turned_s = now_s - self._due_s, used_s - self._used_s
        self.note(late_s, turned_s, now_s)
        self.interval_s = QUIET_S if turned_s < QUIET_SHARE * (self.interval_s + late_s) else INTERVAL_S
        self._used_s = used_s
        self._wait()

    def note(self, late_s: float, used_s: float, now_s: float) -> None:
        """Note a timer: its delay, and the thread's processor time since the one before."""
        if now_s >= self._period_ends_s:
            self._before_s, self._longest_s = self._longest_s, 0.0
            self._period_ends_s = now_s + PERIOD_S
        turn_s = max(0.0, min(late_s, used_s))
        self._longest_s = max(self._longest_s, turn_s)
        self.longest_ever_s = max(self.longest_ever_s, turn_s)
