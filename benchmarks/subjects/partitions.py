"""Benchmark of many partitions: their creation, their idle cost, and the kill of a node that leads a third of them.

An unused partition should cost next to nothing. So this program creates a log of many partitions, with three replicas
each, and measures the CPU time of the idle nodes. Then it kills the node that leads most of them. It reads each
partition's wait for its next leader from the nodes' own logs, since questions would disturb them. At last it starts
that node again.

    python -m benchmarks.subjects.partitions --partitions 1000
    python -m benchmarks.subjects.partitions --partitions 1 --partitions 300 --nodes 7      # what more nodes cost
"""

from __future__ import annotations

import datetime
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.peers.base import end_on_signals, running, wait_until
from benchmarks.peers.holdfast import NODES, Holdfast
from benchmarks.places import scratch

CREATE_TIMEOUT_S = 300.0
LED_TIMEOUT_S = 60.0
SETTLE_S = 15.0
"""Pause after the last election: leaderships move to the preferred nodes, and groups become quiet."""
MIB = 1 << 20
LEADS = re.compile(r"^(?P<at>\S+ \S+) .*(?P<group>group \d+) at node \d+: leads term")


@dataclass
class Figures:
    partitions: int
    created_s: float = 0.0
    created_cpu_s: float = 0.0  # of all nodes
    idle_cores: float = 0.0
    idle_mib: float = 0.0  # of the largest node
    led_again: int = 0
    led_p50_s: float = 0.0
    led_p95_s: float = 0.0
    led_max_s: float = 0.0
    started_s: float = 0.0


def cpu_s(peer: Holdfast) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in peer.processes().values())


def elections(peer: Holdfast, nodes: Mapping[str, int]) -> Iterator[tuple[str, float]]:
    """Yield (group, begin of its leader) for each election that the logs show after these sizes (`nodes`)."""
    for node, size in nodes.items():
        yield from elections_in(peer.log_file(node), size)


def elections_in(path: Path, size: int) -> Iterator[tuple[str, float]]:
    """Yield (group, begin of its leader) for each election that one log shows after this size."""
    with path.open("rb") as log:
        log.seek(size)
        for line in log.read().decode(errors="replace").splitlines():
            if found := LEADS.match(line):
                yield found["group"], datetime.datetime.fromisoformat(found["at"]).timestamp()  # local, as logged


def measure(peer: Holdfast, partitions: int, idle_s: float) -> Figures:
    figures = Figures(partitions)
    before, began = cpu_s(peer), time.monotonic()
    name, _ = peer.create_log(partitions, CREATE_TIMEOUT_S)
    figures.created_s, figures.created_cpu_s = time.monotonic() - began, cpu_s(peer) - before
    time.sleep(SETTLE_S)

    before, began = cpu_s(peer), time.monotonic()
    time.sleep(idle_s)
    figures.idle_cores = (cpu_s(peer) - before) / (time.monotonic() - began)
    figures.idle_mib = max(process.memory_info().rss for process in peer.processes().values()) / MIB

    victim, led = Counter(peer.leaders(name).values()).most_common(1)[0]
    survivors = {node: peer.log_file(node).stat().st_size for node in peer.processes() if node != victim}
    killed_at = time.time()
    peer.processes()[victim].kill()
    wait_until(lambda: len(dict(elections(peer, survivors))) >= led, "a leader for each partition", LED_TIMEOUT_S)
    first: dict[str, float] = {}
    for group, at in elections(peer, survivors):
        first[group] = min(at, first.get(group, at))
    waits = sorted(at - killed_at for at in first.values())
    figures.led_again = len(waits)
    figures.led_p50_s, figures.led_max_s = statistics.median(waits), waits[-1]
    figures.led_p95_s = waits[int(0.95 * (len(waits) - 1))]

    began = time.monotonic()
    peer.start_again()
    figures.started_s = time.monotonic() - began
    return figures


def medians(found: Sequence[Figures]) -> Figures:
    """Return the medians of the figures of several clusters."""
    names = [field.name for field in fields(Figures)]
    return Figures(**{name: statistics.median(getattr(one, name) for one in found) for name in names})


def rows(figures: Figures) -> list[tuple[str, str]]:
    return [
        ("created and led", f"{figures.created_s:.1f} s"),
        ("CPU of all nodes meanwhile", f"{figures.created_cpu_s:.1f} s"),
        ("idle, all nodes together", f"{figures.idle_cores:.3f} cores"),
        ("resident, the largest node", f"{figures.idle_mib:.0f} MiB"),
        (f"led again after kill -9 of a node ({figures.led_again}): p50", f"{figures.led_p50_s:.2f} s"),
        ("p95", f"{figures.led_p95_s:.2f} s"),
        ("all", f"{figures.led_max_s:.2f} s"),
        ("that node started again, ready", f"{figures.started_s:.1f} s"),
    ]


@click.command()
@click.option("--partitions", "numbers", multiple=True, default=(1, 400, 1000), show_default=True, type=int)
@click.option("--nodes", default=NODES, show_default=True, type=click.IntRange(NODES), help="Nodes of the cluster.")
@click.option("--idle", "idle_s", default=15.0, show_default=True, help="Watch idle nodes for so many seconds.")
@click.option("--durability", type=click.Choice(["fsync", "replicated"]), default="fsync", show_default=True)
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), help="Write the table here, too.")
def main(numbers: tuple[int, ...], nodes: int, idle_s: float, durability: str, results: Path | None) -> None:
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 120)
    found = []
    for number in numbers:
        with scratch() as directory, running(peer := Holdfast(durability, directory, nodes=nodes)):
            found.append(rows(measure(peer, number, idle_s)))
        for name, value in found[-1]:
            console.print(f"{number} partitions: {name}: {value}", highlight=False)
    table = Table(f"partitions, three replicas each, {nodes} nodes", *map(str, numbers))
    for place, (name, _) in enumerate(found[-1]):
        table.add_row(name, *(column[place][1] for column in found))
    console.print(table)
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        heads = [f"partitions, {nodes} nodes", *map(str, numbers)]
        lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
        for place, (name, _) in enumerate(found[-1]):
            lines.append(f"| {name} | {' | '.join(column[place][1] for column in found)} |")
        (results / f"{day}-partitions-{nodes}-nodes.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
