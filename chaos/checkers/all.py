"""List of the checkers, and the judgement that their verdicts make together."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from chaos.checkers import groups, liveness, log, readers, replicas, sequence, transactions
from chaos.checkers.cluster import discovery, registers, survivors
from chaos.checkers.verdict import Checker, Result, Verdict, judge
from chaos.checkers.view import View
from chaos.history.history import History


def in_order(one: Checker | Verdict) -> tuple[int, str]:
    name = one.id if isinstance(one, Checker) else one.checker
    return (int(name[1:]) if name[1:].isdecimal() else 1000, name)


CHECKERS: list[Checker] = sorted(
    [
        *log.CHECKERS,
        *sequence.CHECKERS,
        *readers.CHECKERS,
        *groups.CHECKERS,
        *transactions.CHECKERS,
        *replicas.CHECKERS,
        *liveness.CHECKERS,
        *discovery.CHECKERS,
        *survivors.CHECKERS,
        *registers.CHECKERS,
    ],
    key=in_order,
)

ALWAYS = ("C1", "C2", "C3", "C7", "C9", "C21", "CALLS")
"""Checkers that every workload needs: without a verdict of each, a run proves nothing."""


@dataclass(frozen=True)
class Judgement:
    result: Result
    why: str
    verdicts: list[Verdict]

    @property
    def failed(self) -> list[str]:
        return [one.checker for one in self.verdicts if one.result is Result.FAILED]


def judge_run(history: History, *, needed: Iterable[str] = ALWAYS, hopes: Collection[str] = ()) -> Judgement:
    """Judge a history by all checkers.

    `needed`: checkers that must have something to judge; `hopes`: moments that must have occurred."""
    view = View(history)
    return judgement_of([judge(checker, view) for checker in CHECKERS], history, needed=needed, hopes=hopes)


def judgement_of(
    verdicts: list[Verdict], history: History, *, needed: Iterable[str], hopes: Collection[str]
) -> Judgement:
    """Combine verdicts into one judgement, with the faults and moments of the history.

    A needed checker that is missing from the verdicts counts as NODATA."""
    by_id = {one.checker: one for one in verdicts}
    failed = [one.checker for one in verdicts if one.result is Result.FAILED]
    if failed:
        return Judgement(Result.FAILED, f"{', '.join(failed)} found violations", verdicts)
    broken = [one.checker for one in verdicts if one.result is Result.UNKNOWN]
    if broken:
        return Judgement(Result.UNKNOWN, f"{', '.join(broken)} broke: nothing is known of what they judge", verdicts)
    empty = [name for name in needed if name not in by_id or by_id[name].result is Result.NODATA]
    if empty:
        return Judgement(Result.NODATA, f"{', '.join(empty)} had nothing to judge", verdicts)
    if not View(history).faults_that_struck:
        return Judgement(Result.NODATA, "no fault struck: what holds in peace is not what was asked", verdicts)
    unmet = [moment.name for moment in history.moments if moment.name in hopes and not moment.times]
    if unmet:
        return Judgement(Result.NODATA, f"what the run was for did not happen: {', '.join(unmet)}", verdicts)
    return Judgement(Result.PASSED, "every promise that was looked at was kept", verdicts)
