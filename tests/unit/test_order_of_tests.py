"""Long tests begin first in every process of a run, and none is left out or run twice (tests/conftest.py)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.conftest import pytest_collection_modifyitems


@dataclass(frozen=True)
class Item:
    number: int
    early: bool

    def get_closest_marker(self, name: str) -> str | None:
        return name if self.early and name == "early" else None


@pytest.mark.parametrize("processes", [1, 2, 3])
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
