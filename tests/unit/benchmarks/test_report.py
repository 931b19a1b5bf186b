"""The arithmetic between a run and the table: windows, percentiles, medians, ratios, goals."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
from array import array
from pathlib import Path
from types import SimpleNamespace

import click
import psutil
import pytest
from rich.console import Console

from benchmarks.driver.measure import NS_PER_MS, NS_PER_S, Tally, Window, percentiles_ms
from benchmarks.driver.stamp import GREETING, MIN_BODY_BYTES, Sequences, Template, read_stamp
from benchmarks.matrix.cell import Cell, _idle_cpu_s, idle_cores
from benchmarks.matrix.contestants import (
    CACHED,
    CACHED_DEEP,
    FSYNC,
    FSYNC_MANY,
    FSYNC_MANY_DEEP,
    QUORUM,
    REPLICATED,
    REPLICATED_CLIENT,
    Contestant,
)
from benchmarks.matrix.extras import ExtraTable
from benchmarks.matrix.goals import (
    Goal,
    defaults,
    judged,
    kept,
    limited,
    rate_and_cpu,
    twice,
    undecided,
)
from benchmarks.matrix.line import Line, lines_of
from benchmarks.matrix.report import Report
from benchmarks.matrix.rows import MATRIX, Row
from benchmarks.matrix.run import REPEATS_MORE, Bench, _selection, _titles
from benchmarks.subjects import partitions
from benchmarks.subjects.memory import Sample, verdicts

ROW = Row("r", "a row", (FSYNC, QUORUM), goals=(Goal((FSYNC,), (QUORUM,), 3.0),))


def cell(contestant: str, rate: float, problems: tuple[str, ...] = ()) -> Cell:
    cpu = {"client": 3.0, "leader": 10.0, "follower": 4.0, "all": 21.0}
    latency = {"p50": 1.0, "p95": 2.0, "p99": 3.0, "p99.9": 4.0}
    return Cell("r", contestant, rate, None, latency, cpu, 0.01, problems, {})


def test_a_rate_is_made_of_what_came_in_the_window_only() -> None:
    window = Window(1 * NS_PER_S, 3 * NS_PER_S, bounded_by_time=True)
    tally = Tally()
    for at_s, events in ((0.5, 7), (1.5, 10), (2.9, 20), (3.1, 100)):
        tally.count(events, int(at_s * NS_PER_S), window)
    report = tally.report(window, size=1024)
    assert (report["events"], report["measured_events"], report["events_per_s"]) == (137, 30, 15.0)
    assert report["longest_gap_ms"] == 1400.0


def test_a_run_bounded_by_count_is_rated_to_its_last_event() -> None:
    window = Window(1 * NS_PER_S, 9 * NS_PER_S, bounded_by_time=False)
    tally = Tally()
    tally.count(10, 2 * NS_PER_S, window)
    tally.count(10, 5 * NS_PER_S, window)
    assert tally.report(window, 100)["events_per_s"] == 5.0


def test_nothing_counted_is_a_rate_of_zero() -> None:
    assert Tally().report(Window(NS_PER_S, NS_PER_S, bounded_by_time=False), 100)["events_per_s"] == 0.0


def test_percentiles_are_taken_from_the_values_themselves() -> None:
    found = percentiles_ms(array("q", [n * NS_PER_MS for n in range(1000, 0, -1)]))
    assert found == {"p50": 501.0, "p95": 951.0, "p99": 991.0, "p99.9": 1000.0, "max": 1000.0}
    assert percentiles_ms(array("q", [NS_PER_MS]))["p99.9"] == 1.0


@pytest.mark.parametrize("size", [MIN_BODY_BYTES, 100, 1024, 1 << 20])
def test_a_stamp_is_read_back_whatever_stands_in_front(size: int) -> None:
    template = Template(size, sender_id=9)
    template.stamp(41, 12345)
    delivered = b"annotations of a broker" + bytes(template.buffer)
    assert read_stamp(bytearray(delivered) + b"left over in the buffer", len(delivered)) == (9, 41, 12345)


@pytest.mark.parametrize("first", [0, 250, (1 << 32) - 3])
@pytest.mark.parametrize("size", [MIN_BODY_BYTES, 100, 4120, 4121, 5000])
def test_bodies_made_together_are_those_of_single_events(size: int, first: int) -> None:
    template, expected = Template(size, sender_id=9), []
    for number in range(first, first + 10):
        template.stamp(number, 12345)
        expected.append(bytes(template.buffer)[-size:])
    assert template.bodies(first, 10, 12345) == expected
    assert template.bodies(first, 0, 12345) == []


def test_medians_ratios_and_goals(tmp_path: Path) -> None:
    cells = [cell(FSYNC.title, rate) for rate in (50.0, 60.0, 900.0)] + [cell(QUORUM.title, 20.0, ("3 rejected (x)",))]
    report = Report([ROW], cells, {"cores": 2, "versions": {"a": "1"}}, ["a note"])
    assert [(v.ratio, v.reached) for v in report.verdicts] == [(3.0, True)]
    assert report.problems == ["r, RabbitMQ quorum queue: 3 rejected (x)"]
    text = report.write(tmp_path, "day-name").read_text()
    assert "| RabbitMQ quorum queue | 20 | 0.0 | 3.00 |" in text
    assert "| Holdfast fsync | 60 |" in text
    assert "50..900" in text
    assert "a note" in text


@pytest.mark.parametrize(
    ("mine", "near"),
    [
        ((61.0, 62.0, 90.0), False),
        ((61.0, 62.0, 59.0), True),
        ((59.0, 20.0, 61.0), True),
        ((59.0, 20.0, 58.0), False),
        ((61.0,), False),
    ],
)
def test_a_goal_is_undecided_when_some_repeats_reach_it_and_others_do_not(mine: tuple[float, ...], near: bool) -> None:
    cells = [cell(FSYNC.title, rate) for rate in mine] + [cell(QUORUM.title, 20.0)] * 3
    lines = {line.contestant: line for line in lines_of(ROW, cells)}
    assert undecided(ROW.goals[0], lines) == ((FSYNC, QUORUM) if near else ())
    assert undecided(ROW.goals[0], {FSYNC: lines[FSYNC]}) == ()


def test_of_what_is_undecided_both_sides_are_measured_again_in_turn_and_all_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = Row("r", "a row", (FSYNC, QUORUM, REPLICATED), goals=ROW.goals)
    clear = dataclasses.replace(row, name="clear")
    rates = {"clear": {FSYNC: 90.0}, "r": {}}
    measured: list[tuple[str, Contestant]] = []

    def measure(row: Row, contestant: Contestant, *_: object) -> Cell:
        measured.append((row.name, contestant))
        times = measured.count((row.name, contestant))
        rate = 20.0 if contestant == QUORUM else rates[row.name].get(contestant, 55.0 + 5 * times)
        return dataclasses.replace(cell(contestant.title, rate), row=row.name)

    monkeypatch.setattr("benchmarks.matrix.run.measure", measure)
    monkeypatch.setattr("benchmarks.matrix.run.SETTLE_S", 0.0)
    bench = Bench([clear, row], 3, 1.0, Console(quiet=True))
    bench.peers = dict.fromkeys((one.peer for one in row.contestants), SimpleNamespace())  # type: ignore[arg-type]
    bench.run()
    before = len(measured)
    assert before == 3 * 3 * 2
    bench.decide()
    again = measured[before:]
    assert sorted(again, key=str) == sorted([("r", FSYNC), ("r", QUORUM)] * REPEATS_MORE, key=str)
    assert [one for _, one in again[:4]] == [FSYNC, QUORUM, QUORUM, FSYNC]
    (_, verdict) = Report([clear, row], bench.cells, {}, []).verdicts
    assert (verdict.ratio, len(bench.cells)) == (75.0 / 20.0, before + 2 * REPEATS_MORE)


def test_a_machine_that_was_not_quiet_is_told() -> None:
    quiet = cell(FSYNC.title, 60.0)
    report = Report([ROW], [quiet, dataclasses.replace(quiet, other_cores=1.25)], {}, [])
    (problem,) = report.problems
    assert "in 1 of 2 runs other processes used 1.2 to 1.2 cores" in problem


def test_what_idle_clusters_use_is_told_and_makes_no_machine_noisy() -> None:
    quiet = cell(FSYNC.title, 60.0)
    cells = [dataclasses.replace(quiet, idle_cores=0.5), dataclasses.replace(quiet, idle_cores=0.25)]
    (told,) = Report([ROW], cells, {}, []).problems
    assert told == "the idle clusters of the other contestants used 0.25 to 0.50 cores"


def test_what_idle_clusters_use_is_counted_without_nodes_that_have_ended() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as started:
        ended = psutil.Process(started.pid)
    own = psutil.Process()
    before_s = sum(own.cpu_times()[:2])
    counted_s = _idle_cpu_s([SimpleNamespace(processes=lambda: {"node1": own, "node2": ended})])
    assert 0 < before_s <= counted_s <= sum(own.cpu_times()[:2])


def test_what_each_idle_cluster_uses_is_told_by_name() -> None:
    own = SimpleNamespace(processes=lambda: {"node1": psutil.Process()})
    nobody = SimpleNamespace(processes=dict)
    found = idle_cores({"a": own, "b": nobody}, 0.05)  # type: ignore[dict-item]
    assert set(found) == {"a", "b"}
    assert (found["a"] >= 0, found["b"]) == (True, 0)


def test_a_goal_that_is_missed_is_said_to_be_missed() -> None:
    report = Report([ROW], [cell(FSYNC.title, 59.0), cell(QUORUM.title, 20.0)], {}, [])
    assert [one.reached for one in report.verdicts] == [False]
    assert "| 2.95 | at least 3 | NOT reached |" in report.markdown()


def test_no_verdict_without_both_sides() -> None:
    report = Report([ROW], [cell(FSYNC.title, 59.0)], {}, [])
    assert report.verdicts == []
    (told,) = report.unjudged
    assert told == "not judged, a side is missing: a row: events/s: Holdfast fsync beside RabbitMQ quorum queue"
    assert told in report.markdown()


def test_names_of_rows_are_distinct_and_goals_are_about_who_takes_part() -> None:
    assert len({row.name for row in MATRIX}) == len(MATRIX)
    for row in MATRIX:
        named = {one for goal in row.goals for one in (*goal.mine, *goal.theirs)}
        assert named <= set(row.contestants), row.name
        assert len({one.title for one in row.contestants}) == len(row.contestants)


def lines(*measured: tuple[Contestant, float, float], received: float | None = None) -> dict[Contestant, Line]:
    """Contestant, events per second, CPU for each."""
    found = {}
    for who, rate, cpu_us in measured:
        one = dataclasses.replace(cell(who.title, rate), cpu_us={"client": 1.0, "all": cpu_us})
        found[who] = Line(ROW, who, (dataclasses.replace(one, receive_events_per_s=received),))
    return found


def test_a_rival_is_met_at_its_best_and_cpu_is_that_of_the_same_lines() -> None:
    rate, cpu = rate_and_cpu(REPLICATED_CLIENT, (CACHED, CACHED_DEEP))
    measured = lines((REPLICATED_CLIENT, 90.0, 6.0), (CACHED, 60.0, 2.0), (CACHED_DEEP, 100.0, 5.0))
    one, two = judged(rate, "a row", measured), judged(cpu, "a row", measured)
    assert one is not None
    assert two is not None
    assert (one.ratio, one.reached, one.theirs) == (0.9, False, "Kafka, window 50,000, its best: 100/s")
    assert (two.ratio, two.reached, two.theirs) == (1.2, False, "Kafka, window 50,000, its best: 5.00 us")
    assert two.goal == "at most 1"
    frugal = judged(cpu, "a row", lines((REPLICATED_CLIENT, 1.0, 5.0), (CACHED, 2.0, 1.0), (CACHED_DEEP, 3.0, 5.0)))
    assert frugal is not None
    assert frugal.reached


def test_of_several_ways_ours_may_be_missing_and_the_rivals_may_not() -> None:
    goal = Goal((REPLICATED, REPLICATED_CLIENT), (CACHED, CACHED_DEEP), 1.0)
    both = (CACHED, 60.0, 1.0), (CACHED_DEEP, 30.0, 1.0)
    found = judged(goal, "a row", lines((REPLICATED, 60.0, 1.0), *both))
    assert found is not None
    assert found.reached
    assert judged(goal, "a row", lines((REPLICATED, 60.0, 1.0), both[0])) is None
    assert judged(goal, "a row", lines(*both)) is None


def test_what_is_received_is_judged_where_that_is_asked() -> None:
    goal = Goal((REPLICATED_CLIENT,), (CACHED,), 1.0, "received")
    measured = lines((REPLICATED_CLIENT, 10.0, 1.0), received=50.0) | lines((CACHED, 90.0, 1.0), received=40.0)
    found = judged(goal, "a row", measured)
    assert found is not None
    assert (found.ratio, found.reached) == (1.25, True)


def test_goals_that_were_ratios_once_and_bounds() -> None:
    assert twice((REPLICATED_CLIENT,), (CACHED,), 62_600, 113_300).factor == 1.105
    assert kept(FSYNC, QUORUM, 5.0).factor == 4.0
    slow, fast = limited("x", 4.5, 3, "s"), limited("x", 3, 3, "s")
    assert (slow.ratio, slow.reached, fast.reached) == (1.5, False, True)
    assert slow.values()[:5] == ("x", "4.5 s", "the bound of 3 s", "1.50", "at most 1")


def test_what_else_went_on_stands_under_each_row() -> None:
    one = dataclasses.replace(cell(FSYNC.title, 60.0), load=(0.5, 1.5), took_s=8.0)
    two = dataclasses.replace(one, load=(0.25, 2.0), other_cores=0.2)
    text = Report([ROW], [one, two], {}, []).markdown()
    assert "2 runs took 16 s; load of the machine before them 0.25 to 0.50, after them 1.50 to 2.00; " in text
    assert "other processes used 0.01 to 0.20 cores" in text


def test_the_leader_is_told_only_where_one_node_leads() -> None:
    divided = dataclasses.replace(cell(FSYNC.title, 60.0), cpu_us={"client": 3.0, "all": 21.0})
    assert "| 3.0 | - | - | 21.0 |" in Report([ROW], [divided], {}, []).markdown()


def test_nobody_of_ours_is_judged_with_more_in_flight_than_who_stands_beside() -> None:
    """But where our client chooses by itself, for the latency that it aims at."""

    def deepest(row: Row, side: tuple[Contestant, ...]) -> int:
        return max(row.window if one.window == "row" else one.window for one in side if one.window != "own")

    judged_ones = [(row, goal) for row in MATRIX for goal in row.goals if any(one.window != "own" for one in goal.mine)]
    assert all(deepest(row, goal.mine) <= deepest(row, goal.theirs) for row, goal in judged_ones)
    assert any(deepest(row, goal.mine) > row.window for row, goal in judged_ones)


def test_the_defaults_are_held_against_a_deep_window_and_their_latency_against_a_bound() -> None:
    goal = defaults(FSYNC_MANY, FSYNC_MANY_DEEP)
    row = Row("r", "a row", (FSYNC_MANY, FSYNC_MANY_DEEP), goals=(goal,), within_ms=((FSYNC_MANY, 0.9), (QUORUM, 20)))
    report = Report([row], [cell(FSYNC_MANY.title, 91.0), cell(FSYNC_MANY_DEEP.title, 100.0)], {}, [])
    assert [(verdict.subject, verdict.reached) for verdict in report.verdicts] == [
        ("a row: events/s", True), ("a row: p50 of Holdfast fsync, send_many", False),
    ]  # fmt: skip
    slower = Report([row], [cell(FSYNC_MANY.title, 89.0), cell(FSYNC_MANY_DEEP.title, 100.0)], {}, [])
    assert not slower.verdicts[0].reached


def test_extras_have_tables_and_goals() -> None:
    found = ExtraTable(
        "many", ("what", "how much"), [("idle", "0.08 cores")], [limited("idle", 0.08, 0.1, "cores")], ["so"]
    )
    report = Report([], [], {}, [], extras=[found])
    assert "| idle | 0.08 cores |" in report.markdown()
    assert "| idle | 0.08 cores | the bound of 0.1 cores | 0.80 | at most 1 | reached |" in report.markdown()
    assert "- so" in report.markdown()


def test_contestants_are_chosen_by_title_or_by_a_word_in_it() -> None:
    assert _titles(["Holdfast fsync"]) == {FSYNC.title}
    assert _titles(["quorum", "RabbitMQ STREAM,"]) == {QUORUM.title, "RabbitMQ stream, window 1,000"}
    assert len(_titles(["kafka"])) > 5
    with pytest.raises(click.BadParameter, match="no contestant has 'rabit' in its title"):
        _titles(["rabit"])
    (row,) = _selection(["1KiB"], {FSYNC.title})
    assert row.contestants == (FSYNC,)


def test_medians_of_several_clusters_are_taken_figure_by_figure() -> None:
    found = [partitions.Figures(10, created_s=s, idle_cores=c) for s, c in ((1.0, 0.3), (2.0, 0.1), (9.0, 0.2))]
    assert partitions.medians(found) == partitions.Figures(10, created_s=2.0, idle_cores=0.2)


def test_growth_is_what_the_second_half_added() -> None:
    idle = Sample(0, {"node1": 100.0})
    rising_then_level = [Sample(n, {"node1": size}) for n, size in ((1, 180.0), (2, 250.0), (3, 251.0), (4, 252.0))]
    leaking = [Sample(n, {"node1": 100.0 + 30.0 * n}) for n in range(1, 5)]
    assert [good for good, _ in verdicts(idle, rising_then_level)] == [True, True]
    assert [good for good, _ in verdicts(idle, leaking)] == [True, False]


def bodies(numbers: list[int], sender_id: int = 1) -> list[bytes]:
    template = Template(100, sender_id)
    return [body for number in numbers for body in template.bodies(number, 1, 1000 + number)]


def test_what_is_missing_comes_twice_or_is_not_ours_is_counted() -> None:
    sequences = Sequences()
    assert sequences.take(bodies([0, 1, 2, 5])) == [1000, 1001, 1002, 1005]
    assert sequences.take([*bodies([6, 6, 7]), *bodies([40, 41], sender_id=2), b"x" * 100, b"short"]) == [
        1006, 1006, 1007, 1040, 1041,
    ]  # fmt: skip
    assert (sequences.gaps, sequences.repeats, sequences.foreign) == (2, 1, 2)
    sequences.take(bodies([3, 8]))  # an old one again leaves no gap behind it
    assert (sequences.gaps, sequences.repeats) == (2, 2)


def test_of_a_list_without_a_hole_only_the_ends_are_looked_at() -> None:
    sequences = Sequences()

    def count(numbers: list[int], sender_id: int = 1) -> tuple[int, bool]:
        """How many are ours, and whether all were looked at."""
        given, looked = bodies(numbers, sender_id), []
        return sequences.count(len(given), given[0], given[-1], lambda: looked.append(1) or given), bool(looked)  # type: ignore[func-returns-value]

    assert count([0, 1, 2]) == (3, False)
    assert count([3]) == (1, False)
    assert (sequences.gaps, sequences.repeats) == (0, 0)
    assert count([5, 6]) == (2, True)  # 4 is missing in front
    assert count([7, 9, 10]) == (3, True)  # 8 within
    assert (sequences.gaps, sequences.repeats) == (2, 0)
    assert count([10, 11]) == (2, True)
    assert count([12, 12, 13]) == (3, True)
    assert (sequences.gaps, sequences.repeats, sequences.foreign) == (2, 2, 0)
    assert count([0, 1], sender_id=2) == (2, False)
    ends_alike = [*bodies([14]), *bodies([15], sender_id=2)]  # of two senders
    assert sequences.count(2, ends_alike[0], ends_alike[1], lambda: ends_alike) == 2
    assert (sequences.gaps, sequences.repeats) == (2 + 13, 2)
    assert sequences.count(1, b"alien", b"alien", lambda: [b"alien"]) == 0
    assert sequences.foreign == 1


def test_a_greeting_counts_as_nothing() -> None:
    sequences, given = Sequences(), [GREETING, *bodies([0, 1])]
    assert sequences.count(3, given[0], given[-1], lambda: given) == 2
    assert sequences.take([GREETING]) == []
    assert (sequences.gaps, sequences.repeats, sequences.foreign) == (0, 0, 0)


def test_a_body_is_the_message_without_what_amqp_puts_around_it() -> None:
    template = Template(100, sender_id=1)
    template.stamp(4, 5)
    third, fourth = template.bodies(3, 2, 5)
    assert template.buffer.endswith(fourth)
    assert len(third) == len(fourth) == 100 < len(template.buffer)
    assert [read_stamp(third, 100), read_stamp(fourth, 100)] == [(1, 3, 5), (1, 4, 5)]


def test_kafka_is_held_against_the_client_first_and_else_against_the_driver() -> None:
    row = Row("r", "a row", (REPLICATED, REPLICATED_CLIENT, CACHED))
    rates = {REPLICATED.title: 40.0, REPLICATED_CLIENT.title: 60.0, CACHED.title: 20.0}
    text = Report([row], [cell(title, rate) for title, rate in rates.items()], {}, []).markdown()
    assert "| Kafka | 20 | 0.0 | 3.00 |" in text
    del rates[REPLICATED_CLIENT.title]
    text = Report([row], [cell(title, rate) for title, rate in rates.items()], {}, []).markdown()
    assert "| Kafka | 20 | 0.0 | 2.00 |" in text


def test_a_contestant_that_cannot_be_had_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bench = Bench([Row("r", "a row", (CACHED,))], 1, 1.0, Console(quiet=True))
    with contextlib.ExitStack() as life:
        bench.start(tmp_path, life)
    bench.run()
    assert not bench.peers
    assert not bench.cells
    (note,) = bench.notes
    assert note in Report(bench.rows, bench.cells, {}, bench.notes).markdown()
    assert "Kafka's rows are left out" in note
