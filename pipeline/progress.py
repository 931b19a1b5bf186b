"""Progress of a job while it runs: a line for each batch that had something, and what it left to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

LOOK_EVERY_S = 1

SLOW_PYTHON = "Python worker failed to connect back"
MOST_SLOW_STARTS = 5
"""Limit of slow starts in a row. A machine on which Python never comes up in ten seconds is not only busy."""

Start = Callable[[], StreamingQuery]
Say = Callable[[str], None]


def lag(progress: Mapping[str, Any]) -> int | None:
    """Offsets between the end of the batch and where the log ended when it was planned. None: nobody has said."""
    source = progress["sources"][0]
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, last - end.get(partition, 0)) for partition, last in latest.items())


def _offsets(value: Any) -> dict[str, int] | None:
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else None


def line(progress: Mapping[str, Any]) -> str:
    behind = lag(progress)
    late = sum(state.get("numRowsDroppedByWatermark", 0) for state in progress.get("stateOperators", []))
    return (
        f"batch {progress['batchId']}: {progress['numInputRows']:,} events, "
        f"{progress.get('processedRowsPerSecond') or 0:,.0f} a second"
        + ("" if behind is None else f", {behind:,} behind")
        + (f", {late:,} came too late" if late else "")
    )


class Query:
    """A query that is started again, from its checkpoint, when the machine was too busy for Spark's Python to come up:
    Spark gives it ten seconds, when a source is opened and when a sink commits, and no setting changes that."""

    def __init__(self, start: Start, say: Say) -> None:
        self._start, self._say = start, say
        self._left = MOST_SLOW_STARTS
        self.running = start()

    def wait(self, within_s: float) -> bool:
        """True if it has ended. Raises why, if it failed."""
        try:
            return bool(self.running.awaitTermination(within_s))
        except StreamingQueryException as error:
            if self.running.lastProgress is not None:
                self._left = MOST_SLOW_STARTS
            if SLOW_PYTHON not in str(error) or not self._left:
                raise
        self._left -= 1
        self._say(f"{self.running.name}: Spark's Python took more than ten seconds to come up; started again")
        self.running = self._start()
        return False


def follow(start: Start, say: Say, *beside: Start) -> None:
    """Follow the query that is started until it ends; raises why, if it failed, or one of those beside it."""
    query, *others = (Query(each, say) for each in (start, *beside))
    told = -1
    over = False
    while not over:
        over = query.wait(LOOK_EVERY_S)
        for other in others:
            if not other.running.isActive:
                other.wait(LOOK_EVERY_S)
        for progress in query.running.recentProgress:
            if progress["batchId"] > told and progress["numInputRows"]:
                told = progress["batchId"]
                say(line(progress))
