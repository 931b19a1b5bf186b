"""Verdicts of checkers, and the anomalies that prove them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from chaos.checkers.view import View

ANOMALIES_KEPT = 20
"""Anomalies that a verdict holds, enough to see a pattern; it counts all."""


class Result(StrEnum):
    """Result of a checker or a run, from the mildest to the gravest; the gravest of several is their result."""

    PASSED = "PASSED"
    NODATA = "NODATA"
    UNKNOWN = "UNKNOWN"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Anomaly:
    """One violation of a promise. `ops`: the calls that prove it."""

    what: str
    partition: int | None = None
    ops: tuple[int, ...] = ()
    t_ns: int | None = None


@dataclass(frozen=True)
class Checker:
    """One promise and the function that finds its violations. `needs`: counts the rows to judge; 0 means NODATA."""

    id: str
    title: str
    needs: Callable[[View], int]
    find: Callable[[View], Iterator[Anomaly]]
    figures: Callable[[View], dict[str, float]] | None = None


@dataclass(frozen=True)
class Verdict:
    checker: str
    title: str
    result: Result
    judged: int  # rows
    violations: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    error: str = ""


def judge(checker: Checker, view: View) -> Verdict:
    try:
        judged = checker.needs(view)
        figures = checker.figures(view) if checker.figures is not None else {}
        if not judged:
            return Verdict(checker.id, checker.title, Result.NODATA, 0, figures=figures)
        found = checker.find(view)
        kept = list(islice(found, ANOMALIES_KEPT))
        count = len(kept) + sum(1 for _ in found)
    except Exception as error:  # noqa: BLE001 - after any failure the verdict is unknown
        return Verdict(checker.id, checker.title, Result.UNKNOWN, 0, error=f"{type(error).__name__}: {error}")
    result = Result.FAILED if count else Result.PASSED
    return Verdict(checker.id, checker.title, result, judged, count, kept, figures)
