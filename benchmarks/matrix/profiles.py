"""Profile of the leader's CPU time: a cluster under load, each node with the sampling profiler inside.

It runs apart from the measured cells, because even a sampler costs a little.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.matrix.cell import measure
from benchmarks.matrix.contestants import FSYNC, Contestant
from benchmarks.matrix.rows import Row
from benchmarks.peers.base import PeerFailed, running
from benchmarks.peers.holdfast import Holdfast

PROFILER = Path(__file__).parents[1] / "profiling"
SECONDS = 8.0
SHOWN = 25


@dataclass(frozen=True)
class Profile:
    """The most expensive lines and functions of one process, as shares of its CPU time."""

    title: str
    lines: list[tuple[str, float]]
    functions: list[tuple[str, float]]

    def markdown(self) -> list[str]:
        text = ["## Profile", "", self.title, ""]
        for title, found in (("innermost Python line", self.lines), ("function with all it calls", self.functions)):
            text += [f"| {title} | share |", "| --- | --- |"]
            text += [f"| `{name}` | {share:.1%} |" for name, share in found] + [""]
        return text


def leader(directory: Path, row: Row, contestant: Contestant = FSYNC) -> Profile:
    """Return the profile of the process that used most CPU, which under load is the leader."""
    output = directory / f"profile-{row.name}"
    output.mkdir()
    paths = [str(PROFILER.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"HOLDFAST_PROFILE": str(output), "PYTHONPATH": os.pathsep.join(paths)}
    durability = contestant.peer.removeprefix("holdfast-")
    with running(Holdfast(durability, directory, environment)) as peer:
        (output / "begin").touch()
        cell = measure(row, contestant, {contestant.peer: peer}, SECONDS)
    found = [json.loads(path.read_text()) for path in output.glob("*.json")]
    if not found:
        raise PeerFailed("the nodes wrote none (do they run Python's exit handlers when told to end?)")
    dearest = max(found, key=lambda profile: profile["process_s"])
    title = (
        f'The leader in the row "{row.title}", {contestant.title}, {cell.events_per_s:,.0f} events/s while profiled: '
        f"{dearest['process_s']:.1f} s of CPU, of these the loop's thread {dearest['main_thread_s']:.1f} s, "
        f"other threads {dearest['other_threads_s']:.1f} s."
    )
    return Profile(title, _shares(dearest, "self_s"), _shares(dearest, "total_s"))


def _shares(profile: dict[str, Any], key: str) -> list[tuple[str, float]]:
    top = sorted(profile[key].items(), key=lambda item: -item[1])[:SHOWN]
    return [(name, seconds / profile["process_s"]) for name, seconds in top]
