"""Command of `make bench`: measures Holdfast beside RabbitMQ, Artemis, Kafka and NATS, in one run on one machine.

Brokers that were measured on different days, machines or clients cannot be compared, and a single run on a small
machine is noise. So all clusters are up during the whole run; an idle one costs little, and the report shows how much.
Each row runs with the contestants in turn, and the turns are repeated in rotating order. Medians and their ratios
count. If the repeats do not agree about a goal, there are more of them.

    python -m benchmarks --quick                    # every row once, a few seconds each
    python -m benchmarks --row 1KiB --row 100B      # only these
    python -m benchmarks --only Kafka --only send_many
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine
from benchmarks.driver.wire import PeerError
from benchmarks.matrix.cell import Cell, idle_cores, measure
from benchmarks.matrix.contestants import Contestant
from benchmarks.matrix.extras import EXTRAS, Extra, ExtraTable
from benchmarks.matrix.goals import undecided
from benchmarks.matrix.line import lines_of
from benchmarks.matrix.profiles import Profile
from benchmarks.matrix.profiles import leader as leader_profile
from benchmarks.matrix.report import Report
from benchmarks.matrix.rows import CONTESTANTS, MATRIX, Row
from benchmarks.peers.artemis import Artemis
from benchmarks.peers.base import PeerFailed, PeerSystem, PeerUnavailable, end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.rabbitmq import RabbitMQ
from benchmarks.places import RESULTS, scratch

REPEATS = 3
REPEATS_MORE = 4
"""Further repeats of both sides of a goal that some repeats reached and others missed."""
SECONDS = 5.0
QUICK_SECONDS = 3.0
INTERRUPTED = 130  # exit status as shells set it
IDLE_S = 5.0
SETTLE_S = 1.0  # pause after a cell, for its remaining flushes and deletions

MAKERS: dict[str, Callable[[Path], PeerSystem]] = {
    "holdfast-fsync": lambda directory: Holdfast("fsync", directory),
    "holdfast-replicated": lambda directory: Holdfast("replicated", directory),
    "rabbitmq": RabbitMQ,
    "artemis-fsync": lambda directory: Artemis("fsync", directory),
    "artemis-cached": lambda directory: Artemis("cached", directory),
    "kafka": Kafka,
    "nats-always": lambda directory: Nats("always", directory),
    "nats-default": lambda directory: Nats("default", directory),
}


class Bench:
    """One run of the matrix."""

    def __init__(self, rows: Sequence[Row], repeats: int, seconds: float, console: Console) -> None:
        self.rows, self.repeats, self.seconds, self.console = rows, repeats, seconds, console
        self.cells: list[Cell] = []
        self.notes: list[str] = []
        self.peers: dict[str, PeerSystem] = {}
        self.found: list[ExtraTable] = []
        self.profiles: list[Profile] = []

    def start(self, directory: Path, life: contextlib.ExitStack) -> None:
        """Start the peers that the rows need and the machine has."""
        for name in dict.fromkeys(c.peer for row in self.rows for c in row.contestants):
            try:
                with self.console.status(f"starting {name}"):
                    self.peers[name] = life.enter_context(running(MAKERS[name](directory)))
            except PeerUnavailable as error:
                self._note(str(error))
            except PeerFailed as error:
                self._note(f"{name} did not start, its rows are left out: {error}")

    def run(self) -> None:
        self._run(self.repeats, [(row, [c for c in row.contestants if c.peer in self.peers]) for row in self.rows])

    def decide(self) -> None:
        """Repeat both sides of undecided goals, once; all repeats count."""
        self._run(REPEATS_MORE, [(row, near) for row in self.rows if (near := self._near(row))])

    def _near(self, row: Row) -> list[Contestant]:
        lines = {line.contestant: line for line in lines_of(row, self.cells)}
        near = {one for goal in row.goals for one in undecided(goal, lines)}
        return [one for one in row.contestants if one in near]

    def _run(self, repeats: int, rows: Sequence[tuple[Row, list[Contestant]]]) -> None:
        cells = [
            (row, contestant)
            for repeat in range(repeats)
            for row, contestants in rows
            for contestant in _rotated(contestants, repeat)
        ]
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task("", total=len(cells))
            for row, contestant in cells:
                progress.update(task, description=f"{row.title}: {contestant.title}")
                self._measure(row, contestant)
                progress.advance(task)

    def _measure(self, row: Row, contestant: Contestant) -> None:
        time.sleep(SETTLE_S)
        try:
            self.cells.append(measure(row, contestant, self.peers, self.seconds))
        except (PeerError, PeerFailed, OSError) as error:
            self._note(f"{row.name}, {contestant.title}: no figure: {error}")

    def profile(self, directory: Path) -> None:
        """Profile the leader in each row, under the load of the first contestant of the row's first goal."""
        for row in self.rows:
            try:
                with self.console.status(f"profiling the leader: {row.title}"):
                    self.profiles.append(leader_profile(directory, row, row.goals[0].mine[0]))
            except (PeerError, PeerFailed, OSError) as error:
                self._note(f"{row.name}: no profile: {error}")

    def run_extras(self, directory: Path, extras: Sequence[Extra]) -> None:
        """Run extras one after the other, with no other cluster up."""
        for extra in extras:
            try:
                load, began_s = os.getloadavg()[0], time.monotonic()
                one = extra.measure(directory, self.repeats, self.console)
                took = f"It took {time.monotonic() - began_s:.0f} s; load of the machine before {load:.2f}, after "
                remarks = [*one.remarks, f"{took}{os.getloadavg()[0]:.2f}."]
                self.found.append(dataclasses.replace(one, remarks=remarks))
            except (PeerError, PeerFailed, OSError) as error:
                self._note(f"{extra.title}: no figures: {error}")

    def interrupted(self) -> None:
        self._note("interrupted: what was measured until then is kept, with fewer repeats than asked for")

    def _note(self, text: str) -> None:
        if text in self.notes:  # two clusters of one broker give the same note
            return
        self.notes.append(text)
        self.console.print(text, style="yellow", highlight=False)

    def facts(self, directory: Path) -> dict[str, object]:
        own = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "repeats": self.repeats,
            "seconds_per_cell": self.seconds,
            "versions": {name: peer.version() for name, peer in self.peers.items()},
            "cores_used_when_idle": idle_cores(self.peers, IDLE_S),
        }
        return own | machine.facts(directory)


