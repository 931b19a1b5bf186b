"""Pairs of now and before: each has a ratio, the median of them decides, and nodes and client of the earlier checkout
are really that one's."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from rich.console import Console

from benchmarks.matrix.cell import Cell
from benchmarks.matrix.contestants import FSYNC, FSYNC_MANY
from benchmarks.matrix.rows import MATRIX, Row
from benchmarks.subjects.pairs import HEADS, HERE, Compared, Pair, compare, environment_of, table


def _cell(rate: float, cpu_us: float = 10.0, p99: float = 20.0) -> Cell:
    return Cell("1KiB", FSYNC.title, rate, None, {"p99": p99}, {"all": cpu_us}, 0.0, (), {})


def _compared(*rates: tuple[float, float]) -> Compared:
    return Compared(MATRIX[0], FSYNC, [Pair(_cell(before), _cell(now)) for before, now in rates])


def test_a_row_is_kept_by_the_median_of_its_pairs_whatever_the_machine_did_between_them() -> None:
    slowed = _compared((100.0, 101.0), (40.0, 41.0), (100.0, 30.0))  # the last one was disturbed
    assert slowed.ratio == pytest.approx(1.01)
    assert slowed.kept


def test_a_row_that_lost_more_than_noise_is_called_lost() -> None:
    lost = _compared((100.0, 89.0), (50.0, 44.0), (10.0, 8.9))
    assert not lost.kept
    assert "LOST" in table([lost], {})
    assert _compared((100.0, 90.0)).kept


def test_a_line_says_rates_the_spread_and_what_it_cost() -> None:
    line = Compared(MATRIX[0], FSYNC, [Pair(_cell(100.0, 10.0, 20.0), _cell(110.0, 8.0, 30.0))]).values()
    assert len(line) == len(HEADS)
    assert line[2:] == ("100", "110", "1.10", "1.10 .. 1.10", "0.80", "1.50", "kept")


def test_nodes_come_from_the_checkout_that_was_named() -> None:
    assert environment_of(HERE)["PYTHONPATH"] == str(HERE)


def test_a_directory_without_holdfast_is_refused(tmp_path: Path) -> None:
    """Though one is installed, which would be compared with itself."""
    with pytest.raises(click.BadParameter, match="no Holdfast can be run"):
        environment_of(tmp_path)


@pytest.mark.cluster
def test_two_clusters_are_measured_in_turns() -> None:
    row, both = Row("r", "few events", (FSYNC, FSYNC_MANY), count=500), [FSYNC, FSYNC_MANY]
    lines = compare(HERE, [row], both, 2, 1.0, Console(quiet=True))
    assert [len(line.pairs) for line in lines] == [2, 2]
    assert all(cell.problems == () for line in lines for pair in line.pairs for cell in (pair.before, pair.now))
