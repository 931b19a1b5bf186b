"""The longest turn of the loop: what blocks it shows, what only keeps the machine busy does not."""

from __future__ import annotations

import asyncio
import time

from node.monitoring.event_loop_lag import INTERVAL_S, PERIOD_S, QUIET_S, LoopWatch


def _use(cpu_s: float) -> None:
    until_s = time.thread_time() + cpu_s
    while time.thread_time() < until_s:
        pass


async def test_a_turn_that_blocks_is_seen() -> None:
    watch = LoopWatch()
    watch.start()
    await asyncio.sleep(0.05)
    _use(QUIET_S + 0.2)
    await asyncio.sleep(0.05)
    watch.stop()
    assert watch.longest_s > 0.15
    assert watch.longest_ever_s == watch.longest_s


async def test_a_loop_with_little_to_do_is_woken_less_often_and_a_busy_one_as_before() -> None:
    watch = LoopWatch()
    watch.start()
    assert watch.interval_s == INTERVAL_S
    async with asyncio.timeout(30):
        while watch.interval_s != QUIET_S:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(INTERVAL_S)
        while watch.interval_s != INTERVAL_S:
            _use(INTERVAL_S / 4)
            await asyncio.sleep(0)
        while watch.interval_s != QUIET_S:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(INTERVAL_S)
    watch.stop()


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
