"""The checkers themselves: a clean history passes, each damage is seen by the one checker that names it, and nothing is
ever proven by nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from chaos.checkers import all as checkers
from chaos.checkers.all import CHECKERS, judge_run, judgement_of
from chaos.checkers.verdict import Result
from chaos.history import history as histories
from chaos.history.history import History
from chaos.history.tables import ADDED_LATER, TABLES, MomentRow, ReplicaDumpRow
from tests.unit.chaos.checkers.synthetic import DAMAGES, NODES, Damage, SyntheticStory, clean


def test_a_clean_history_passes_with_every_checker() -> None:
    judgement = judge_run(clean().history)
    said = {one.checker: (one.result, one.error, one.anomalies) for one in judgement.verdicts}
    assert {name: told for name, told in said.items() if told[0] is not Result.PASSED} == {}
    assert judgement.result is Result.PASSED


def test_every_checker_has_a_damage_that_it_is_to_see() -> None:
    assert set(DAMAGES) == {checker.id for checker in CHECKERS}


@pytest.mark.parametrize(
    ("name", "damage"),
    [pytest.param(name, damage, id=damage.__name__) for name, damages in DAMAGES.items() for damage in damages],
)
def test_each_damage_is_seen_by_the_checker_that_names_it_and_no_other(name: str, damage: Damage) -> None:
    story = clean()
    damage(story)
    judgement = judge_run(story.history)
    told = {one.checker: (one.result, one.error, one.anomalies) for one in judgement.verdicts}
    assert judgement.failed == [name], told
    assert judgement.result is Result.FAILED
    verdict = next(one for one in judgement.verdicts if one.checker == name)
    assert verdict.violations >= len(verdict.anomalies) >= 1


def written_again(story: SyntheticStory) -> None:
    """As by a query of Spark whose driver was killed: `t3` writes what `t2` had written, and nobody tells of `t2`."""
    again = {"t:5": "t:7", "t:6": "t:8"}
    history = story.history
    for table in ("reads", "replica_dump"):
        rows = history.rows(table)
        rows[:] = [row._replace(msg_id=again.get(row.msg_id, row.msg_id)) for row in rows]
    for table in ("sends", "inputs", "transactions"):
        rows = history.rows(table)
        rows[:] = [row for row in rows if row.txn != "t2"]


def test_what_was_rolled_back_may_be_written_again() -> None:
    story = clean()
    written_again(story)
    assert judge_run(story.history).failed == []
    first = story.logs[1].index("t:5")
    read = next(one for one in story.history.reads if (one.reader, one.msg_id) == ("drain-2", "t:7"))
    story.history.reads.append(read._replace(offset=first))
    assert "C3" in judge_run(story.history).failed, "a committed reader has found both"


def test_what_was_rolled_back_behind_the_last_committed_event_is_not_there_twice_either() -> None:
    story = clean()
    end = len(story.logs[1])
    story.history.replica_dump += [ReplicaDumpRow(node, 1, end, 2, "t:8", 7) for node in NODES]
    assert judge_run(story.history).failed == []
    story.history.replica_dump += [ReplicaDumpRow(node, 0, len(story.logs[0]), 2, "b:1", 7) for node in NODES]
    assert "C3" in judge_run(story.history).failed, "no transaction has sent that"


def test_an_empty_history_proves_nothing() -> None:
    judgement = judge_run(History())
    assert judgement.result is Result.NODATA
    assert {one.result for one in judgement.verdicts} == {Result.NODATA}


def test_a_run_without_a_fault_is_no_pass() -> None:
    story = clean()
    story.history.faults.clear()
    judgement = judge_run(story.history)
    assert (judgement.result, judgement.failed) == (Result.NODATA, [])
    assert "no fault struck" in judgement.why
    story.history.faults.append(clean().history.faults[0]._replace(t_injected_ns=None))
    assert judge_run(story.history).result is Result.NODATA, "one that could not be done did not strike"


def test_what_a_run_was_for_must_have_happened() -> None:
    story = clean()
    hope = "a leader changed while a commit was being decided"
    story.history.moments = [MomentRow(hope, 0)]
    assert judge_run(story.history).result is Result.PASSED
    judgement = judge_run(story.history, hopes=[hope])
    assert (judgement.result, hope in judgement.why) == (Result.NODATA, True)
    story.history.moments = [MomentRow(hope, 1)]
    assert judge_run(story.history, hopes=[hope]).result is Result.PASSED


def test_a_checker_that_had_to_judge_and_had_nothing_is_no_pass() -> None:
    story = clean()
    story.history.watermarks.clear()
    assert judge_run(story.history).result is Result.PASSED
    assert judge_run(story.history, needed=("C16",)).result is Result.NODATA
    some = [one for one in judge_run(clean().history).verdicts if one.checker != "ZK"]
    judgement = judgement_of(some, clean().history, needed=("C16", "ZK"), hopes=())
    assert (judgement.result, judgement.why) == (Result.NODATA, "ZK had nothing to judge"), "it was not even asked"


def test_a_checker_that_breaks_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(view: object) -> object:
        raise KeyError("of its own")

    first = dataclasses.replace(CHECKERS[0], find=broken)  # type: ignore[arg-type]
    monkeypatch.setattr(checkers, "CHECKERS", [first, *CHECKERS[1:]])
    judgement = judge_run(clean().history)
    assert judgement.result is Result.UNKNOWN
    assert judgement.verdicts[0].error == "KeyError: 'of its own'"


def test_what_was_written_is_read_back_the_same(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e '.[chaos]'")
    history = clean().history
    histories.write(history, tmp_path)
    found = histories.read(tmp_path)
    assert {table: found.rows(table) for table in TABLES} == {table: history.rows(table) for table in TABLES}


def test_a_history_of_an_earlier_version_lacks_newer_tables_and_no_others(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e '.[chaos]'")
    histories.write(clean().history, tmp_path)
    for name in ADDED_LATER:
        (tmp_path / f"{name}.parquet").unlink()
    found = histories.read(tmp_path)
    assert [table for table in TABLES if not found.rows(table) and clean().history.rows(table)] == sorted(
        ADDED_LATER, key=list(TABLES).index
    )
    (tmp_path / "sends.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        histories.read(tmp_path)
