"""Report of a run: tables of medians over the repeats, ratios within a row, and verdicts on the goals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.matrix import goals
from benchmarks.matrix.cell import Cell
from benchmarks.matrix.extras import ExtraTable
from benchmarks.matrix.goals import WORDS, Goal, GoalVerdict, judged, limited
from benchmarks.matrix.line import COLUMNS, IN_TERMINAL, Line, lines_of
from benchmarks.matrix.profiles import Profile
from benchmarks.matrix.rows import Row

CROWDED_CORES = 0.3  # more CPU of other processes than this is reported as a problem


class Report:
    def __init__(
        self,
        rows: Sequence[Row],
        cells: Iterable[Cell],
        facts: Mapping[str, Any],
        notes: Sequence[str],
        profiles: Sequence[Profile] = (),
        extras: Sequence[ExtraTable] = (),
    ) -> None:
        self.facts, self.notes, self.profiles, self.extras = facts, notes, profiles, extras
        self.cells = list(cells)
        self.rows = {row: lines for row in rows if (lines := lines_of(row, self.cells))}
        judgements = [
            (row, goal, judged(goal, row.title, {line.contestant: line for line in self.rows.get(row, ())}))
            for row in rows
            for goal in row.goals
        ]
        self.verdicts: list[GoalVerdict] = [verdict for _, _, verdict in judgements if verdict]
        self.verdicts += [
            limited(f"{row.title}: p50 of {line.contestant.title}", p50_ms, limit_ms, "ms")
            for row, lines in self.rows.items()
            for contestant, limit_ms in row.within_ms
            for line in lines
            if line.contestant == contestant and (p50_ms := line.latency_ms("p50")) is not None
        ]
        self.verdicts += [verdict for extra in extras for verdict in extra.verdicts]
        self.unjudged = [_lacking(row, goal) for row, goal, verdict in judgements if verdict is None]

    @property
    def problems(self) -> list[str]:
        """Problems of the driver and the peers, each kind once per contestant and row."""
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
            shown = [dict(zip(COLUMNS, line.values(_rival(line, lines)), strict=True)) for line in lines]
            _print(console, row.title, IN_TERMINAL, [[values[column] for column in IN_TERMINAL] for values in shown])
        for extra in self.extras:
            _print(console, extra.title, extra.columns, extra.rows)
        _print(console, "goals", goals.COLUMNS, [verdict.values() for verdict in self.verdicts])
        for text in [*self.unjudged, *self.problems, *self.notes]:
            console.print(text, highlight=False)
        for profile in self.profiles:
            console.print("\n".join(profile.markdown()), highlight=False, markup=False)

    def markdown(self) -> str:
        parts = ["# Benchmark", "", *_fact_lines(self.facts), "", EXPLANATION, ""]
        if self.verdicts:
            parts += ["## Goals", "", *_markdown(goals.COLUMNS, [one.values() for one in self.verdicts]), ""]
        parts += [f"- {text}" for text in self.unjudged] + [""] * bool(self.unjudged)
        for row, lines in self.rows.items():
            values = [line.values(_rival(line, lines)) for line in lines]
            parts += [f"## {row.title}", "", *_markdown(COLUMNS, values), "", _circumstances(lines), ""]
        for extra in self.extras:
            remarks = [f"- {text}" for text in extra.remarks]
            parts += [f"## {extra.title}", "", *_markdown(extra.columns, extra.rows), "", *remarks, ""]
        if self.problems or self.notes:
            parts += ["## Notes", "", *(f"- {text}" for text in [*self.problems, *self.notes]), ""]
        for profile in self.profiles:
            parts += profile.markdown()
        return "\n".join(parts)

    def write(self, directory: Path, name: str) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.md"
        path.write_text(self.markdown() + "\n", encoding="utf-8")
        return path


EXPLANATION = """\
All contestants ran in this one run on this one machine, each a cluster of three nodes on loopback with three replicas
(Artemis: two), with the same event size and window, in turn. Before each cell some free memory is touched: the host of
a virtual machine may take back what lies idle, and who writes there first would pay for it. RabbitMQ, Artemis and
Holdfast are driven by the same client over AMQP 1.0. Artemis promises less than the others: it is a primary with one
backup, which answers from its memory, before it has written; "fsync": the primary syncs before it acknowledges,
"without fsync": it has written into its page cache. Only to Artemis an event says in a header that it is durable,
because it stores no others; it has queues, so that what is read is taken away, and "from the start" is from the oldest
that was not taken. Kafka does not speak AMQP: its lines come from a second driver that shares the plan, the bodies, the
counting and the clock, on confluent-kafka (acks=all, idempotent, else as it comes: it gathers events for 5 ms; "linger
0": it does not), and beside them stands Holdfast by its own client, idempotent ("own client": single sends; "as it
comes": the client chooses the window, for the latency that it aims at; "send_many": 500 events a call, likewise, if no
window is named; "columns", "arrays": what it makes of what it reads, instead of an object for each event). Where a line
names a window, so many events are in flight, whatever latency comes of it. "Kafka" acknowledges from page caches as
it ships, "flush.messages=1" syncs first; Holdfast "replicated" has written before it acknowledges, and has not synced:
through the page cache if it is little, past it if it is much. One partition where nothing is said. events/s:
acknowledged events per second (from the start: received, in as many readings as take two seconds together), median of
the repeats; spread: lowest and highest. Where some repeats reached a goal and others missed it, both of its sides were
measured four times more. "Holdfast is x": the events per second of the Holdfast line of the same durability (for Kafka:
by its own client; else of the first one) over this line's. us: CPU microseconds per event of the client, of the
leader's process, of a follower's process, of all processes together; "CPU x": what this line spends of them, over what
that Holdfast line spends (less sensitive to what else runs on the machine than the rates are)."""


def _rival(line: Line, lines: Sequence[Line]) -> Line | None:
    """Return the Holdfast line with which this line is compared."""
    others = {other.contestant: other for other in lines}
    return next((others[rival] for rival in line.contestant.rivals if rival in others), None)


def _lacking(row: Row, goal: Goal) -> str:
    sides = (" or ".join(one.title for one in side) for side in (goal.mine, goal.theirs))
    missing = "a side is missing"
    return f"not judged, {missing}: {row.title}: {WORDS[goal.measure]}: {' beside '.join(sides)}"


def _circumstances(lines: Sequence[Line]) -> str:
    """Describe the duration and the load of the runs of a row, which are spread over the whole run."""
    cells = [cell for line in lines for cell in line.cells]

    def span(value: Callable[[Cell], float]) -> str:
        found = sorted(map(value, cells))
        return f"{found[0]:.2f} to {found[-1]:.2f}"

    return (
        f"{len(cells)} runs took {sum(cell.took_s for cell in cells):.0f} s; load of the machine before them "
        f"{span(lambda cell: cell.load[0])}, after them {span(lambda cell: cell.load[1])}; other processes used "
        f"{span(lambda cell: cell.other_cores)} cores, idle clusters {span(lambda cell: cell.idle_cores)}."
    )


def _print(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        is_text = place == 0 or not any(row[place][:1].isdigit() for row in rows)
        table.add_column(column, justify="left" if is_text else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(values) + " |" for values in (columns, ["---"] * len(columns), *rows)]


def _fact_lines(facts: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in facts.items():
        text = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
        lines.append(f"- {name.replace('_', ' ')}: {text}")
    return lines
