"""Benchmark of Holdfast before and after a change: an earlier commit and this one, in turns.

Old ratios to another broker tell more about the machine than about a change, since they vary within a day. So two
clusters are up at the same time. Their nodes, their command lines and the Python client come from an earlier checkout
and from this one. Plans and drivers are this checkout's for both; that of plain clients imports nothing of Holdfast.
Each row of the matrix runs on one cluster and then at once on the other. The order alternates, and each pair has its
own ratio. A row passes if the median of its ratios is at least NOISE.

    git worktree add ../before v0.9 && python -m benchmarks.subjects.pairs ../before
"""

from __future__ import annotations

import contextlib
import datetime
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import click
from rich.console import Console

from benchmarks import machine
from benchmarks.driver.wire import PeerError
from benchmarks.matrix.cell import Cell, measure
from benchmarks.matrix.contestants import (
    ARRAYS,
    COLUMNS,
    FSYNC,
    FSYNC_CLIENT,
    FSYNC_MANY,
    REPLICATED,
    REPLICATED_CLIENT,
    REPLICATED_MANY,
    Contestant,
)
from benchmarks.matrix.rows import MATRIX, Row
from benchmarks.peers.base import PeerFailed, PeerSystem, end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch

NOISE = 0.9
"""Share of the rate before that a row must keep; on a shared machine few pairs vary by about so much."""
SETTLE_S = 1.0
HERE = Path(__file__).resolve().parents[2]
CLIENTS = {
    "plain": (FSYNC, REPLICATED),
    "own": (FSYNC_CLIENT, REPLICATED_CLIENT, FSYNC_MANY, REPLICATED_MANY, COLUMNS, ARRAYS),
}
EVERY = tuple(chain.from_iterable(CLIENTS.values()))
HEADS = ("row", "nodes", "before, events/s", "now, events/s", "now / before: median of pairs", "lowest .. highest",
         "CPU of all processes, now / before", "p99, now / before", "")  # fmt: skip


@dataclass(frozen=True)
class Pair:
    before: Cell
    now: Cell

    @property
    def ratio(self) -> float:
        return self.now.events_per_s / self.before.events_per_s


@dataclass(frozen=True)
class Compared:
    """Line of the table: one row on nodes of one durability."""

    row: Row
    contestant: Contestant
    pairs: Sequence[Pair]

    @property
    def ratio(self) -> float:
        return statistics.median(pair.ratio for pair in self.pairs)

    @property
    def kept(self) -> bool:
        return self.ratio >= NOISE

    def values(self) -> tuple[str, ...]:
        ratios = [pair.ratio for pair in self.pairs]
        rates = [statistics.median(cells) for cells in zip(*((p.before.events_per_s, p.now.events_per_s)
                                                             for p in self.pairs), strict=True)]  # fmt: skip
        waits = [p.now.latency_ms["p99"] / p.before.latency_ms["p99"] for p in self.pairs if p.before.latency_ms]
        return (
            self.row.title, self.contestant.title, *(f"{rate:,.0f}" for rate in rates), f"{self.ratio:.2f}",
            f"{min(ratios):.2f} .. {max(ratios):.2f}",
            f"{statistics.median(p.now.cpu_us['all'] / p.before.cpu_us['all'] for p in self.pairs):.2f}",
            f"{statistics.median(waits):.2f}" if waits else "-",
            "kept" if self.kept else f"LOST: under {NOISE:g}",
        )  # fmt: skip


