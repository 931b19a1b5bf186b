"""From cells to a table: medians over the repeats, ratios within a row, and whether the goals were reached."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.matrix.cell import Cell
from benchmarks.matrix.profiles import Profile
from benchmarks.matrix.rows import Contestant, Goal, Row

COLUMNS = (
    "contestant", "events/s", "MiB/s", "Holdfast is x", "received/s", "ack p50 ms", "p95", "p99", "p99.9",
    "client us", "leader us", "follower us", "all us", "CPU x", "spread",
)  # fmt: skip
IN_TERMINAL = (
    "contestant", "events/s", "Holdfast is x", "received/s", "ack p50 ms", "p99", "leader us", "all us", "CPU x",
)  # fmt: skip
CROWDED_CORES = 0.3  # other processes then took more than a share that can be overlooked
MIB = 1 << 20


@dataclass(frozen=True)
class Line:
    """One contestant in one row: medians over the repeats."""

    row: Row
    contestant: Contestant
    cells: tuple[Cell, ...]

    @property
    def events_per_s(self) -> float:
        return statistics.median(cell.events_per_s for cell in self.cells)

    @property
    def spread(self) -> str:
        rates = [cell.events_per_s for cell in self.cells]
        return f"{min(rates):,.0f}..{max(rates):,.0f}" if len(rates) > 1 else "-"

    @property
    def received_per_s(self) -> float | None:
        rates = [cell.receive_events_per_s for cell in self.cells if cell.receive_events_per_s is not None]
        return statistics.median(rates) if rates else None

    def latency_ms(self, percentile: str) -> float | None:
        found = [cell.latency_ms[percentile] for cell in self.cells if percentile in cell.latency_ms]
        return statistics.median(found) if found else None

    def cpu_us(self, part: str) -> float:
        return statistics.median(cell.cpu_us[part] for cell in self.cells)

    def values(self, rival: Line | None) -> list[str]:
        """What the table shows, one text per column."""
        rate = self.events_per_s
        return [
            self.contestant.title,
            f"{rate:,.0f}",
            f"{rate * self.row.size / MIB:,.1f}",
            f"{rival.events_per_s / rate:.2f}" if rival and rate else "-",
            _number(self.received_per_s, ",.0f"),
            *(_number(self.latency_ms(name), ".2f") for name in ("p50", "p95", "p99", "p99.9")),
            *(f"{self.cpu_us(part):.1f}" for part in ("client", "leader", "follower", "all")),
            f"{self.cpu_us('all') / rival.cpu_us('all'):.2f}" if rival else "-",
            self.spread,
        ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


@dataclass(frozen=True)
class Verdict:
    goal: Goal
    row: Row
    ratio: float

    @property
    def reached(self) -> bool:
        return self.ratio >= self.goal.factor

    def __str__(self) -> str:
        word = "reached" if self.reached else "NOT reached"
        return (
            f"{self.row.title}: {self.goal.mine.title} is {self.ratio:.2f} x {self.goal.theirs.title}; "
            f"the goal of {self.goal.factor:g} x is {word}"
        )


class Report:
    def __init__(
        self,
        rows: Sequence[Row],
        cells: Iterable[Cell],
        facts: Mapping[str, Any],
        notes: Sequence[str],
        profiles: Sequence[Profile] = (),
    ) -> None:
        self.facts, self.notes, self.profiles = facts, notes, profiles
        self.cells = list(cells)
        self.rows: dict[Row, list[Line]] = {}
        for row in rows:
            for contestant in row.contestants:
                mine = tuple(c for c in self.cells if c.row == row.name and c.contestant == contestant.title)
                if mine:
                    self.rows.setdefault(row, []).append(Line(row, contestant, mine))

    @property
    def verdicts(self) -> list[Verdict]:
        found = []
        for row, lines in self.rows.items():
            rates = {line.contestant: line.events_per_s for line in lines}
            goal = row.goal
            if goal and goal.mine in rates and rates.get(goal.theirs):
                found.append(Verdict(goal, row, rates[goal.mine] / rates[goal.theirs]))
        return found

    @property
    def problems(self) -> list[str]:
        """What the driver or the peers had to complain about, each kind once per contestant and row."""
        found = [f"{cell.row}, {cell.contestant}: {problem}" for cell in self.cells for problem in cell.problems]
        crowded = [cell.other_cores for cell in self.cells if cell.other_cores > CROWDED_CORES]
        if crowded:
            found.append(
                f"the machine was not quiet: in {len(crowded)} of {len(self.cells)} runs other processes used "
                f"{min(crowded):.1f} to {max(crowded):.1f} cores; the rates are too low, and not evenly so"
            )
        idle = [cell.idle_cores for cell in self.cells]
        if any(idle):
            found.append(f"the idle clusters of the other contestants used {min(idle):.2f} to {max(idle):.2f} cores")
        return list(dict.fromkeys(found))

    def print(self, console: Console) -> None:
        for row, lines in self.rows.items():
            table = Table(title=row.title, title_justify="left")
            for column in IN_TERMINAL:
                table.add_column(column, justify="left" if column == "contestant" else "right")
            for line in lines:
                values = dict(zip(COLUMNS, line.values(_rival(line, lines)), strict=True))
                table.add_row(*(values[column] for column in IN_TERMINAL))
            console.print(table)
        for text in [*map(str, self.verdicts), *self.problems, *self.notes]:
            console.print(text, highlight=False)
        for profile in self.profiles:
            console.print("\n".join(profile.markdown()), highlight=False, markup=False)

    def markdown(self) -> str:
        parts = ["# Benchmark", "", *_fact_lines(self.facts), "", EXPLANATION, ""]
        parts += [f"- {verdict}" for verdict in self.verdicts] + [""]
        for row, lines in self.rows.items():
            parts += [f"## {row.title}", "", _markdown_row(COLUMNS), _markdown_row(["---"] * len(COLUMNS))]
            parts += [_markdown_row(line.values(_rival(line, lines))) for line in lines] + [""]
        if self.problems or self.notes:
            parts += ["## Notes", "", *(f"- {text}" for text in [*self.problems, *self.notes]), ""]
        for profile in self.profiles:
            parts += profile.markdown()
        return "\n".join(parts)

    def write(self, directory: Path, name: str) -> list[Path]:
        directory.mkdir(parents=True, exist_ok=True)
        cells = [dataclasses.asdict(cell) for cell in self.cells]
        texts = {
            ".md": self.markdown(),
            ".json": json.dumps({"facts": self.facts, "notes": self.notes, "cells": cells}, indent=1),
        }
        for suffix, text in texts.items():
            (directory / f"{name}{suffix}").write_text(text + "\n", encoding="utf-8")
        return [directory / f"{name}{suffix}" for suffix in texts]


EXPLANATION = """\
All contestants ran in this one run on this one machine, each a cluster of three nodes on loopback with three replicas,
with the same event size and window, in turn. RabbitMQ and Holdfast are driven by the same client over AMQP 1.0. Kafka
does not speak it: its lines come from a second driver that shares the plan, the bodies, the counting and the clock, on
confluent-kafka (acks=all, idempotent, else as it comes: it gathers events for 5 ms; "linger 0": it does not), and
beside them stands Holdfast by its own client ("own client": idempotent, single sends). "Kafka" acknowledges from page
caches as it ships, "flush.messages=1" syncs first. events/s: acknowledged events per second (backlog: received),
median of the repeats; spread: lowest and highest. "Holdfast is x": the events per second of the Holdfast line of the
same durability (for Kafka: by its own client; else of the first one) over this line's. us: CPU microseconds per event
of the client, of the leader's process, of a follower's process, of all four together; "CPU x": what this line spends
of them, over what that Holdfast line spends (less sensitive to what else runs on the machine than the rates are)."""


def _rival(line: Line, lines: Sequence[Line]) -> Line | None:
    """The Holdfast line that this line is to be held against."""
    others = {other.contestant: other for other in lines}
    return next((others[rival] for rival in line.contestant.rivals if rival in others), None)


def _markdown_row(values: Iterable[str]) -> str:
    return "| " + " | ".join(values) + " |"


def _fact_lines(facts: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in facts.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
        lines.append(f"- {name.replace('_', ' ')}: {text}")
    return lines
