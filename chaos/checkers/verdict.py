"""What a checker says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from chaos.checkers.view import View

ANOMALIES_KEPT = 20
"""Of each checker: enough to see a pattern; all are counted."""


class Result(StrEnum):
    """In the order of what matters more when several are taken together."""

    PASSED = "PASSED"
    NODATA = "NODATA"
    UNKNOWN = "UNKNOWN"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Anomaly:
    """One violation. `ops`: the calls that prove it."""

    what: str
    partition: int | None = None
    ops: tuple[int, ...] = ()
    t_ns: int | None = None


@dataclass(frozen=True)
class Checker:
    """`needs`: how much there is to judge; 0 is NODATA."""

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
    except Exception as error:  # noqa: BLE001 - whatever broke, the checker has said nothing
        return Verdict(checker.id, checker.title, Result.UNKNOWN, 0, error=f"{type(error).__name__}: {error}")
    result = Result.FAILED if count else Result.PASSED
    return Verdict(checker.id, checker.title, result, judged, count, kept, figures)
