"""Many runs, one after the other: which workloads meet which faults.

`SHORT` is for every change of the code: each of its cells takes seconds. `full` is for a night: every workload meets
every fault alone, then compounds of faults. Its cells take longer, and run on three nodes or on five.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chaos import archive
from chaos.cannot_run import BrokenOff
from chaos.checkers.verdict import Result
from chaos.cluster.provisioned import cluster as clusters
from chaos.cluster.provisioned.cluster import Provisioned
from chaos.faults.catalogue import CATALOGUE, NEED_TRANSACTIONS, why_not_there
from chaos.run import CannotRun, ChaosRun, RunPlan, Say
from chaos.workloads.catalogue import WORKLOADS

SHORT_S, FULL_S = 8.0, 90.0
KEYS = 8
WHOLE_WITHIN_S = 120.0
"""Time that the cluster of an inventory has between two runs to become whole."""


@dataclass(frozen=True)
class Trial:
    workload: str
    faults: tuple[str, ...]
    nodes: int = 3
    keys: int = 0

    def plan(self, seconds: float, seed: int) -> RunPlan:
        return RunPlan(self.workload, self.faults, seconds, seed, self.nodes, keys=self.keys)

    def __str__(self) -> str:
        where = f" on {self.nodes} nodes" if self.nodes != 3 else ""
        return f"{self.workload} {'+'.join(self.faults)}{where}{' by keys' if self.keys else ''}"


Placed = tuple[int, Trial]
"""A cell with its place in the whole matrix, from 0."""


SHORT: tuple[Trial, ...] = (
    Trial("W1", ("F1",)),
    Trial("W1", ("F2", "F3"), keys=KEYS),
    Trial("W1", ("F13",)),
    Trial("W2", ("F1", "F16")),
    Trial("W2", ("F4", "F7")),
    Trial("W2", ("F5", "F8")),
    Trial("W3", ("F1", "F16")),
    Trial("W4", ("F3", "F16")),
    Trial("W1", ("F9",)),
    Trial("W1", ("F21", "F1"), nodes=4),
    Trial("W1", ("F22",)),
)

COMPOUNDS: tuple[tuple[str, ...], ...] = (
    ("F1", "F2"), ("F1", "F3"), ("F2", "F4"), ("F3", "F16"), ("F5", "F1"), ("F7", "F1"), ("F8", "F2"), ("F13", "F1"),
    ("F18", "F3"), ("F6", "F1"), ("F14", "F1"),
)  # fmt: skip


def full() -> Iterator[Trial]:
    single: list[tuple[str, ...]] = [(fault,) for fault in CATALOGUE if fault != "F0"]
    for workload, faults in itertools.product(WORKLOADS, single):
        if WORKLOADS[workload].is_transactional or not NEED_TRANSACTIONS & set(faults):
            yield Trial(workload, faults)
    for place, (workload, faults) in enumerate(itertools.product(WORKLOADS, COMPOUNDS)):
        yield Trial(workload, faults, nodes=3 if place % 2 else 5, keys=KEYS if workload == "W1" else 0)


@dataclass(frozen=True)
class Part:
    """One part of a matrix: every `of`-th cell from the `number`-th on. So neighbours, which are alike, are spread."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"there is no part {self}: of {self.of} there are 1 to {self.of}")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def chosen(cells: Iterable[Trial], workloads: Collection[str] = (), part: Part = Part()) -> list[Placed]:
    """Select the cells of these workloads (none given: of all), then one part of them."""
    wanted = [(place, cell) for place, cell in enumerate(cells) if not workloads or cell.workload in workloads]
    return wanted[part.number - 1 :: part.of]


@dataclass(frozen=True)
class Site:
    """The cluster of an inventory. `nodes`: their count; `no_links`: why links cannot be broken, or ""."""

    inventory: str
    provisioned: Provisioned
    nodes: int
    no_links: str = ""

    def why_not(self, cell: Trial) -> str:
        """Say why the cell cannot run on this cluster; "" if it can."""
        if why := WORKLOADS[cell.workload].needs_own_nodes:
            return why
        for fault in cell.faults:
            if why := why_not_there(fault, self.no_links):
                return why
        return f"it takes {cell.nodes} nodes, and there are {self.nodes}" if cell.nodes > self.nodes else ""

    def plan(self, plan: RunPlan) -> RunPlan:
        return replace(plan, inventory=self.inventory, nodes=self.nodes)


def look(inventory: str, provisioned: Provisioned) -> Site:
    """Look at the cluster of an inventory, which must be whole now; between runs it has time. Raises CannotRun."""
    with tempfile.TemporaryDirectory() as nothing:
        found = clusters.look(provisioned, Path(nothing))
    return Site(inventory, replace(provisioned, patience_s=WHOLE_WITHIN_S), found.nodes, found.no_links)


def left_out(cells: Iterable[Placed], site: Site) -> dict[str, list[Trial]]:
    """Group the cells that cannot run on the cluster by reason."""
    found: dict[str, list[Trial]] = {}
    for _, cell in cells:
        if why := site.why_not(cell):
            found.setdefault(why, []).append(cell)
    return found


@dataclass(frozen=True)
class NotRun:
    """A cell that could not run or was broken off; it proves nothing."""

    plan: RunPlan
    why: str


def run(
    cells: Sequence[Placed], below: Path, *, seconds: float, seed: int, say: Say,
    done: Callable[[ChaosRun | NotRun], None], site: Site | None = None,
) -> Result:  # fmt: skip
    """Run the cells and return their worst result.

    Each cell's seed is `seed` plus its place in the whole matrix. A cell that fails does not stop the others. Raises
    BrokenOff if two in a row could not run on the site."""
    if site is not None:
        for why, those in left_out(cells, site).items():
            say(f"left out, {len(those)} of {len(cells)}: {', '.join(map(str, those))}: {why}")
        cells = [(place, cell) for place, cell in cells if not site.why_not(cell)]
    if not cells:
        return Result.NODATA
    worst, failures = Result.PASSED, 0
    for count, (place, cell) in enumerate(cells, 1):
        plan = cell.plan(seconds, seed + place)
        plan = site.plan(plan) if site is not None else plan
        say(f"{count} of {len(cells)}: {plan.command}")
        one = _one(plan, below, site)
        result = Result.NODATA if isinstance(one, NotRun) else one.judgement.result
        worst = max(worst, result, key=list(Result).index)
        done(one)
        if not isinstance(one, NotRun) or site is None:
            failures = 0
            continue
        failures += 1
        if failures > 1 and count < len(cells):  # each waited for the cluster to become whole
            raise BrokenOff(f"{len(cells) - count} more were not tried, since two in a row could not be run: {one.why}")
    return worst


def _one(plan: RunPlan, below: Path, site: Site | None) -> ChaosRun | NotRun:
    try:
        plan.check()
    except CannotRun as error:
        return NotRun(plan, str(error))
    directory = archive.new_directory(below, plan)
    if site is None:
        return archive.run_and_report(plan, directory)
    try:
        return archive.run_and_report(plan, directory, provisioned=site.provisioned)
    except CannotRun as error:  # a host is lost more easily than this machine
        return NotRun(plan, str(error))
