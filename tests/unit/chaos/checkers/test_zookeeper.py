"""What is known of ZooKeeper without one, and what the checkers of discovery leave to others."""

from __future__ import annotations

import pytest

from chaos.checkers.all import judge_run
from chaos.checkers.verdict import Result, Verdict
from chaos.cluster.zookeeper import password_of
from chaos.history.history import History
from chaos.history.tables import INFO, OK, FaultRow, SendRow
from tests.unit.chaos.checkers.synthetic import S, SyntheticStory, changed, clean, zookeeper_noticed


def verdict(history: History, name: str) -> Verdict:
    return next(one for one in judge_run(history).verdicts if one.checker == name)


@pytest.mark.parametrize(
    ("session", "password"),
    [
        (216172918283239424, "e1a85b725a3fc2a427a198c633f05ba7"),  # as a ZooKeeper 3.8 gave it
        (-1, "20f62cb5648dc2d771471c8a2486a9ee"),  # as Java draws it
    ],
)
def test_the_password_of_a_session_follows_from_its_number(session: int, password: str) -> None:
    assert password_of(session).hex() == password


def test_a_wait_while_another_fault_is_felt_too_says_nothing_of_zookeeper() -> None:
    story = clean()
    zookeeper_noticed(story)
    assert verdict(story.history, "ZK").result is Result.FAILED
    story.history.faults.append(FaultRow("2.F1", "F1 kill leader", "node 3", 13 * S, 13 * S, 14 * S, 15 * S))
    assert verdict(story.history, "ZK").result is Result.NODATA


def silent(story: SyntheticStory, after_s: float, before_s: float) -> None:
    """Partition 2 acknowledges nothing that was sent between these times."""
    struck = {op.op_id for op in story.history.ops if op.process == "s" and after_s * S < op.t_inv_ns < before_s * S}
    changed(story, "sends", lambda send: send.op_id in struck, outcome=INFO)
    changed(story, "ops", lambda op: op.op_id in struck, type=INFO)


def test_a_wait_that_peace_has_as_well_is_not_zookeepers() -> None:
    story = clean()
    silent(story, 13.05, 15.85)
    told = verdict(story.history, "ZK")
    assert told.result is Result.FAILED
    assert told.figures["longest wait while ZooKeeper was struck, s"] == pytest.approx(2.8, abs=0.1)
    silent(story, 11.05, 12.85)
    told = verdict(story.history, "ZK")
    assert told.figures["longest wait in peace, s"] == pytest.approx(1.8, abs=0.1)
    assert told.result is Result.PASSED, "less than twice that"


def test_a_batch_of_sparks_is_no_wait() -> None:
    """It is said to have been under way from the beginning to the end, since nobody knows when it was."""
    story = clean()
    number = story.call("spark", "txn-commit", at_s=11.0)
    story.history.ops[-1] = story.history.ops[-1]._replace(t_end_ns=15 * S)
    story.history.sends.append(SendRow(number, "spark.p0:0", 3, "spark", None, None, "spark/0", OK, None))
    assert verdict(story.history, "ZK").result is Result.PASSED
    changed(story, "ops", lambda op: op.op_id == number, f="produce")
    assert verdict(story.history, "ZK").result is Result.FAILED


def test_a_wait_that_begins_in_peace_and_lasts_into_the_fault_is_the_faults() -> None:
    story = clean()
    silent(story, 11.05, 15.95)
    told = verdict(story.history, "ZK")
    assert told.result is Result.FAILED
    assert told.figures["longest wait in peace, s"] < 1


def test_a_node_whose_disk_was_replaced_is_registered_by_another_data_directory_once() -> None:
    story = clean()
    changed(story, "registrations", lambda row: row.node == 2 and row.look >= 3, token="new")
    assert verdict(story.history, "REG").result is Result.FAILED
    story.history.faults.append(FaultRow("3.F12", "F12 disk replaced", "node 2", 12 * S, 12 * S, 13 * S, 13 * S))
    assert verdict(story.history, "REG").result is Result.PASSED
    changed(story, "registrations", lambda row: row.node == 2 and row.look == 5, token="token-2")
    assert verdict(story.history, "REG").result is Result.FAILED, "what was given up came back"


def test_without_a_fault_of_zookeeper_and_without_looks_nothing_is_judged() -> None:
    story = clean()
    story.history.faults = [fault for fault in story.history.faults if not fault.kind.startswith("F14")]
    story.history.registrations.clear()
    assert verdict(story.history, "ZK").result is Result.NODATA
    assert verdict(story.history, "REG").result is Result.NODATA
