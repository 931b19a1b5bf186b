"""No peer can crash the process or raise an exception in it: random misbehaviour, in a process of its own."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
RUNS = 400


def test_random_misbehaviour_is_survived() -> None:
    first = random.randrange(2**31)
    command = [sys.executable, "-m", "tests.unit.amqp.hostile", str(first), str(RUNS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    last = done.stdout.strip().rsplit("\n", 1)[-1]
    assert done.returncode == 0, f"{last}: exit {done.returncode}\n{done.stderr[-3000:]}"
    assert last == f"seed {first + RUNS - 1}"
    assert done.stderr == "", "a peer must not be able to write to our stderr"
