"""What the benchmark of elastic clusters computes from what it has seen."""

from __future__ import annotations

from pathlib import Path

from benchmarks.subjects.elastic.figures import (
    CancelFigure,
    SteadyLoad,
    StoredVerdict,
    cancels,
    judge,
    leaderless_s,
    share_of_pace,
    spread,
)
from benchmarks.subjects.elastic.parts import _turned
from benchmarks.subjects.partitions import elections_in


def test_the_longest_gap_is_that_of_each_partition() -> None:
    load = SteadyLoad(answered_ns={"0": [0, 5_000_000, 7_000_000], "1": [1_000_000], "2": []})
    assert load.longest_gaps_ms() == {"0": 5.0, "1": 0.0, "2": 0.0}


def test_what_is_stored_is_held_against_what_was_acknowledged() -> None:
    assert judge([0, 1, 2], [0, 1, 2, 3]) == StoredVerdict()
    assert judge([0, 1, 2], [0, 2]) == StoredVerdict(lost=1)
    assert judge([0, 1], [0, 1, 0]) == StoredVerdict(doubled=1)
    assert judge([0, 1, 2], [1, 0, 2]) == StoredVerdict(out_of_order=1)
    assert judge([5], []) + judge([0], [0, 0]) == StoredVerdict(lost=1, doubled=1)


def test_rates_and_times_without_a_leader() -> None:
    assert share_of_pace(640, 10.0, 128) == 0.5
    assert leaderless_s(100.0, {"a": 100.5, "b": 101.0, "c": 100.25}) == (0.5, 1.0)
    assert leaderless_s(100.0, {}) == spread([]) == (0.0, 0.0)


def test_cancels_are_told_with_those_that_came_too_late() -> None:
    told = dict(cancels([CancelFigure(0.1, 0.2, False), CancelFigure(0.5, 0.7, True)]))
    assert told["answered and in force within a second"] == "1 of 2"
    assert told["too late: the move was done"] == "1"


def test_each_partition_has_another_node_first() -> None:
    assert [_turned([1, 2, 3, 4], by) for by in (0, 3)] == [[1, 2, 3], [4, 1, 2]]


def test_elections_are_read_from_where_a_log_ended(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    line = "2026-11-29 10:00:0{} INFO raft group 7 at node 2: leads term 3\n"
    path.write_text(line.format(1))
    size = path.stat().st_size
    with path.open("a") as log:
        log.write(line.format(4) + "something else\n")
    [(group, at)] = elections_in(path, size)
    assert group == "group 7"
    assert next(elections_in(path, 0))[1] == at - 3.0
