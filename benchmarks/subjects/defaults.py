"""Benchmark of our client's defaults beside a deep window: rate and latency, in pairs of adjacent cells.

The pace of a virtual machine changes from minute to minute, and the lines of a row of the matrix are minutes apart. So
this program runs pairs: `send_many` of events of 100 bytes, with the defaults and with a window of 50,000. The order
alternates, and each pair has its own ratio. A pair during which the machine or its host was busy with something else is
left out and counted. The defaults pass if the median of the ratios is at least SHARE and the median p50 is within the
target.

    python -m benchmarks.subjects.defaults
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from benchmarks import machine
from benchmarks.matrix.cell import Cell, measure
from benchmarks.matrix.contestants import FSYNC_MANY, FSYNC_MANY_DEEP, REPLICATED_MANY, REPLICATED_MANY_DEEP, Contestant
from benchmarks.matrix.rows import MATRIX
from benchmarks.peers.base import end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import scratch

SHARE = 0.9
TARGET_MS = 20
QUIET_CORES = 0.3  # cores that other processes, or the host of a virtual machine, used meanwhile
SETTLE_S = 1.0
ROW = next(row for row in MATRIX if row.name == "100B")
PAIRS = {"replicated": (REPLICATED_MANY, REPLICATED_MANY_DEEP), "fsync": (FSYNC_MANY, FSYNC_MANY_DEEP)}
HEADS = ("nodes", "quiet pairs", "defaults, events/s", "p50, ms (lowest .. highest)", "window 50,000, events/s",
         "p50, ms", "ratio: median of pairs", "lowest .. highest", "left out", "ratio with these")  # fmt: skip

Pair = tuple[Cell, Cell]


def pairs_of(contestants: tuple[Contestant, Contestant], count: int, seconds: float, say: Console) -> list[Pair]:
    """Measure pairs: the client's defaults, and the deep window."""
    found: list[Pair] = []
    peer = contestants[0].peer
    with scratch() as directory, contextlib.ExitStack() as life:
        peers = {peer: life.enter_context(running(Holdfast(peer.removeprefix("holdfast-"), directory)))}
        for number in range(count):
            cells: dict[Contestant, Cell] = {}
            for one in contestants if number % 2 else reversed(contestants):
                time.sleep(SETTLE_S)
                cells[one] = measure(ROW, one, peers, seconds)
            own, deep = (cells[one] for one in contestants)
            found.append((own, deep))
            say.print(
                f"{peer}: {own.events_per_s:,.0f}/s at {own.latency_ms['p50']:.1f} ms beside {deep.events_per_s:,.0f},"
                f" {_ratio((own, deep)):.2f}{'' if is_quiet((own, deep)) else ', not quiet'}", highlight=False,
            )  # fmt: skip
    return found


def _ratio(pair: Pair) -> float:
    return pair[0].events_per_s / pair[1].events_per_s


def is_quiet(pair: Pair) -> bool:
    """Tell whether other processes used little of the machine during a pair."""
    return all(cell.other_cores <= QUIET_CORES for cell in pair)


def holds(pairs: list[Pair]) -> bool:
    """Judge the defaults by the pairs that count."""
    ratio = statistics.median(map(_ratio, pairs))
    return ratio >= SHARE and statistics.median(own.latency_ms["p50"] for own, _ in pairs) <= TARGET_MS


def values(kind: str, pairs: list[Pair]) -> tuple[str, ...]:
    quiet = [pair for pair in pairs if is_quiet(pair)]
    waits, ratios = [own.latency_ms["p50"] for own, _ in quiet], [*map(_ratio, quiet)]
    return (
        kind, str(len(quiet)), f"{statistics.median(own.events_per_s for own, _ in quiet):,.0f}",
        f"{statistics.median(waits):.1f} ({min(waits):.1f} .. {max(waits):.1f})",
        f"{statistics.median(deep.events_per_s for _, deep in quiet):,.0f}",
        f"{statistics.median(deep.latency_ms['p50'] for _, deep in quiet):.1f}",
        f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f} .. {max(ratios):.2f}",
        str(len(pairs) - len(quiet)), f"{statistics.median(map(_ratio, pairs)):.2f}",
    )  # fmt: skip


@click.command()
@click.option(
    "--durability", "kinds", multiple=True, type=click.Choice([*PAIRS]), help="Measure only nodes with this durability."
)
@click.option("--pairs", "count", default=16, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(1), help="Seconds of a cell.")
@click.option("--results", type=click.Path(path_type=Path, dir_okay=False), help="Write the table here, too.")
def main(kinds: tuple[str, ...], count: int, seconds: float, results: Path | None) -> None:
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 160)
    with scratch() as directory:
        facts = machine.facts(directory) | {"seconds_per_cell": seconds}
    lines, held = [f"| {' | '.join(HEADS)} |", "| --- " * len(HEADS) + "|"], True
    for kind in kinds or PAIRS:
        pairs = pairs_of(PAIRS[kind], count, seconds, console)
        if not (quiet := [pair for pair in pairs if is_quiet(pair)]):
            raise click.ClickException("the machine was not quiet in any pair: stop what else runs on it, or its host")
        lines.append(f"| {' | '.join(values(kind, pairs))} |")
        held = held and holds(quiet)
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items() if name != "libraries")
    text = "\n".join([f"# The defaults beside a deep window, 100 B by send_many\n\n{said}.\n", *lines]) + "\n"
    console.print(text, highlight=False, markup=False)
    if results is not None:
        results.write_text(text, encoding="utf-8")
    if not held:
        sys.exit(1)


if __name__ == "__main__":
    main()