def environment_of(checkout: Path, tools: Path | None = None) -> dict[str, str]:
    """Return the environment in which the command line, the nodes and the client come from that checkout. `tools`: a
    directory whose packages come first."""
    path = [checkout] if tools is None else [tools, checkout]
    found = {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONSAFEPATH": "1"}
    asked = "import holdfast.cli, node; print(holdfast.cli.__file__, node.__file__, sep='\\n')"
    answer = subprocess.run(
        [sys.executable, "-c", asked], env=os.environ | found, capture_output=True, text=True, check=False
    )
    if answer.returncode or not all(Path(one).is_relative_to(checkout) for one in answer.stdout.split()):
        raise click.BadParameter(f"no Holdfast can be run from {checkout}: {answer.stderr or answer.stdout}")
    return found


def compare(
    before: Path, rows: Iterable[Row], contestants: Iterable[Contestant], repeats: int, seconds: float, say: Console
) -> list[Compared]:
    lines = [(row, one) for row in rows for one in contestants if one in row.contestants]
    pairs: dict[tuple[Row, Contestant], list[Pair]] = {line: [] for line in lines}
    with scratch() as directory, contextlib.ExitStack() as life:
        tools = directory / "tools"
        tools.mkdir()
        (tools / "benchmarks").symlink_to(HERE / "benchmarks")
        clusters = [
            {one.peer: life.enter_context(running(Holdfast(one.peer.removeprefix("holdfast-"), directory, environment)))
             for one in dict.fromkeys(one for _, one in lines)}
            for environment in (environment_of(before, tools), environment_of(HERE, tools))
        ]  # fmt: skip
        for repeat in range(repeats):
            for row, contestant in lines:
                order = (0, 1) if repeat % 2 else (1, 0)
                cells = {which: _cell(row, contestant, clusters[which], seconds, say) for which in order}
                before_cell, now_cell = cells[0], cells[1]
                if before_cell and now_cell:
                    pairs[row, contestant].append(pair := Pair(before_cell, now_cell))
                    say.print(f"{row.name}, {contestant.title}: {pair.ratio:.2f}", highlight=False)
    return [Compared(row, contestant, of_line) for (row, contestant), of_line in pairs.items() if of_line]


def _cell(
    row: Row, contestant: Contestant, cluster: Mapping[str, PeerSystem], seconds: float, say: Console
) -> Cell | None:
    time.sleep(SETTLE_S)
    try:
        return measure(row, contestant, cluster, seconds)
    except (PeerError, PeerFailed, OSError) as error:
        say.print(f"{row.name}, {contestant.title}: no figure, this pair is left out: {error}", highlight=False)
        return None


def table(compared: Iterable[Compared], facts: dict[str, object]) -> str:
    lines = [f"| {' | '.join(HEADS)} |", "| --- " * len(HEADS) + "|"]
    lines += [f"| {' | '.join(one.values())} |" for one in compared]
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items() if name != "libraries")
    return "\n".join([f"# Now and before\n\n{said}.\n", *lines]) + "\n"


ROWS = [row.name for row in MATRIX if set(row.contestants) & set(EVERY)]


@click.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True))
@click.option("--row", "names", multiple=True, type=click.Choice(ROWS), help="Measure only this row.")
@click.option(
    "--durability", type=click.Choice(["fsync", "replicated"]), help="Measure only nodes with this durability."
)
@click.option("--client", type=click.Choice(list(CLIENTS)), help="Measure plain AMQP clients, or our own, only.")
@click.option("--repeats", default=4, show_default=True, type=click.IntRange(1), help="Run so many pairs of each row.")
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(1), help="Seconds of a run.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="Write the table here, too.")
def main(
    before: Path, names: tuple[str, ...], durability: str | None, client: str | None, repeats: int, seconds: float,
    results: Path | None,
) -> None:  # fmt: skip
    """Compare this checkout with BEFORE, one of an earlier commit."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 160)
    rows = [row for row in MATRIX if row.name in (names or ROWS)]
    every = CLIENTS[client] if client is not None else EVERY
    contestants = [one for one in every if durability is None or one.peer.endswith(durability)]
    began_s = time.monotonic()
    with scratch() as directory:
        facts = machine.facts(directory)
    compared = compare(before, rows, contestants, repeats, seconds, console)
    text = table(compared, facts | {"pairs": repeats, "took_s": round(time.monotonic() - began_s)})
    console.print(text, highlight=False, markup=False)
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        (results / f"{day}-pairs.md").write_text(text, encoding="utf-8")
    if not compared or not all(one.kept for one in compared):
        sys.exit(1)


if __name__ == "__main__":
    main()
