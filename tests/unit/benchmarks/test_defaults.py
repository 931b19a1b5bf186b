"""What is said of the client's defaults: of pairs in which the machine was quiet, and of both bounds."""

from __future__ import annotations

import pytest

from benchmarks.matrix.cell import Cell
from benchmarks.subjects.defaults import HEADS, QUIET_CORES, SHARE, TARGET_MS, Pair, holds, is_quiet, values


def cell(rate: float, p50_ms: float, other_cores: float = 0.0) -> Cell:
    return Cell("100B", "holdfast", rate, None, {"p50": p50_ms}, {}, other_cores, (), {})


def pair(rate: float, p50_ms: float, *, beside: float = 1000.0, busy: float = 0.0) -> Pair:
    return cell(rate, p50_ms), cell(beside, 50.0, busy)


@pytest.mark.parametrize(
    ("rates", "waits_ms", "good"),
    [
        ([1000, 1000, 1000], [10, 10, 10], True),
        ([SHARE * 1000, SHARE * 1000, 1], [TARGET_MS, TARGET_MS, 99], True),
        ([SHARE * 999, SHARE * 999, 5000], [10, 10, 10], False),
        ([1000, 1000, 1000], [TARGET_MS + 0.1, TARGET_MS + 0.1, 1], False),
    ],
    ids=["both", "both, just", "too little", "too late"],
)
def test_the_defaults_hold_where_half_of_the_pairs_keep_both_bounds(
    rates: list[float], waits_ms: list[float], good: bool
) -> None:
    assert holds([pair(*one) for one in zip(rates, waits_ms, strict=True)]) is good


def test_each_pair_has_a_ratio_of_its_own() -> None:
    """Of the medians of each side the ratio would be 0.5."""
    assert holds([pair(1000, 10, beside=1000), pair(500, 10, beside=500), pair(500, 10, beside=2000),
                  pair(100, 10, beside=100), pair(1000, 10, beside=1500)])  # fmt: skip


@pytest.mark.parametrize(("busy", "quiet"), [(QUIET_CORES, True), (QUIET_CORES + 0.01, False)])
def test_a_pair_is_quiet_when_both_cells_were(busy: float, quiet: bool) -> None:
    own, deep = pair(1000, 10, busy=busy)
    assert is_quiet((own, deep)) is is_quiet((deep, own)) is quiet


def test_pairs_on_a_busy_machine_are_left_out_and_counted() -> None:
    pairs = [pair(900, 18), pair(950, 19), pair(990, 19.5), pair(300, 40, busy=1.0), pair(200, 5, busy=1.0)]
    row = dict(zip(HEADS, values("fsync", pairs), strict=True))
    assert row == {
        "nodes": "fsync", "quiet pairs": "3", "left out": "2",
        "defaults, events/s": "950", "p50, ms (lowest .. highest)": "19.0 (18.0 .. 19.5)",
        "window 50,000, events/s": "1,000", "p50, ms": "50.0",
        "ratio: median of pairs": "0.95", "lowest .. highest": "0.90 .. 0.99", "ratio with these": "0.90",
    }  # fmt: skip
