"""Cleaning of the write-ahead log: space that groups gave up goes back to the file system.

The problem: all groups share segments, so a replica that was erased leaves holes in all of them. While there is space
that costs nothing, and entries are moved out of thin segments along with other writes. On a disk that gets full it must
come back soon, also where nothing else is written, and clients must not wait for it.

The rules: while space is short, cleaning goes on as soon as the last segments are done, until little is dead
(`storage/wal/compaction.py` says how much). What it moves takes from the budget of copies that come in, more than its
bytes. So it slows down while clients feel it, as copies do. Otherwise once a minute is enough: most logs are trimmed by
whole segments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from cluster.raft.snapshot.bandwidth import CopyBudget
from node.storage import CompactionResult

LOOK_EVERY_S = 2.0
"""Seconds between looks at whether cleaning is due. A node that refuses events for lack of room cleans each time: an
operator may have shortened the retention just now."""

PERIOD_S, SHORT_PERIOD_S = 60.0, 10.0
"""Seconds between cleanings, and while space is short."""

STEP_BYTES = 256 << 10
"""Bytes moved at once: a millisecond of the loop."""

MOVED_COST = 4
"""A byte that moves takes so many from the budget: it is read, and written by the turns that clients wait for
(`docs/internals/cost.md` has figures) ..."""
LITTLE_FREE = 0.05
"""... which is better than to refuse events: with less than this share of the file system free, it takes its bytes."""


class CleanedStore(Protocol):
    """The store, as its cleaning needs it."""

    def is_short(self) -> bool: ...
    def free_share(self) -> float: ...
    def reclaim(self) -> CompactionResult: ...
    def warm(self, most_bytes: int) -> None: ...
    def move(self, most_bytes: int) -> int: ...


class SegmentCleaner:
    def __init__(
        self,
        disk: CleanedStore,
        budget: CopyBudget,
        clock: Callable[[], float],
        *,
        is_full: Callable[[], bool],
        erase_leftovers: Callable[[], None],
        on_failed: Callable[[Exception], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`is_full`: events are refused for lack of room. `on_failed` is told of an error of the store."""
        self._disk = disk
        self._budget = budget
        self._clock = clock
        self._is_full = is_full
        self._erase_leftovers = erase_leftovers
        self._on_failed = on_failed
        self._sleep = sleep
        self._cleaned_at = clock()
        self._asked = False

    def ask(self) -> None:
        """Ask for a cleaning soon: a replica was erased."""
        self._asked = True

    async def run(self) -> None:
        """Clean when it is due, until cancelled."""
        try:
            while True:
                await self._sleep(LOOK_EVERY_S)
                if self.is_due():
                    await self.clean()
        except Exception as error:  # noqa: BLE001  without this the disk would fill unnoticed
            self._on_failed(error)

    def is_due(self) -> bool:
        if self._asked or self._is_full():
            return True
        period_s = SHORT_PERIOD_S if self._disk.is_short() else PERIOD_S
        return self._clock() - self._cleaned_at >= period_s

    async def clean(self) -> None:
        """Remove what is not needed; while space is short, empty thin segments until little is dead."""
        self._asked = False
        self._erase_leftovers()
        while True:
            done = await asyncio.to_thread(self._disk.reclaim)
            self._cleaned_at = self._clock()
            if not (done.is_short and done.moving_bytes):
                return
            await self._move()

    async def _move(self) -> None:
        """Move what waits to be moved, at the pace of copies that come in."""
        while True:
            now = self._clock()
            opens_at = self._budget.opens_at(now, self)
            if opens_at is not None:
                await self._sleep(opens_at - now)
                continue
            await asyncio.to_thread(self._disk.warm, STEP_BYTES)  # the loop must not wait for a disk
            cost = self._disk.move(STEP_BYTES)
            if not cost:
                return
            is_urgent = self._is_full() or self._disk.free_share() < LITTLE_FREE
            self._budget.charge(cost if is_urgent else cost * MOVED_COST, now)
