"""Long tests begin first in every process of a run, and none is left out or run twice (tests/conftest.py)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.conftest import DEAR, pytest_collection_modifyitems


@dataclass(frozen=True)
class Item:
    number: int
    early: bool
    fixturenames: tuple[str, ...] = ()
    longest: bool = False

    def get_closest_marker(self, name: str) -> str | None:
        return name if {"early": self.early, "longest": self.longest}[name] else None


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize(("count", "early"), [(0, 0), (20, 3), (100, 0), (101, 7)])
def test_each_process_begins_with_its_share_of_the_long_ones(
    monkeypatch: pytest.MonkeyPatch, processes: int, count: int, early: int
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(processes))
    items = [Item(number, early=number % 3 == 0 and number // 3 < early) for number in range(count)]
    marked = sum(item.early for item in items)
    ordered = list(items)
    pytest_collection_modifyitems(ordered)  # type: ignore[arg-type]
    assert sorted(item.number for item in ordered) == list(range(count))
    for process in range(processes):
        # As pytest-xdist divides the list, when every process has work.
        part = ordered[count * process // processes : count * (process + 1) // processes]
        share = len(range(process, marked, processes))
        assert [item.early for item in part] == [True] * share + [False] * (len(part) - share)
    others = [item.number for item in ordered if not item.early]
    assert others == sorted(others), "whoever shares a fixture stays together"


def test_what_shares_a_dear_thing_is_with_the_last_process_and_the_longest_with_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    fixtures = {0: ("cluster", DEAR), 1: (DEAR,), 2: ("cluster",)}
    items = [Item(number, number < 6, fixtures.get(number % 9, ()), longest=number == 4) for number in range(90)]
    ordered = list(items)
    pytest_collection_modifyitems(ordered)  # type: ignore[arg-type]
    assert ordered[0].number == 4
    last = [item.fixturenames for item in ordered[60 + 2 :][:18]]  # behind its two of the six long ones
    assert last == [(DEAR,)] * 9 + [("cluster", DEAR)] * 9
    assert sorted(item.number for item in ordered) == list(range(90))
