"""What is done to the machine before a cell is measured."""

from __future__ import annotations

import mmap
from types import SimpleNamespace
from typing import Self

import psutil
import pytest

from benchmarks import machine
from benchmarks.matrix import cell
from benchmarks.matrix.rows import MATRIX
from benchmarks.peers.base import PeerFailed

MIB = 1 << 20


@pytest.mark.parametrize(("free", "touched"), [(64 * MIB, 16 * MIB), (1 << 50, 24 * MIB), (0, mmap.PAGESIZE)])
def test_free_memory_is_touched_within_a_bound_and_given_back(
    monkeypatch: pytest.MonkeyPatch, free: int, touched: int
) -> None:
    maps: list[mmap.mmap] = []
    present: list[int] = []

    class Watched(mmap.mmap):
        def __new__(cls, *arguments: int, flags: int) -> Self:
            before = psutil.Process().memory_info().rss
            one = super().__new__(cls, *arguments, flags=flags)
            present.append(psutil.Process().memory_info().rss - before)
            maps.append(one)
            return one

    monkeypatch.setattr(machine, "BACKED_BYTES", 24 * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(free=free))
    monkeypatch.setattr(mmap, "mmap", Watched)
    assert machine.back_free_memory() == touched
    (one,) = maps
    assert one.closed
    assert present[0] >= 0.9 * touched or touched == mmap.PAGESIZE, "its pages are there, not only its addresses"


def test_memory_is_touched_before_a_cell_whoever_it_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in MATRIX:
        for contestant in row.contestants:
            did: list[str] = []

            def create(*_: object, did: list[str] = did) -> None:
                did.append("log made")
                raise PeerFailed("far enough")

            monkeypatch.setattr(machine, "back_free_memory", lambda did=did: did.append("memory touched"))
            with pytest.raises(PeerFailed):
                cell.measure(row, contestant, {contestant.peer: SimpleNamespace(create=create)}, 1.0)
            assert did == ["memory touched", "log made"]
