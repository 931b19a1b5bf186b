"""Cleaning of the write-ahead log: how often, and how fast."""

from __future__ import annotations

import asyncio

import pytest

from cluster.raft.snapshot.bandwidth import BURST_S, CopyBudget
from node.movement import segment_cleaner
from node.movement.segment_cleaner import PERIOD_S, SHORT_PERIOD_S, STEP_BYTES, SegmentCleaner
from node.storage import CompactionResult

MIB = 1 << 20


class ThinStore:
    """A store with so many thin segments of a MiB that moves."""

    def __init__(self, thin: int = 0, *, short: bool = False) -> None:
        self.thin, self.short = thin, short
        self.waiting = 0
        self.calls: list[str] = []

    def is_short(self) -> bool:
        return self.short

    def reclaim(self) -> CompactionResult:
        assert self.short or not self.waiting
        self.calls.append("reclaim")
        if self.thin:
            self.thin, self.waiting = self.thin - 1, MIB
        return CompactionResult(1, MIB, self.waiting, self.short)

    def move(self, most_bytes: int) -> int:
        moved = min(self.waiting, most_bytes)
        self.waiting -= moved
        self.calls.append(f"move {moved}")
        return moved


class Cleaning:
    """A cleaner of such a store, with a clock of its own."""

    def __init__(self, store: ThinStore, bytes_per_s: int = 64 * MIB) -> None:
        self.store = store
        self.now = 1000.0
        self.full = False
        self.failures: list[Exception] = []
        self.erased = 0
        self.budget = CopyBudget(bytes_per_s)
        self.cleaner = SegmentCleaner(
            store,
            self.budget,
            lambda: self.now,
            is_full=lambda: self.full,
            erase_leftovers=self._erase,
            on_failed=self.failures.append,
        )

    def _erase(self) -> None:
        self.erased += 1

    def is_due_after(self, seconds: float) -> bool:
        self.now = 1000.0 + seconds
        return self.cleaner.is_due()


def test_once_a_minute_is_enough_while_there_is_space() -> None:
    cleaning = Cleaning(ThinStore())
    assert not cleaning.is_due_after(PERIOD_S - 1)
    assert cleaning.is_due_after(PERIOD_S)


def test_a_disk_that_gets_full_is_cleaned_more_often() -> None:
    cleaning = Cleaning(ThinStore(short=True))
    assert not cleaning.is_due_after(SHORT_PERIOD_S - 1)
    assert cleaning.is_due_after(SHORT_PERIOD_S)


def test_a_node_that_refuses_events_cleans_each_time_it_looks() -> None:
    cleaning = Cleaning(ThinStore())
    cleaning.full = True
    assert cleaning.is_due_after(0)


async def test_it_cleans_soon_after_a_replica_was_erased_and_once() -> None:
    cleaning = Cleaning(ThinStore())
    cleaning.cleaner.ask()
    assert cleaning.is_due_after(0)
    await cleaning.cleaner.clean()
    assert not cleaning.is_due_after(0)
    assert cleaning.erased == 1


async def test_while_space_is_short_it_goes_on_until_nothing_is_thin() -> None:
    cleaning = Cleaning(ThinStore(3, short=True), bytes_per_s=1 << 40)
    await asyncio.wait_for(cleaning.cleaner.clean(), 40)
    steps = [f"move {STEP_BYTES}"] * (MIB // STEP_BYTES) + ["move 0"]
    assert cleaning.store.calls == ["reclaim", *steps] * 3 + ["reclaim"]


async def test_else_what_moves_is_left_to_the_writes_of_the_node() -> None:
    cleaning = Cleaning(ThinStore(3))
    await cleaning.cleaner.clean()
    assert cleaning.store.calls == ["reclaim"]


async def test_it_moves_no_faster_than_copies_may_come_in() -> None:
    cleaning = Cleaning(ThinStore(1, short=True), bytes_per_s=MIB)
    running = asyncio.ensure_future(cleaning.cleaner.clean())
    moved = 0
    while not running.done():
        await asyncio.sleep(0.002)
        moved = max(moved, MIB - cleaning.store.waiting if cleaning.store.calls else 0)
        assert moved <= STEP_BYTES + (cleaning.now - 1000.0 + BURST_S) * MIB
        cleaning.now += 0.01
    assert moved == MIB
    assert cleaning.now >= 1000.0 + (MIB - STEP_BYTES) / MIB - BURST_S


async def test_a_store_that_fails_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the disk would fill unnoticed."""
    cleaning = Cleaning(ThinStore())
    error = OSError("input/output error")

    def fail() -> CompactionResult:
        raise error

    cleaning.store.reclaim = fail  # type: ignore[method-assign]
    cleaning.cleaner.ask()
    monkeypatch.setattr(segment_cleaner, "LOOK_EVERY_S", 0.01)
    await asyncio.wait_for(cleaning.cleaner.run(), 40)
    assert cleaning.failures == [error]
