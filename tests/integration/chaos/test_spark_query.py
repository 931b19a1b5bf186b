"""W5: Spark at work while nodes are killed, and its own driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import archive
from chaos.checkers.verdict import Result
from chaos.run import RunPlan
from chaos.workloads import spark
from chaos.workloads.spark_batches import made_of
from tests.integration.conftest import number_from

pytestmark = [
    pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(spark.missing()), reason=spark.missing()),
    pytest.mark.skipif(
        number_from("HOLDFAST_SPARK_FAULTS", 0) == 0, reason="takes minutes: HOLDFAST_SPARK_FAULTS=1, as in make soak"
    ),
]  # fmt: skip


def test_each_event_is_written_once_whoever_is_killed(tmp_path: Path) -> None:
    plan = RunPlan("W5", ("F1", "F16"), 40.0, 3, per_second=20)
    done = archive.run_and_report(plan, tmp_path / "run", say=print)
    found = {one.checker: [anomaly.what for anomaly in one.anomalies] for one in done.judgement.verdicts}
    assert done.judgement.result is Result.PASSED, f"{done.judgement.why}: {found}"
    stored = {row.msg_id for row in done.history.replica_dump}
    sent = {send.msg_id for send in done.history.sends if send.txn is None and send.outcome == "ok"}
    assert sent
    assert {made_of("spark", value) for value in sent} <= stored
    assert {one.outcome for one in done.history.transactions} == {"ok"}, "it came to its end"