def _rotated(contestants: list[Contestant], by: int) -> list[Contestant]:
    """Rotate the contestants, so that another one goes first in every repeat."""
    middle = by % len(contestants) if contestants else 0
    return contestants[middle:] + contestants[:middle]


NAMES = [part.name for part in (*MATRIX, *EXTRAS)]


def _titles(words: Sequence[str]) -> set[str]:
    """Return the titles of contestants that match the words."""
    found = set()
    for word in words:
        titles = {one.title for one in CONTESTANTS}
        meant = {word} & titles or {title for title in titles if word.lower() in title.lower()}
        if not meant:
            raise click.BadParameter(f"no contestant has {word!r} in its title; there are: {', '.join(sorted(titles))}")
        found |= meant
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Run every cell once and shorter: a look, not a result.")
@click.option("--row", "row_names", multiple=True, type=click.Choice(NAMES), help="Run only this row.")
@click.option(
    "--only",
    multiple=True,
    callback=lambda _, __, words: _titles(words),
    help="Run only contestants with this in their titles (or the one with this title).",
)
@click.option("--repeats", type=click.IntRange(1), help=f"Run each cell so many times (default {REPEATS}, quick 1).")
@click.option(
    "--seconds", type=click.FloatRange(1), help=f"Seconds of a cell (default {SECONDS:g}, quick {QUICK_SECONDS:g})."
)
@click.option("--profile", is_flag=True, help="Also profile the CPU time of the leader.")
@click.option("--name", default=None, help="Use this short name in the file names of the results.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, show_default=False,
              help="Write the results here (default: benchmarks/results).")  # fmt: skip
def main(
    quick: bool, row_names: tuple[str, ...], only: set[str], repeats: int | None, seconds: float | None,
    profile: bool, name: str | None, results: Path,
) -> None:  # fmt: skip
    """Measure Holdfast, RabbitMQ, Artemis, Kafka and NATS side by side and write the table to benchmarks/results/."""
    end_on_signals()  # so that the clusters are taken down
    console = Console(width=None if sys.stdout.isatty() else 160)
    rows = _selection(row_names, only)
    extras = [extra for extra in EXTRAS if extra.name in row_names or not (row_names or only)]
    began_s, ended_early = time.monotonic(), False
    bench = Bench(rows, repeats or (1 if quick else REPEATS), seconds or (QUICK_SECONDS if quick else SECONDS), console)
    with scratch() as directory:
        facts: dict[str, object] = {}
        try:
            with contextlib.ExitStack() as life:
                bench.start(directory, life)
                if rows and not bench.peers:
                    raise click.ClickException("no contestant could be started")
                facts = bench.facts(directory)
                bench.run()
                bench.decide()
            bench.run_extras(directory, extras)
            if profile:
                bench.profile(directory)
        except KeyboardInterrupt:  # the figures so far are kept
            ended_early = True
            bench.interrupted()
    facts |= {"load_after": round(os.getloadavg()[0], 2), "took_minutes": round((time.monotonic() - began_s) / 60, 1)}
    report = Report(rows, bench.cells, facts, bench.notes, bench.profiles, bench.found)
    report.print(console)
    if not bench.cells and not bench.found:
        raise click.ClickException("nothing could be measured")
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    short = f"{name or ('quick' if quick else 'full')}{'-part' if ended_early else ''}"
    path = report.write(results, f"{day}-{short}")
    console.print(f"written: {os.path.relpath(path)}", highlight=False)
    if ended_early:
        sys.exit(INTERRUPTED)


def _selection(row_names: Sequence[str], titles: Collection[str]) -> list[Row]:
    rows = [row for row in MATRIX if not row_names or row.name in row_names]
    if not titles:
        return rows
    return [row.limited_to(titles) for row in rows if any(c.title in titles for c in row.contestants)]


if __name__ == "__main__":
    main()
