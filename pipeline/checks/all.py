"""Lists of checks: those that a captured log and its clients' histories can answer, and those of whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame

from pipeline.checks import groups, log, nodes, readers, sequence, transactions
from pipeline.checks.check import Check, HistoryFrames

CHECKS: tuple[Check, ...] = (*log.CHECKS, *sequence.CHECKS, readers.ORDER)
"""Checks of any `HistoryFrames`."""

OF_RUNS: tuple[Check, ...] = (*CHECKS, *readers.CHECKS, *groups.CHECKS, *transactions.CHECKS, *nodes.CHECKS)
"""Checks of a `Recorded` one."""


def anomalies(history: HistoryFrames, checks: Sequence[Check] = CHECKS) -> DataFrame:
    """Anomalies that these checks find."""
    return reduce(DataFrame.unionByName, [check.find(history) for check in checks])
