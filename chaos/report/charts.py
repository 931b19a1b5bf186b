"""Charts of a run as SVG: events a second, durations of calls, and calls by process, all on one scale of time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, LEFT, RIGHT = 1080, 96, 12
TITLE, BOTTOM = 22, 24
LANE, MOST_LANES = 13, 5
"""Lanes for the names of faults above a chart; a name without room appears only in the tooltip of its band."""
LETTER = 7.5
"""Greatest width of a letter of a fault's name."""
NAME = 14
"""Letters of a process's name that have room beside its line."""
COLOURS = {"ok": "#2f7d5b", "fail": "#c0392b", "info": "#d98a1f", "read": "#3f6fb0"}
FAULT_COLOURS = ("#e4572e", "#7768ae", "#2a9d8f", "#c77d0a", "#8d5a97", "#4c78a8", "#b5446e", "#6b8e23")
LINE = 1.4


@dataclass(frozen=True)
class Time:
    """Scale of time that all charts of a page share."""

    end_s: float

    def x(self, at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * max(0.0, min(1.0, at_s / self.end_s))

    def ticks(self) -> Iterator[float]:
        step = _round(self.end_s / 10)
        at_s = 0.0
        while at_s <= self.end_s:
            yield at_s
            at_s += step


def _round(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(max(value, 1e-9)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value)


@dataclass(frozen=True)
class Name:
    """Name of a fault, with the place where it is drawn."""

    x: float
    lane: int
    text: str
    colour: str


def names(time: Time, summary: dict[str, Any]) -> list[Name]:
    """Place the names of the faults that struck, each in the first lane that has room."""
    kinds = sorted({fault["kind"].split()[0] for fault in summary["faults"]})
    free = [0.0] * MOST_LANES
    found = []
    for fault in sorted(summary["faults"], key=lambda fault: fault["from_s"]):
        if fault["in_force_s"] is None:
            continue
        kind = fault["kind"].split()[0]
        wide = len(kind) * LETTER
        x = min(time.x(fault["from_s"]), WIDTH - RIGHT - wide)
        lane = next((lane for lane, until in enumerate(free) if until <= x), None)
        if lane is not None:
            free[lane] = x + wide
            found.append(Name(x, lane, kind, FAULT_COLOURS[kinds.index(kind) % len(FAULT_COLOURS)]))
    return found


def top_of(time: Time, summary: dict[str, Any]) -> int:
    """Return the y at which a chart begins, below its title and the names of its faults."""
    return TITLE + LANE * (1 + max((name.lane for name in names(time, summary)), default=-1))


def _frame(
    time: Time, summary: dict[str, Any], height: int, title: str, marks: Sequence[tuple[float, str]], content: str
) -> str:
    top = top_of(time, summary)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    parts.append(_shades(time, summary, top, height))
    for at_s in time.ticks():
        x = time.x(at_s)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{at_s:g} s</text>')
    for y, label in marks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    parts.append(f'<text class="title" x="{LEFT}" y="14">{escape(title)}</text>')
    return "\n".join([*parts, content, "</svg>"])


def _shades(time: Time, summary: dict[str, Any], top: int, height: int) -> str:
    """Draw the background of a chart: faults as bands, a colour for each kind, and changes of leaders as lines."""
    kinds = sorted({fault["kind"].split()[0] for fault in summary["faults"]})
    parts = []
    for fault in summary["faults"]:
        if fault["in_force_s"] is None:
            continue  # it could not strike
        begin, end = time.x(fault["from_s"]), time.x(fault["to_s"] if fault["to_s"] is not None else time.end_s)
        colour = FAULT_COLOURS[kinds.index(fault["kind"].split()[0]) % len(FAULT_COLOURS)]
        parts.append(
            f'<rect x="{begin:.1f}" width="{max(1.0, end - begin):.1f}" y="{top}" height="{height - top - BOTTOM}" '
            f'fill="{colour}" opacity="0.16"><title>{escape(fault["kind"])}: {escape(fault["target"])}, '
            f"{fault['from_s']:.1f} to {fault['to_s'] or time.end_s:.1f} s</title></rect>"
        )
    parts += [
        f'<text class="fault" x="{name.x:.1f}" y="{TITLE + LANE * name.lane + 10}" fill="{name.colour}">'
        f"{escape(name.text)}</text>"
        for name in names(time, summary)
    ]
    for row in summary["leaders"]:
        x = time.x(row["at_s"])
        whom = "the metadata" if row["partition"] is None else f"partition {row['partition']}"
        parts.append(
            f'<line class="leader" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height - BOTTOM}">'
            f"<title>node {row['node']} leads {whom}, term {row['term']}, at {row['at_s']:.2f} s</title></line>"
        )
    return "\n".join(parts)


def throughput(time: Time, summary: dict[str, Any]) -> str:
    top = top_of(time, summary)
    height = top + 198
    rows = summary["seconds"]
    most = _round(max((max(row["ok"] + row["fail"] + row["info"], row["read"]) for row in rows), default=1) or 1)

    def y(value: float) -> float:
        return height - BOTTOM - (height - top - BOTTOM) * min(1.0, value / most)

    parts = []
    for row in rows:
        x, wide = time.x(row["second"]), time.x(row["second"] + 1) - time.x(row["second"]) - 1
        below = 0
        for outcome in ("ok", "fail", "info"):
            if row[outcome]:
                upper, lower = y(below + row[outcome]), y(below)
                parts.append(
                    f'<rect x="{x:.1f}" y="{upper:.1f}" width="{wide:.1f}" height="{lower - upper:.1f}" '
                    f'fill="{COLOURS[outcome]}"><title>{row[outcome]} {outcome}, second {row["second"]}</title></rect>'
                )
            below += row[outcome]
    points = " ".join(f"{time.x(row['second'] + 0.5):.1f},{y(row['read']):.1f}" for row in rows)
    parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS["read"]}" stroke-width="{LINE}"/>')
    marks = [(y(most * part), f"{most * part:g}") for part in (0, 0.5, 1)]
    title = "Events a second: acknowledged (green), unknown (orange), refused (red); read at the tail (blue line)"
    return _frame(time, summary, height, title, marks, "\n".join(parts))


def latency(time: Time, summary: dict[str, Any]) -> str:
    top = top_of(time, summary)
    height = top + 218
    calls = summary["calls"]
    high = math.ceil(math.log10(max((call[1] for call in calls), default=10.0) + 1))

    def y(ms: float) -> float:
        share = min(1.0, math.log10(max(ms, 1.0)) / (high or 1))
        return height - BOTTOM - (height - top - BOTTOM) * share

    parts = [
        f'<circle cx="{time.x(at_s):.1f}" cy="{y(ms):.1f}" r="1.8" fill="{COLOURS[outcome]}" opacity="0.55">'
        f"<title>{what}: {outcome} after {ms:g} ms</title></circle>"
        for at_s, ms, outcome, what in calls
    ]
    for quantile, dash in (("p50", ""), ("p99", "4 3")):
        rows = [row for row in summary["seconds"] if quantile in row]
        points = " ".join(f"{time.x(row['second'] + 0.5):.1f},{y(row[quantile]):.1f}" for row in rows)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="{LINE}" '
            f'stroke-dasharray="{dash}"/>'
        )
    marks = [(y(10**power), f"{10**power:,} ms") for power in range(int(high) + 1)]
    title = "How long calls took: each a dot; p50 (line) and p99 (dashes) of acknowledgements in each second"
    return _frame(time, summary, height, title, marks, "\n".join(parts))


def timeline(time: Time, summary: dict[str, Any], row_height: int = 15) -> str:
    processes = summary["timeline"]
    top = top_of(time, summary)
    height = top + BOTTOM + row_height * len(processes)
    parts, marks = [], []
    for place, (process, boxes) in enumerate(processes.items()):
        y = top + place * row_height
        marks.append((y + row_height / 2, process[:NAME]))
        for begin_s, end_s, outcome, told in boxes:
            x = time.x(begin_s)
            wide = max(1.2, time.x(end_s if end_s is not None else time.end_s) - x)
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 2}" width="{wide:.1f}" height="{row_height - 4}" fill="{COLOURS[outcome]}" '
                f'opacity="0.6"><title>{escape(told)}</title></rect>'
            )
    title = "Who was at what: each call a box; those without an answer orange"
    return _frame(time, summary, height, title, marks, "\n".join(parts))
