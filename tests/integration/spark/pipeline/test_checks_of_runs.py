"""The checkers of chaos runs as jobs on Spark: each damage is seen by the one that names it, as without Spark.

All damages are judged at once: each is in a world of its own, with partitions, calls and names that no other has.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="there is no pyspark here: `make test` installs it")

from chaos import archive, at_scale
from chaos.checkers.all import CHECKERS, judge_run
from chaos.checkers.verdict import Result
from chaos.history import history as histories
from chaos.history.history import History
from chaos.history.tables import TABLES, CommitRow
from pipeline.checks.all import CHECKS, OF_RUNS
from tests.integration.conftest import number_from
from tests.integration.spark.pipeline.audit_worlds import MUTATIONS, NAMES, AuditWorld, history_of
from tests.unit.chaos.checkers.synthetic import DAMAGES, S, SyntheticStory, clean, new_owner_late

pytestmark = [pytest.mark.slow]

JUDGED = OF_RUNS if number_from("HOLDFAST_SPARK_FAULTS", 0) else CHECKS
"""All of them are 25; those that the audit has as well are the ones of `make test`."""

APART = 1000
NUMBERS = ("op_id", "partition", "source_partition", "group_id")
TEXTS = ("process", "msg_id", "producer", "txn", "reader", "group", "member", "source_msg_id", "text")


def worlds() -> list[tuple[str, History]]:
    """What is to see the damage, "" of the first one, which has none; and its history."""
    found = [("", clean().history)]
    for name, damages in DAMAGES.items():
        for damage in damages:
            story = clean()
            damage(story)
            found.append((name, story.history))
    story = clean()
    late_after_a_later_claim(story)
    return [*found, ("C11", story.history)]


def late_after_a_later_claim(story: SyntheticStory) -> None:
    """Who comes late does so when a claim that outbids it has already committed beyond: that excuses nothing."""
    new_owner_late(story)
    history = story.history
    history.commits = [row for row in history.commits if row.member != "m2"]
    late = next(read.op_id for read in history.reads if read.reader == "m2")
    begun_s = next(op.t_inv_ns for op in history.ops if op.op_id == late) / S
    story.read("m3", 0, range(4, 9), group="g", generation=3, at_s=begun_s - 0.45)
    number = story.call("m3", "commit", at_s=begun_s - 0.4)
    history.commits.append(CommitRow(number, "g", "m3", 3, 0, 8))


def audited_worlds() -> list[tuple[str, History]]:
    """The same of what the audit is to see, and is not to see."""
    found = []
    for number, mutate in enumerate(MUTATIONS):
        world = AuditWorld(f"a{number}", 0)
        check = mutate(world)
        found.append((NAMES.get(check, ""), history_of(world)))
    return found


def moved(row: Any, world: int) -> Any:
    """Into a world of its own."""
    new = {name: getattr(row, name) + APART * world for name in NUMBERS if getattr(row, name, None) is not None}
    new |= {name: f"w{world}.{getattr(row, name)}" for name in TEXTS if getattr(row, name, None) is not None}
    return row._replace(**new)


def together(histories: list[History]) -> History:
    whole = History()
    for world, history in enumerate(histories):
        for name in TABLES:
            if name != "faults" and name not in at_scale.SMALL_TABLES:
                whole.rows(name).extend(moved(row, world) for row in history.rows(name))
    whole.faults = list(histories[0].faults)
    return whole


def world_of(anomaly: Any) -> int:
    if anomaly.partition is not None:
        return int(anomaly.partition) // APART
    named = re.search(r"\bw(\d+)\.", anomaly.what)
    assert named is not None, anomaly
    return int(named[1])


def test_each_damage_is_seen_by_the_same_checker_as_without_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_scale, "ANOMALIES_KEPT", 10_000)
    monkeypatch.setattr(at_scale, "OF_RUNS", JUDGED)
    judged = [one.id for one in CHECKERS if one.id in {check.promise for check in JUDGED}]
    expected, audited = worlds(), audited_worlds()
    (tmp_path / "run.json").write_text(
        json.dumps({"plan": {"workload": "W1", "faults": ["F1"]}, "begun_s": 0.0, "begun_ns": 0, "periods": []})
    )
    histories.write(together([history for _, history in expected + audited]), tmp_path / "history")
    judgement = archive.judged_by_spark(tmp_path, spark).judgement
    in_memory = {checker.id for checker in at_scale.IN_MEMORY}
    assert {one.checker for one in judgement.verdicts if one.result is Result.NODATA} == in_memory
    judgement.verdicts[:] = [one for one in judgement.verdicts if one.checker not in in_memory]
    assert [one.checker for one in judgement.verdicts] == judged
    assert len(judged) == len(JUDGED)
    assert {one.checker: one.error for one in judgement.verdicts if one.result is Result.UNKNOWN} == {}
    found: list[set[str]] = [set() for _ in expected + audited]
    for verdict in judgement.verdicts:
        assert verdict.violations == len(verdict.anomalies)
        assert verdict.judged > 0
        for anomaly in verdict.anomalies:
            found[world_of(anomaly)].add(verdict.checker)
    assert found[: len(expected)] == [{name} & set(judged) for name, _ in expected]
    assert judgement.result is Result.FAILED
    for (name, history), seen in zip(expected, found, strict=False):
        assert set(judge_run(history).failed) & set(judged) == seen, name

    # These have neither leaders nor replicas, nor drains of every kind: checks that the audit lacks may speak, too.
    seen_of_audit = [seen & set(NAMES.values()) for seen in found[len(expected) :]]
    assert seen_of_audit == [{name} if name else set() for name, _ in audited]
