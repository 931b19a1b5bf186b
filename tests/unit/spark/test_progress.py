"""What becomes of a query whose Python was too slow to start, and of one with a trouble of its own."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from pipeline.progress import MOST_SLOW_STARTS, SLOW_PYTHON, Query

DONE = ""


class Running:
    """As Spark's own, ended."""

    name = "a query"

    def __init__(self, trouble: str, progress: Any) -> None:
        self._trouble, self.lastProgress = trouble, progress

    def awaitTermination(self, within_s: float) -> bool:
        if self._trouble:
            raise StreamingQueryException(f"[STREAM_FAILED] {self._trouble}")
        return True


def query_of(*troubles: str, progress: Any = None) -> tuple[Query, list[str]]:
    said: list[str] = []
    left = iter(troubles)
    return Query(lambda: Running(next(left), progress), said.append), said  # type: ignore[arg-type,return-value]


def test_it_is_started_again() -> None:
    query, said = query_of(SLOW_PYTHON, SLOW_PYTHON, DONE)
    assert [query.wait(1) for _ in range(3)] == [False, False, True]
    assert len(said) == 2


def test_but_not_for_ever() -> None:
    query, _ = query_of(*[SLOW_PYTHON] * (MOST_SLOW_STARTS + 1))
    for _ in range(MOST_SLOW_STARTS):
        assert not query.wait(1)
    with pytest.raises(StreamingQueryException):
        query.wait(1)


def test_one_that_works_between_is_not_given_up() -> None:
    query, _ = query_of(*[SLOW_PYTHON] * (2 * MOST_SLOW_STARTS), DONE, progress={})
    assert [query.wait(1) for _ in range(2 * MOST_SLOW_STARTS)] == [False] * 2 * MOST_SLOW_STARTS
    assert query.wait(1)


def test_another_trouble_is_raised_at_once() -> None:
    query, said = query_of("there is no log of that name")
    with pytest.raises(StreamingQueryException):
        query.wait(1)
    assert said == []
