"""Many runs, one after the other: which workloads meet which faults.

`SHORT` is for every change of the code: each of its cells takes seconds. `FULL` is for a night: every workload under
every fault alone, then compounds, longer, on three nodes and on five.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos import archive
from chaos.checkers.verdict import Result
from chaos.faults.catalogue import CATALOGUE, NEED_TRANSACTIONS
from chaos.run import CannotRun, Plan, Run, Say
from chaos.workloads.catalogue import WORKLOADS

SHORT_S, FULL_S = 8.0, 90.0


@dataclass(frozen=True)
class Cell:
    workload: str
    faults: tuple[str, ...]
    nodes: int = 3

    def plan(self, seconds: float, seed: int) -> Plan:
        return Plan(self.workload, self.faults, seconds, seed, self.nodes)


SHORT: tuple[Cell, ...] = (
    Cell("W1", ("F1",)),
    Cell("W1", ("F2", "F3")),
    Cell("W1", ("F13",)),
    Cell("W2", ("F1", "F16")),
    Cell("W2", ("F4", "F7")),
    Cell("W2", ("F5", "F8")),
    Cell("W3", ("F1", "F16")),
    Cell("W4", ("F3", "F16")),
    Cell("W1", ("F9",)),
)

COMPOUNDS: tuple[tuple[str, ...], ...] = (
    ("F1", "F2"), ("F1", "F3"), ("F2", "F4"), ("F3", "F16"), ("F5", "F1"), ("F7", "F1"), ("F8", "F2"), ("F13", "F1"),
    ("F18", "F3"), ("F6", "F1"), ("F14", "F1"),
)  # fmt: skip


def full() -> Iterator[Cell]:
    single: list[tuple[str, ...]] = [(fault,) for fault in CATALOGUE if fault != "F0"]
    for workload, faults in itertools.product(WORKLOADS, single):
        if WORKLOADS[workload].is_transactional or not NEED_TRANSACTIONS & set(faults):
            yield Cell(workload, faults)
    for place, (workload, faults) in enumerate(itertools.product(WORKLOADS, COMPOUNDS)):
        yield Cell(workload, faults, nodes=3 if place % 2 else 5)


def run(
    cells: Sequence[Cell], below: Path, *, seconds: float, seed: int, say: Say, done: Callable[[Run], None]
) -> Result:
    """The worst of all cells. Each has a seed of its own, counted from the first; none stops the others. One that
    cannot be run here has proven nothing."""
    worst = Result.PASSED
    for place, cell in enumerate(cells):
        plan = cell.plan(seconds, seed + place)
        say(f"{place + 1} of {len(cells)}: {plan.command}")
        try:
            plan.check()
        except CannotRun as error:
            say(f"  not run: {error}")
            worst = max(worst, Result.NODATA, key=list(Result).index)
            continue
        directory = archive.new_directory(below, plan)
        one = archive.run_and_report(plan, directory, say=lambda text: None)
        worst = max(worst, one.judgement.result, key=list(Result).index)
        done(one)
    return worst
