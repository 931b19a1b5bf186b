"""Line of a table: one contestant in one row, with medians over the repeats."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.matrix.cell import Cell
from benchmarks.matrix.contestants import Contestant
from benchmarks.matrix.goals import Measure
from benchmarks.matrix.rows import MIB, Row

COLUMNS = (
    "contestant", "events/s", "MiB/s", "Holdfast is x", "received/s", "ack p50 ms", "p95", "p99", "p99.9",
    "client us", "leader us", "follower us", "all us", "CPU x", "spread",
)  # fmt: skip
IN_TERMINAL = (
    "contestant", "events/s", "Holdfast is x", "received/s", "ack p50 ms", "p99", "client us", "leader us", "all us",
    "CPU x",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
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

    def cpu_us(self, part: str) -> float | None:
        found = [cell.cpu_us[part] for cell in self.cells if part in cell.cpu_us]
        return statistics.median(found) if found else None

    def each(self, measure: Measure) -> list[float]:
        """Return the values of a goal's measure, one for each repeat, in order."""
        if measure == "CPU":
            return [cell.cpu_us["all"] for cell in self.cells]
        if measure == "received":
            return [cell.receive_events_per_s or 0.0 for cell in self.cells]
        return [cell.events_per_s for cell in self.cells]

    def values(self, rival: Line | None) -> list[str]:
        """Return the texts of the table's columns."""
        rate, used_us = self.events_per_s, self.cpu_us("all")
        theirs_us = rival.cpu_us("all") if rival else None
        return [
            self.contestant.title,
            f"{rate:,.0f}",
            f"{rate * self.row.size / MIB:,.1f}",
            f"{rival.events_per_s / rate:.2f}" if rival and rate else "-",
            _number(self.received_per_s, ",.0f"),
            *(_number(self.latency_ms(name), ".2f") for name in ("p50", "p95", "p99", "p99.9")),
            *(_number(self.cpu_us(part), ".1f") for part in ("client", "leader", "follower", "all")),
            f"{used_us / theirs_us:.2f}" if used_us and theirs_us else "-",
            self.spread,
        ]


def lines_of(row: Row, cells: Iterable[Cell]) -> list[Line]:
    """Make the lines of a row, for the contestants that have cells."""
    of_row = [cell for cell in cells if cell.row == row.name]
    by_title = {one.title: tuple(cell for cell in of_row if cell.contestant == one.title) for one in row.contestants}
    return [Line(row, one, by_title[one.title]) for one in row.contestants if by_title[one.title]]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
