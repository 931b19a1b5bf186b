"""The short matrix: every workload meets faults for some seconds, and every promise that was looked at was kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import archive
from chaos.checkers.verdict import Result
from chaos.matrix import SHORT, SHORT_S, Trial
from tests.integration.chaos.conftest import skip_without_means
from tests.integration.conftest import number_from

pytestmark = pytest.mark.cluster

SEED = number_from("HOLDFAST_SEED", 7)
"""The same faults for every change of the code; `make chaos` draws others."""
HOW_FAST = ["P99"]
"""Judged by `make chaos`; beside other tests it is the machine that is measured."""

SECONDS = number_from("HOLDFAST_CHAOS_SECONDS", int(SHORT_S))


@pytest.mark.early
@pytest.mark.timeout(600 + 3 * SECONDS)
@pytest.mark.parametrize("cell", SHORT, ids=lambda cell: f"{cell.workload}-{'+'.join(cell.faults)}")
def test_every_promise_is_kept(cell: Trial, tmp_path: Path) -> None:
    skip_without_means(cell.faults)
    plan = cell.plan(SECONDS, SEED)
    print(plan.command)
    done = archive.run_and_report(plan, tmp_path / "run", say=print)
    judgement = done.judgement
    found = {one.checker: [anomaly.what for anomaly in one.anomalies] for one in judgement.verdicts if one.anomalies}
    if judgement.failed != HOW_FAST:
        assert judgement.result is Result.PASSED, f"{judgement.why}: {found}"
