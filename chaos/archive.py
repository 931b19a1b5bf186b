"""Past runs: a directory for each, from which it can be judged again, told again, and repeated.

DIR/run.json   the plan, the periods that were drawn, when it began
    history/   the tables, Parquet
    report.json, report.html
    nodeN/     configuration and log of each node
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from chaos import run as runs
from chaos.checkers.verdict import Result
from chaos.cluster.provisioned.cluster import Provisioned
from chaos.history import history as histories
from chaos.report import page, summary
from chaos.run import CannotRun, ChaosRun, RunPlan, Say

DATA_OF_NODES = ("data", "disk", "side")
"""Folders in a node's directory that are kept only if the run did not pass."""


def new_directory(below: Path, plan: RunPlan) -> Path:
    """Make a directory for a run; its name sorts by time and says what is run."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = f"{stamp}-{plan.workload}-{'+'.join(plan.faults)}-{plan.seed}"
    for more in ("", *(f"-{number}" for number in range(2, 100))):
        directory = below / f"{name}{more}"
        if not directory.exists():
            directory.mkdir(parents=True)
            return directory
    raise CannotRun(f"{below} has a hundred runs of this name")


def run_and_report(
    plan: RunPlan, directory: Path, *, say: Say = lambda text: None, abort_if: str | None = None,
    provisioned: Provisioned | None = None,
) -> ChaosRun:  # fmt: skip
    """Run a plan, judge it and write its page; the data of nodes is deleted if the run passed."""
    done = runs.run(plan, directory, say=say, abort_if=abort_if, provisioned=provisioned)
    (directory / "run.json").write_text(json.dumps(done.facts, indent=1), encoding="utf-8")
    tell(done)
    if done.judgement.result is Result.PASSED:
        for node in directory.glob("node*"):
            for name in DATA_OF_NODES:
                shutil.rmtree(node / name, ignore_errors=True)
    return done


def tell(run: ChaosRun) -> Path:
    """Write `report.json` and the page of a run; return the page's path."""
    summary.write(run)
    return page.write(run.directory)


def load(directory: Path) -> ChaosRun:
    """Read a past run and judge it again, with the checkers of today."""
    facts = _facts(directory)
    plan = plan_of(facts)
    history = histories.read(directory / "history")
    judgement = runs.judged(plan, history)
    return ChaosRun(plan, directory, judgement, history, facts["begun_ns"], facts["begun_s"], facts["periods"])


IN_MEMORY_ROWS = 3_000_000
"""Most rows (sends, reads and copies together) that one process judges in memory; they take about 2 GB."""


def is_large(directory: Path) -> bool:
    """Tell whether the history is too large for one process, from the row counts of its files."""
    return histories.rows_in(directory / "history", "sends", "reads", "replica_dump") > IN_MEMORY_ROWS


def judged_by_spark(directory: Path, spark: Any) -> ChaosRun:
    """Judge a past run with Spark, which reads the history from its files; the run that is returned has none."""
    from chaos import at_scale

    facts = _facts(directory)
    plan = plan_of(facts)
    needed, hopes = runs.asked_of(plan)
    judgement = runs.explained(plan, at_scale.judge_run(spark, directory / "history", needed=needed, hopes=hopes))
    return ChaosRun(
        plan, directory, judgement, histories.History(), facts["begun_ns"], facts["begun_s"], facts["periods"]
    )


def plan_in(directory: Path) -> RunPlan:
    return plan_of(_facts(directory))


def plan_of(facts: dict[str, Any]) -> RunPlan:
    return RunPlan(**{**facts["plan"], "faults": tuple(facts["plan"]["faults"])})


def _facts(directory: Path) -> dict[str, Any]:
    path = directory / "run.json"
    if not path.exists():
        raise CannotRun(f"{directory} is no run: it has no run.json")
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return facts


def past(below: Path) -> list[dict[str, Any]]:
    """List the runs below a directory that have a report, the newest first."""
    found = []
    for path in sorted(below.rglob("report.json"), reverse=True):
        report = json.loads(path.read_text(encoding="utf-8"))
        found.append(
            {
                "directory": str(path.parent.relative_to(below)),
                "result": report["result"],
                "why": report["why"],
                "plan": report["plan"],
                "begun_s": report["begun_s"],
                "totals": report["totals"],
            }
        )
    return sorted(found, key=lambda one: -one["begun_s"])
