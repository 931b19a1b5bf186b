"""Output of commands: tables and progress for people, JSON for programs.

Problem: output that is pleasant to read is unpleasant to parse, and the other way round.
Rule never broken: with --json, standard output holds JSON and nothing else, one document (or one line per item for
streams); everything said to a person while working goes to standard error. Without a terminal there is no progress
bar unless asked.
Rejected: tables that scripts parse.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

WIDTH_WITHOUT_TERMINAL = 160


class Output:
    """Output of one command."""

    def __init__(self, *, as_json: bool, progress: bool | None = None) -> None:
        self.as_json = as_json
        # Tables in a file or a pipe are not cut to the width of a terminal that is not there.
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
        self.notes = Console(stderr=True, highlight=False)
        self._progress = progress

    def shows_progress(self, *, in_the_way: bool = False) -> bool:
        """True if bars are drawn. `in_the_way`: the terminal is where a person types or reads; then only when asked."""
        return sys.stderr.isatty() and not in_the_way if self._progress is None else self._progress

    def result(self, value: Any) -> None:
        """The one JSON document of a command; silent without --json."""
        if self.as_json:
            _write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def line(self, value: Any) -> None:
        """Write one JSON line of a stream."""
        _write(json.dumps(value, ensure_ascii=False) + "\n")

    def say(self, text: str) -> None:
        """A sentence for a person: on standard output, or on standard error when that is for JSON."""
        (self.notes if self.as_json else self.console).print(text, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print something on the side: always on standard error."""
        self.notes.print(text, markup=False, soft_wrap=True)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table for a person; columns whose name ends in `>` are aligned to the right."""
        if self.as_json:
            return
        if title:
            self.console.print(Text(title, style="bold"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
        for column in columns:
            table.add_column(
                column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(_cell(cell) for cell in row))
        self.console.print(table)

    def progress(self, text: str, total: int | None, *, in_the_way: bool = False) -> ProgressBar:
        """Progress with one bar."""
        return ProgressBar(self, {text: total}, self.shows_progress(in_the_way=in_the_way))

    def bars(self, totals: dict[str, int | None]) -> ProgressBar:
        """Progress with a bar for each name."""
        return ProgressBar(self, totals, self.shows_progress())


def good(text: str) -> Text:
    """Green text, for something to be glad of."""
    return Text(text, style="green")


def bad(text: str) -> Text:
    """Red text, for something to look at."""
    return Text(text, style="red")


def _cell(value: object) -> Text:
    """Cell that shows a value as it is: square brackets in it are text, not markup."""
    return value if isinstance(value, Text) else Text("-" if value is None else str(value))


class ProgressBar:
    """Bars on standard error, or nothing at all."""

    def __init__(self, output: Output, totals: dict[str, int | None], shown: bool) -> None:
        self._progress: Progress | None = None
        self._tasks: list[TaskID] = []
        if shown:
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                console=output.notes,
                transient=True,
            )
            self._tasks = [self._progress.add_task(text, total=total, rate="") for text, total in totals.items()]

    def update(self, completed: int, rate: str = "", bar: int = 0) -> None:
        if self._progress is not None:
            self._progress.update(self._tasks[bar], completed=completed, rate=rate)

    def __enter__(self) -> ProgressBar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


def counted(count: int, what: str) -> str:
    """Count with its noun: 1 -> '1 log', 1234 -> '1,234 logs'."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def rate_text(count: int, seconds: float) -> str:
    """Rate as text: '1,234/s'; empty below a second, in which the start of a command says more than its pace."""
    return f"{count / seconds:,.0f}/s" if seconds >= 1 else ""


def bytes_text(count: float) -> str:
    """Bytes as text: 1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration_text(milliseconds: int | None) -> str:
    """A retention for people: None is for ever."""
    if milliseconds is None:
        return "for ever"
    for unit, length_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= length_ms and milliseconds % length_ms == 0:
            return f"{milliseconds // length_ms} {unit}"
    return f"{milliseconds} ms"


def _write(text: str) -> None:
    """Write the whole text. Where Python keeps no buffer (PYTHONUNBUFFERED, as in many containers) a write that is
    interrupted would lose the rest without a word, and half a JSON document would look like success."""
    stream = sys.stdout
    stream.flush()
    rest = memoryview(text.encode(stream.encoding or "utf-8"))
    while rest:
        written = stream.buffer.write(rest)
        if written is None:  # it takes nothing now
            select.select([], [stream], [])
        else:
            rest = rest[written:]
    stream.flush()
