"""A wall clock that is wrong on order."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from chaos.clock import OffsetClock

DAY_S = 86_400
TELL = (
    "import sys, time; from time import time_ns\n"
    "for _ in sys.stdin: print(time_ns() / 1e9, time.time(), time.monotonic(), flush=True)"
)


def test_a_process_is_told_another_time_at_once_and_keeps_its_monotonic_clock(tmp_path: Path) -> None:
    clock = OffsetClock(tmp_path / "clock")
    process = subprocess.Popen(
        [sys.executable, "-c", TELL], env={**os.environ, **clock.environment()}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    for days in (0, 30, -3, 0):
        clock.set_wrong(days * DAY_S * 1000)
        before = time.time(), time.monotonic()
        process.stdin.write("\n")
        process.stdin.flush()
        wall, true, monotonic = map(float, process.stdout.readline().split())
        after = time.time(), time.monotonic()
        assert before[0] - 0.01 <= wall - days * DAY_S <= after[0] + 0.01
        assert before[0] - 0.01 <= true <= after[0] + 0.01
        assert before[1] <= monotonic <= after[1]
    process.stdin.close()
    process.wait()
    process.stdout.close()
