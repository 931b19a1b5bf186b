"""Command `python -m benchmarks.client`: compares idempotent with plain publishing, on three nodes that it starts.

Idempotence costs a few per cent, and other load on a machine changes a rate by more. So the two kinds take turns, in
changing order. Each pair of rounds gives one ratio. The median of the ratios counts, with their spread beside it. The
CPU for each event is reported, too, since other load changes it less.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.client.load import LoadRow, LoadTarget, Round, run
from benchmarks.peers.base import end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch

ROWS = (
    LoadRow("batches, 4 partitions", 4, 500, goal_per_s=40_000),
    LoadRow("batches, 1 partition", 1, 500),
    LoadRow("single sends, 4 partitions", 4, goal_per_s=15_000),
    LoadRow("single sends, 1 partition", 1, goal_per_s=15_000),
    LoadRow("single sends of 100 B, 4 partitions", 4, size=100),
    LoadRow("single sends of 100 B, 1 partition", 1, size=100),
    LoadRow("send_many of 500 x 100 B, 4 partitions", 4, chunk_events=500, size=100),
    LoadRow("send_many of 500 x 100 B, 1 partition", 1, chunk_events=500, size=100),
)
WORTH_RATIO = 0.9  # least share of a plain producer's rate


@dataclass
class RowRounds:
    """The rounds of a row, in pairs."""

    row: LoadRow
    plain: list[Round] = field(default_factory=list)
    idempotent: list[Round] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [two.events_per_s / one.events_per_s for one, two in zip(self.plain, self.idempotent, strict=True)]

    @property
    def cpu_ratio(self) -> float:
        """Ratio of the CPU of client and nodes for each event, idempotent to plain."""
        plain, idempotent = (
            statistics.median(one.client_us + one.nodes_us for one in rounds)
            for rounds in (self.plain, self.idempotent)
        )
        return idempotent / plain

    def verdicts(self) -> list[tuple[bool, str]]:
        ratio = statistics.median(self.ratios)
        told = f"{self.row.name}: idempotent is {ratio:.2f} of plain (at least {WORTH_RATIO})"
        found = [(ratio >= WORTH_RATIO, told)]
        goal = self.row.goal_per_s
        if goal is not None:
            for kind, rounds in (("plain", self.plain), ("idempotent", self.idempotent)):
                rate = _median(rounds, lambda one: one.events_per_s)
                found.append((rate >= goal, f"{self.row.name}: {kind} {rate:,.0f}/s (at least {goal:,}/s)"))
        return found


def _median(rounds: Sequence[Round], value: Callable[[Round], float]) -> float:
    return statistics.median(map(value, rounds))


def _table(outcomes: Sequence[RowRounds]) -> Table:
    columns = (
        "", "plain/s", "idempotent/s", "ratio", "ratios", "client us", "leader us", "all nodes us", "CPU ratio",
        "p50 ms", "p99 ms",
    )  # fmt: skip
    table = Table(*columns, title="plain / idempotent; medians; CPU for each event", title_justify="left")
    for one in outcomes:

        def both(value: Callable[[Round], float], form: str = ".1f", one: RowRounds = one) -> str:
            return " / ".join(format(_median(rounds, value), form) for rounds in (one.plain, one.idempotent))

        table.add_row(
            one.row.name,
            f"{_median(one.plain, lambda r: r.events_per_s):,.0f}",
            f"{_median(one.idempotent, lambda r: r.events_per_s):,.0f}",
            f"{statistics.median(one.ratios):.3f}",
            " ".join(f"{ratio:.2f}" for ratio in one.ratios),
            both(lambda r: r.client_us, ".2f"),
            both(lambda r: r.leader_us or 0.0, ".2f") if one.plain[0].leader_us is not None else "-",
            both(lambda r: r.nodes_us, ".2f"),
            f"{one.cpu_ratio:.2f}",
            both(lambda r: r.p50_ms or 0.0) if one.plain[0].p50_ms is not None else "-",
            both(lambda r: r.p99_ms or 0.0) if one.plain[0].p99_ms is not None else "-",
        )
    return table


def _measure(row: LoadRow, peer: Holdfast, rounds: int, size: int, warmup_s: float, seconds: float) -> RowRounds:
    outcome = RowRounds(row)
    for number in range(rounds):
        for idempotent in (False, True) if number % 2 == 0 else (True, False):
            log, leaders = peer.create_log(row.partitions)
            leader = leaders["0"] if row.partitions == 1 else None
            place = LoadTarget(peer.addresses, log, peer.processes(), leader)
            own_size = size if row.size is None else row.size
            found = run(row, place, idempotent=idempotent, size=own_size, warmup_s=warmup_s, seconds=seconds)
            (outcome.idempotent if idempotent else outcome.plain).append(found)
            peer.delete_log(log)
    return outcome


@click.command()
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Run so many pairs for each row.")
@click.option("--seconds", default=3.0, show_default=True, help="Measured seconds of a round.")
@click.option(
    "--warmup", "warmup_s", default=1.0, show_default=True, help="Seconds before a round that are not measured."
)
@click.option("--size", default=1024, show_default=True, type=click.IntRange(0), help="Bytes in the body of an event.")
@click.option("--row", "words", multiple=True, help="Run only rows with this in their name.")
@click.option("--durability", type=click.Choice(["fsync", "replicated"]), default="fsync", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print all rounds as JSON, for programs.")
def main(
    rounds: int, seconds: float, warmup_s: float, size: int, words: Sequence[str], durability: str, as_json: bool
) -> None:
    """Compare plain and idempotent publishing by the Python client, in turns; exit status 1 when a goal is missed."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 160)
    rows = [row for row in ROWS if not words or any(word in row.name for word in words)]
    with scratch() as directory, running(Holdfast(durability, Path(directory))) as peer:
        assert isinstance(peer, Holdfast)
        outcomes = []
        for row in rows:
            with console.status(row.name):
                outcomes.append(_measure(row, peer, rounds, size, warmup_s, seconds))
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts()]
    if as_json:
        print(json.dumps({"outcomes": [asdict(one) for one in outcomes], "verdicts": verdicts}))
    else:
        console.print(_table(outcomes))
        console.print(f"load of the machine: {os.getloadavg()[0]:.1f}", highlight=False)
        for good, text in verdicts:
            console.print(("ok      " if good else "MISSED  ") + text, highlight=False)
    sys.exit(0 if all(good for good, _ in verdicts) else 1)


if __name__ == "__main__":
    main()
