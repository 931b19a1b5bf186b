"""Streaming queries of tests, on machines that may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WITHIN_S = 300.0
LOOK_EVERY_S = 0.2


def started(start: Callable[[], Any]) -> Any:
    """A query that has opened its source; raises why, if it cannot."""
    from pipeline.progress import Query

    query = Query(start, print)
    while query.running.exception() is not None or "nitializing" in query.running.status["message"]:
        query.wait(LOOK_EVERY_S)
    return query.running


def to_end(start: Callable[[], Any]) -> Any:
    """The query, when it has ended; raises why, if it failed."""
    from pipeline.progress import Query

    query, until_s = Query(start, print), time.monotonic() + WITHIN_S
    while not query.wait(LOOK_EVERY_S):
        assert time.monotonic() < until_s, f"a query did not end in {WITHIN_S:g} s: {query.running.status}"
    return query.running
