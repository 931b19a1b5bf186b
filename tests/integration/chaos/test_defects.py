"""The net has no holes: nodes with a deliberate fault are noticed, each by a checker that should."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.checkers.verdict import Result
from chaos.defects.catalogue import DEFECTS
from chaos.run import RunPlan, run
from tests.integration.chaos.conftest import skip_without_means

pytestmark = pytest.mark.cluster

EVERYWHERE = ("the-last-stable-offset-is-one-too-far",)
"""In every `make test`; all of them in `make chaos`. Each takes half a minute."""

ATTEMPTS = 3
"""A fault of the node has to be met by one of the run: when is the machine's doing. Other seeds and longer faults,
should one miss it: on a busy machine an election may take as long as a short fault."""

CHOSEN = DEFECTS if os.environ.get("HOLDFAST_CHAOS_DEFECTS") else EVERYWHERE


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_deliberate_fault_is_noticed_by_a_checker_that_should(name: str, tmp_path: Path) -> None:
    defect = DEFECTS[name]
    skip_without_means(defect.faults)
    failed = []
    for attempt in range(ATTEMPTS):
        seed, seconds = defect.seed + attempt, defect.seconds * (attempt + 1)
        plan = RunPlan(defect.workload, defect.faults, seconds, seed, defect=name, defective=defect.only_node)
        judgement = run(plan, tmp_path / str(attempt), say=print).judgement
        failed = judgement.failed
        if set(failed) & set(defect.seen_by):
            assert judgement.result is Result.FAILED
            return
    pytest.fail(f"{name}: of {defect.seen_by} none noticed it in {ATTEMPTS} runs (the last one: {failed})")
