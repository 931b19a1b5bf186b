"""Where the leader's CPU time goes: a cluster of its own under load, each node with the sampling profiler inside.

Apart from the measured cells, because even a sampler costs a little.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.cell import measure
from benchmarks.matrix import FSYNC, MATRIX
from benchmarks.peers.base import running
from benchmarks.peers.holdfast import Holdfast

PROFILER = Path(__file__).parent / "profiling"
SECONDS = 8.0
SHOWN = 25
PERCENT = 100


def leader(directory: Path, row_name: str = "1KiB") -> list[str]:
    """Lines of text: the dearest functions of the process that used most CPU, which under load is the leader's."""
    output = directory / "profile"
    output.mkdir()
    paths = [str(PROFILER.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"HOLDFAST_PROFILE": str(output), "PYTHONPATH": os.pathsep.join(paths)}
    row = next(row for row in MATRIX if row.name == row_name)
    with running(Holdfast("fsync", directory, environment)) as peer:
        cell = measure(row, FSYNC, {FSYNC.peer: peer}, SECONDS)
    found = [json.loads(path.read_text()) for path in output.glob("*.json")]
    if not found:
        return ["profile: the nodes wrote none (they must end by SIGTERM and run Python's exit handlers)"]
    return _describe(max(found, key=lambda profile: profile["process_s"]), cell.events_per_s)


def _describe(profile: dict[str, Any], events_per_s: float) -> list[str]:
    whole_s = profile["process_s"]
    lines = [
        f"profile of the leader (1 KiB, fsync, {events_per_s:,.0f} events/s while profiled): {whole_s:.1f} s of CPU, "
        f"of these the loop's thread {profile['main_thread_s']:.1f} s, other threads {profile['other_threads_s']:.1f} s"
    ]
    views = (("by line of the innermost Python frame", "self_s"), ("by function with all it calls", "total_s"))
    for title, key in views:
        top = sorted(profile[key].items(), key=lambda item: -item[1])[:SHOWN]
        share = ", ".join(f"{name} {seconds * PERCENT / whole_s:.1f}%" for name, seconds in top)
        lines.append(f"profile {title}, share of the process's CPU: {share}")
    return lines
