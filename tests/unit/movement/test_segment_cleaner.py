"""Cleaning of the write-ahead log: how often, and how fast."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cluster.raft.snapshot.bandwidth import BURST_S, CopyBudget
from node.movement.segment_cleaner import MOVED_COST, PERIOD_S, SHORT_PERIOD_S, STEP_BYTES, SegmentCleaner
from node.storage import CompactionResult

MIB = 1 << 20


class ThinStore:
    """A store with so many thin segments of a MiB that moves."""

    def __init__(self, thin: int = 0, *, short: bool = False) -> None:
        self.thin, self.short = thin, short
        self.free = 0.2
        self.waiting = 0
        self.calls: list[str] = []

    def is_short(self) -> bool:
        return self.short

    def free_share(self) -> float:
        return self.free

    def reclaim(self) -> CompactionResult:
        assert self.short or not self.waiting
        self.calls.append("reclaim")
        if self.thin:
            self.thin, self.waiting = self.thin - 1, MIB
        return CompactionResult(1, MIB, self.waiting, self.short)

    def warm(self, most_bytes: int) -> None:
        assert not self.is_on_loop(), "a disk may take long to read"
        self.calls.append("warm")

    @staticmethod
    def is_on_loop() -> bool:
        return threading.current_thread() is threading.main_thread()

    def move(self, most_bytes: int) -> int:
        assert self.is_on_loop(), "who writes is on the loop"
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
            sleep=self._pass,
        )

    def _erase(self) -> None:
        self.erased += 1

    async def _pass(self, seconds: float) -> None:
        self.now += seconds

    def is_due_after(self, seconds: float) -> bool:
        self.now = 1000.0 + seconds
        return self.cleaner.is_due()


async def test_once_a_minute_is_enough_while_there_is_space() -> None:
    cleaning = Cleaning(ThinStore())
    assert not cleaning.is_due_after(PERIOD_S - 1)
    assert cleaning.is_due_after(PERIOD_S)
    await cleaning.cleaner.clean()
    assert not cleaning.is_due_after(2 * PERIOD_S - 1)
    assert cleaning.is_due_after(2 * PERIOD_S)


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
    steps = ["warm", f"move {STEP_BYTES}"] * (MIB // STEP_BYTES) + ["warm", "move 0"]
    assert cleaning.store.calls == ["reclaim", *steps] * 3 + ["reclaim"]


async def test_else_what_moves_is_left_to_the_writes_of_the_node() -> None:
    cleaning = Cleaning(ThinStore(3))
    await cleaning.cleaner.clean()
    assert cleaning.store.calls == ["reclaim"]


async def took_s(cleaning: Cleaning) -> float:
    """Clean, and return the time that it took, by its own clock."""
    await cleaning.cleaner.clean()
    return cleaning.now - 1000.0


async def test_it_moves_no_faster_than_copies_may_come_in_and_slower() -> None:
    took = await took_s(Cleaning(ThinStore(1, short=True), bytes_per_s=MIB))
    assert took >= MOVED_COST * (MIB - STEP_BYTES) / MIB - BURST_S


@pytest.mark.parametrize("is_full", [True, False])
async def test_with_little_free_it_takes_no_more_than_its_bytes(is_full: bool) -> None:
    cleaning = Cleaning(ThinStore(1, short=True), bytes_per_s=MIB)
    cleaning.full, cleaning.store.free = is_full, 0.2 if is_full else 0.04
    took = await took_s(cleaning)
    assert (MIB - STEP_BYTES) / MIB - BURST_S <= took < MOVED_COST * (MIB - STEP_BYTES) / MIB


async def test_a_node_that_comes_to_refuse_events_cleans_faster_at_once() -> None:
    cleaning = Cleaning(ThinStore(1, short=True), bytes_per_s=MIB)
    move = cleaning.store.move

    def move_into_the_last(most_bytes: int) -> int:
        cleaning.full = True
        return move(most_bytes)

    cleaning.store.move = move_into_the_last  # type: ignore[method-assign]
    assert await took_s(cleaning) < MOVED_COST * (MIB - STEP_BYTES) / MIB


async def test_a_store_that_fails_stops_the_node() -> None:
    """Else the disk would fill unnoticed."""
    cleaning = Cleaning(ThinStore())
    error = OSError("input/output error")

    def fail() -> CompactionResult:
        raise error

    cleaning.store.reclaim = fail  # type: ignore[method-assign]
    cleaning.cleaner.ask()
    await asyncio.wait_for(cleaning.cleaner.run(), 40)
    assert cleaning.failures == [error]
