"""Benchmark of a node's memory: idle, and while some million events pass through it.

A process first fills its caches and write buffers; then its size stays level, or it leaks. Only time shows the
difference. So the resident size is measured idle and after each tenth of the events. Growth is the increase in the
second half, when every bounded buffer is full (the largest one, of the newest events, holds 256 MiB). Events are sent
and received from the tail at the same time, so that both paths take part.

    python -m benchmarks.subjects.memory --events 3000000
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.driver.load import Load, LoadPlan
from benchmarks.peers.base import PeerSystem, TargetLog, end_on_signals, running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.places import RESULTS, scratch

PARTS = 10
SETTLE_S = 2.0  # followers catch up, and buffers of read events are freed
IDLE_LIMIT_MIB = 150.0
GROWTH_LIMIT_MIB = 16.0  # in the second half: allocators and compactions move a process by some MiB without any leak
MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    events: int
    rss_mib: Mapping[str, float]


def sample(peer: PeerSystem, events: int) -> Sample:
    time.sleep(SETTLE_S)
    sizes = {name: round(process.memory_info().rss / MIB, 1) for name, process in peer.processes().items()}
    return Sample(events, sizes)


def observe(peer: PeerSystem, target: TargetLog, events: int, size: int) -> list[Sample]:
    samples = []
    for part in range(1, PARTS + 1):
        plan = LoadPlan(
            senders=1, receivers=1, send_urls=(target.send_url,), receive_urls=(target.receive_url,),
            size=size, count=events // PARTS, send_options=target.send_options, receive_options=target.tail_options,
        )  # fmt: skip
        Load(plan).run()
        samples.append(sample(peer, part * (events // PARTS)))
    return samples


def verdicts(idle: Sample, samples: list[Sample]) -> list[tuple[bool, str]]:
    middle, last = samples[len(samples) // 2 - 1], samples[-1]
    found = []
    for name, size in idle.rss_mib.items():
        found.append((size < IDLE_LIMIT_MIB, f"{name} idle: {size:.0f} MiB (limit {IDLE_LIMIT_MIB:g})"))
    for name, size in last.rss_mib.items():
        growth = size - middle.rss_mib[name]
        events = f"events {middle.events:,} to {last.events:,}"
        found.append((growth < GROWTH_LIMIT_MIB, f"{name}, {events}: {growth:+.1f} MiB (limit {GROWTH_LIMIT_MIB:g})"))
    return found


@click.command()
@click.option("--events", default=3_000_000, show_default=True, type=click.IntRange(PARTS))
@click.option("--size", default=256, show_default=True, help="Bytes in the body of an event.")
@click.option("--durability", type=click.Choice(["fsync", "replicated"]), default="fsync", show_default=True)
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, show_default=False)
def main(events: int, size: int, durability: str, results: Path) -> None:
    """Measure the resident size of each node; exit status 1 when a limit is broken."""
    end_on_signals()
    console = Console(width=None if sys.stdout.isatty() else 120)
    with scratch() as directory, running(Holdfast(durability, directory)) as peer:
        idle = sample(peer, 0)
        with console.status(f"sending and receiving {events:,} events"):
            samples = observe(peer, peer.create("log"), events, size)
        facts = machine.facts(directory)
    table = Table("events", *idle.rss_mib, title=f"resident MiB, {durability}, {size} B", title_justify="left")
    for each in [idle, *samples]:
        table.add_row(f"{each.events:,}", *(f"{mib:.1f}" for mib in each.rss_mib.values()))
    console.print(table)
    found = verdicts(idle, samples)
    for good, text in found:
        console.print(("ok      " if good else "BROKEN  ") + text, highlight=False)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{day}-memory.md"
    path.write_text(_markdown(facts, durability, size, [idle, *samples], found), encoding="utf-8")
    sys.exit(0 if all(good for good, _ in found) else 1)


def _markdown(
    facts: Mapping[str, object], durability: str, size: int, samples: list[Sample], found: list[tuple[bool, str]]
) -> str:
    names = list(samples[0].rss_mib)
    lines = [f"# Memory of a node ({durability}, {size} B events, sent and received from the tail)", ""]
    lines += [f"- {facts['cores']} cores, {facts['memory_gib']} GiB, Python {facts['python']}", ""]
    lines += ["| events | " + " | ".join(f"{name} MiB" for name in names) + " |", "| --- " * (len(names) + 1) + "|"]
    lines += [f"| {s.events:,} | " + " | ".join(f"{s.rss_mib[name]:.1f}" for name in names) + " |" for s in samples]
    lines += ["", *(f"- {'ok' if good else 'BROKEN'}: {text}" for good, text in found)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
