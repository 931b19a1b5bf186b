"""Command `python -m benchmarks.checks`: measures how long Spark takes to judge the history of a long chaos run.

A checker must also end after a long run. So this program makes a history of many operations (values sent, and values
read). The history is correct, or with `--planted` has one violation for each checker, which must see it.

The cost of each checker is given in seconds, and in seconds of CPU of this process and Spark together, since other load
on the machine changes these less. The first checker pays for the tables that all of them share.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.checks import history as histories
from benchmarks.checks.planted import PLANTED
from benchmarks.places import scratch
from chaos.checkers.all import Judgement
from chaos.checkers.verdict import Result

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS, WORTH_S, WORTH_CORES = 10_000_000, 600, 2
"""Goal: so many operations without a violation within this time on so many cores; other counts in proportion."""
STARTS_S = 150
"""Seconds of CPU for the start of Java and Spark and the compilation of their jobs, however short the history is."""


class Cost(NamedTuple):
    checker: str
    seconds: float
    cpu_s: float


class Stopwatch:
    """Timer of the checkers that reports each on stderr, since a run may take minutes."""

    def __init__(self) -> None:
        self.costs: list[Cost] = []

    @contextlib.contextmanager
    def __call__(self, checker: str) -> Iterator[None]:
        began_s, used_s = time.monotonic(), cpu_s()
        yield
        cost = Cost(checker, time.monotonic() - began_s, cpu_s() - used_s)
        click.echo(f"{checker}: {cost.seconds:.1f} s, {cost.cpu_s:.1f} s of CPU", err=True)
        self.costs.append(cost)


def cpu_s() -> float:
    """Return the CPU seconds of this process and its descendants, including those that have ended."""
    own = psutil.Process()
    return float(sum(sum(process.cpu_times()[:4]) for process in (own, *own.children(recursive=True))))


def session(cores: int, memory: str, directory: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(ROOT), SPARK_LOCAL_IP="127.0.0.1")
    settings = {
        "spark.driver.memory": memory, "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1", "spark.local.dir": str(directory), "spark.sql.session.timeZone": "UTC",
    }  # fmt: skip
    builder = SparkSession.builder.master(f"local[{cores}]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def wrong_in(judgement: Judgement, planted: bool) -> list[str]:
    """List the checkers whose verdict is wrong."""
    said = {verdict.checker: verdict.result for verdict in judgement.verdicts}
    right = Result.FAILED if planted else Result.PASSED
    return [f"{name} says {said.get(name)}" for name in PLANTED if said.get(name) is not right]


@click.command()
@click.option("--operations", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option(
    "--partitions",
    default=8,
    show_default=True,
    type=click.IntRange(4),
    help="Partitions of the history, a multiple of four.",
)
@click.option("--planted", is_flag=True, help="Plant one violation for each checker.")
@click.option(
    "--cores", default=WORTH_CORES, show_default=True, type=click.IntRange(1), help="Cores of Spark's local mode."
)
@click.option("--memory", default="4g", show_default=True, help="Memory of Spark's process.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def main(operations: int, partitions: int, planted: bool, cores: int, memory: str, as_json: bool) -> None:
    """Judge a history of so many operations by every checker."""
    from chaos import at_scale

    load, watch, whole = os.getloadavg()[0], Stopwatch(), Stopwatch()
    with scratch() as directory:
        made = _made(directory / "history", operations, partitions, planted)
        with whole("everything"):
            spark = session(cores, memory, directory / "spark")
            judgement = at_scale.judge_run(spark, directory / "history", around=watch)
        spark.stop()
    wrong = wrong_in(judgement, planted)
    all_of_it = whole.costs[0]
    if as_json:
        costs = [cost._asdict() for cost in (*watch.costs, all_of_it)]
        click.echo(json.dumps({"operations": made, "load_before": load, "costs": costs, "wrong": wrong}))
    else:
        _show(f"{made:,} operations, {cores} cores, load {load:.1f} before", [*watch.costs, all_of_it])
        for text in wrong:
            click.echo(text)
    worth_s = STARTS_S + made / OPERATIONS * (WORTH_S * WORTH_CORES - STARTS_S)
    if wrong or (all_of_it.cpu_s > worth_s and not planted):
        raise SystemExit(1)


def _made(directory: Path, operations: int, partitions: int, planted: bool) -> int:
    tables = histories.make(operations, partitions)
    if planted:
        for plant in PLANTED.values():
            plant(tables)
    histories.write(tables, directory)
    return histories.operations_in(tables)


def _show(title: str, costs: list[Cost]) -> None:
    table = Table(title=title)
    for name in ("checker", "s", "s of CPU"):
        table.add_column(name, justify="left" if name == "checker" else "right")
    for cost in costs:
        table.add_row(cost.checker, f"{cost.seconds:,.1f}", f"{cost.cpu_s:,.1f}")
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    main()
