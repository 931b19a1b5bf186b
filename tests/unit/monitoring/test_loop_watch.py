"""The longest turn of the loop: what blocks it shows, what only keeps the machine busy does not."""

from __future__ import annotations

import asyncio
import time

from node.monitoring.loop_watch import PERIOD_S, LoopWatch


async def test_a_turn_that_blocks_is_seen() -> None:
    watch = LoopWatch()
    watch.start()
    await asyncio.sleep(0.05)
    until_s = time.thread_time() + 0.2
    while time.thread_time() < until_s:
        pass
    await asyncio.sleep(0.05)
    watch.stop()
    assert watch.longest_s > 0.1
    assert watch.longest_ever_s == watch.longest_s


def test_time_that_others_used_is_not_the_loops() -> None:
    watch = LoopWatch()
    watch.note(late_s=5.0, used_s=0.003, now_s=0.0)
    assert watch.longest_s == 0.003


def test_a_longest_turn_is_told_for_a_period_and_then_forgotten() -> None:
    watch = LoopWatch()
    watch._period_ends_s = PERIOD_S
    watch.note(0.4, 0.4, 1.0)
    watch.note(0.1, 0.1, PERIOD_S + 1)
    assert watch.longest_s == 0.4
    watch.note(0.2, 0.2, 2 * PERIOD_S + 1)
    watch.note(0.1, 0.1, 2 * PERIOD_S + 2)
    assert watch.longest_s == 0.2
    assert watch.longest_ever_s == 0.4
