"""The long histories that checkers are timed with: nothing is wrong in them, but what is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="it comes with pandas: `make test` installs it")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e '.[chaos]'")

from benchmarks.checks import history as made
from benchmarks.checks.planted import PLANTED
from chaos.checkers.all import Judgement, judge_run
from chaos.checkers.verdict import Result
from chaos.history import history as histories

OPERATIONS = 15_000


@pytest.fixture(scope="module")
def tables() -> Any:
    return made.make(OPERATIONS, partitions=4)


def judged(tables: Any, directory: Path) -> Judgement:
    made.write(tables, directory)
    return judge_run(histories.read(directory))


def test_nothing_is_wrong_in_it_and_every_checker_has_something_to_judge(tables: Any, tmp_path: Path) -> None:
    judgement = judged(tables, tmp_path)
    assert judgement.result is Result.PASSED, judgement.why
    passed = {verdict.checker for verdict in judgement.verdicts if verdict.result is Result.PASSED}
    assert passed == set(PLANTED)
    assert 0.9 * OPERATIONS < made.operations_in(tables) < 1.1 * OPERATIONS


@pytest.mark.parametrize("checker", PLANTED)
def test_what_is_planted_is_seen_by_the_checker_that_it_is_for(tables: Any, tmp_path: Path, checker: str) -> None:
    damaged = dict(tables)
    PLANTED[checker](damaged)
    assert judged(damaged, tmp_path).failed == [checker]


def test_all_of_it_is_planted_at_once(tables: Any, tmp_path: Path) -> None:
    damaged = dict(tables)
    for plant in PLANTED.values():
        plant(damaged)
    assert sorted(judged(damaged, tmp_path).failed) == sorted(PLANTED)
