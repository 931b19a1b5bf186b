"""What the checker of the survivors' p99 compares, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.checkers.cluster.survivors import CHECKERS, LEAST_CALLS, compared, stopped_node
from chaos.checkers.verdict import Result, Verdict, judge
from chaos.checkers.view import View
from chaos.faults.fault import named
from chaos.faults.processes import Kill, Pause
from chaos.history.tables import FaultRow, LeaderRow
from tests.unit.chaos.checkers.synthetic import S, SyntheticStory, changed, clean, steadily, survivors_slow


def verdict(story: SyntheticStory) -> Verdict:
    return judge(CHECKERS[0], View(story.history))


@pytest.mark.parametrize(
    ("fault", "node"),
    [
        (Kill("leader"), 3),
        (Kill("follower"), 3),
        (Kill("coordinator", id="F1C"), 3),
        (Pause("leader"), 3),
        (Pause("coordinator", id="F2C"), 3),
        (Kill("majority"), None),
        (Pause("majority"), None),
    ],
    ids=lambda one: getattr(one, "kind", str(one)),
)
def test_faults_that_stop_one_node_are_known_by_what_the_history_says_of_them(
    fault: Kill | Pause, node: int | None
) -> None:
    struck = named([3]) if node is not None else named([1, 3])
    row = FaultRow("1", f"{fault.id} {fault.kind}", struck, 0, 1, 2, 3)
    assert stopped_node(row) == node
    assert stopped_node(row._replace(kind="F3 isolate leader (swallow)")) is None


def test_only_partitions_of_other_nodes_count_before_and_while_the_node_is_down() -> None:
    both = compared(View(clean().history))
    assert {one.partition for one in (*both.before, *both.during)} == {2}
    assert len(both.before) >= LEAST_CALLS
    assert all(1 * S <= one.t_inv_ns < 2 * S for one in both.before)
    assert all(3 * S <= one.t_inv_ns < 4 * S for one in both.during)


def of_the_failed_node(story: SyntheticStory) -> None:
    changed(story, "leaders", lambda row: row.partition == 2, node=1)


def with_a_new_leader_meanwhile(story: SyntheticStory) -> None:
    story.history.leaders.append(LeaderRow(9, 2, 2, 2, int(3.5 * S)))


def with_nobody_known_to_lead(story: SyntheticStory) -> None:
    story.history.leaders = [row for row in story.history.leaders if row.partition != 2]


def beside_another_fault(story: SyntheticStory) -> None:
    story.history.faults.append(FaultRow("1.F6", "F6 any late by 50 ms", "node 2", S, S, 2 * S, int(2.1 * S)))


def right_after_another_fault(story: SyntheticStory) -> None:
    story.history.faults.append(FaultRow("0.F6", "F6 any late by 50 ms", "node 2", 0, 0, S // 2, int(0.9 * S)))


def right_after_a_new_leader(story: SyntheticStory) -> None:
    story.history.leaders.append(LeaderRow(9, 2, 2, 2, int(1.5 * S)))


def with_few_calls(story: SyntheticStory) -> None:
    kept = {op.op_id for op in story.history.ops if op.process != "s" or not 3.1 * S <= op.t_inv_ns < 4 * S}
    story.history.sends = [send for send in story.history.sends if send.op_id in kept]


@pytest.mark.parametrize(
    "spoil",
    [
        of_the_failed_node,
        with_a_new_leader_meanwhile,
        with_nobody_known_to_lead,
        beside_another_fault,
        right_after_another_fault,
        right_after_a_new_leader,
        with_few_calls,
    ],
)
def test_what_says_nothing_of_survivors_is_not_judged(spoil: Callable[[SyntheticStory], None]) -> None:
    story = clean()
    survivors_slow(story)
    assert verdict(story).result is Result.FAILED
    spoil(story)
    assert verdict(story).result is Result.NODATA


def test_twice_as_long_is_too_long_but_not_where_both_are_a_moment() -> None:
    def said(before_ms: float, during_ms: float) -> Result:
        story = clean()
        for place, op in enumerate(story.history.ops):
            if op.process == "s" and op.t_inv_ns < 5 * S:
                took_ms = before_ms if op.t_inv_ns < 2 * S else during_ms
                story.history.ops[place] = op._replace(t_end_ns=op.t_inv_ns + int(took_ms * 1e6))
        return verdict(story).result

    assert said(5.0, 29.9) is Result.PASSED
    assert said(5.0, 31.0) is Result.FAILED
    assert said(45.0, 89.0) is Result.PASSED
    assert said(45.0, 91.0) is Result.FAILED
    assert said(51.0, 900.0) is Result.NODATA, "the machine is busy"


def test_a_fault_without_a_time_before_it_is_left_out() -> None:
    """Two faults with calls in both windows, but of one of them only a few before it."""
    story = clean()
    survivors_slow(story)
    steadily(story, 26.0, 28.0, 1 / 400)
    story.history.faults.append(FaultRow("2.F1", "F1 kill leader", "node 1", 25 * S, 25 * S, 26 * S, 26 * S))
    story.history.faults.append(FaultRow("3.F1", "F1 kill leader", "node 1", 28 * S, 28 * S, 29 * S, 29 * S))
    told = compared(View(story.history))
    assert {one.fault.id for one in (*told.before, *told.during)} == {"1.F1"}


def test_a_call_that_never_ended_was_slow() -> None:
    story = clean()
    for place in range(8):
        number = [op.op_id for op in story.history.ops if op.process == "s" and 3 * S <= op.t_inv_ns < 4 * S][place]
        changed(story, "ops", lambda op, number=number: op.op_id == number, t_end_ns=None)
    assert verdict(story).result is Result.FAILED
