"""Schedules the interpreter's full garbage collections, so that they do not stop the loop for long.

The problem: the collector of CPython looks at every object of the process whenever a quarter more have survived than
were there before. With ten thousand links that is a quarter of a second in which nobody is served, and peers decide
when. Nearly everything here is freed by counting references, at once; a connection leaves no reference cycles behind
(`node/listener/connections/connection.py`). The rules: young objects are collected as always; a full collection runs
only when the last one lets us expect that it takes at most MOST_S, or when so much has come since then that it must be
garbage, for peers cannot make the node hold that much (`node/listener/limits/memory_budgets.py`). A collection that was
put off is owed, and made when the peers' objects are gone. Rejected: no full collection at all. Bugs make cycles, and a
node runs for months. Rejected, too: `gc.freeze` from time to time, which hides old objects from the collector for ever,
their cycles with them.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time

YOUNG, MIDDLE, NEVER = 700, 10, 1 << 30
"""Thresholds of the collector's three generations: the first two are the usual ones, the third is ours to decide."""

PERIOD_S = 1.0

MOST_S = 0.02
"""Longest full collection that is run at once: with what else a turn of the loop has to do it stays under 50 ms."""

FIRST_GUESS_S = 100e-9
"""Time for each of the interpreter's blocks of memory, before the first full collection has shown it."""

GROWTH = 0.25
LEAST_GROWTH_BLOCKS = 50_000
"""Growth since the last full collection, before another is worth it: some megabytes."""

MOST_GROWTH_BLOCKS = 2_000_000
"""Growth since the last full collection that forces one, however long it takes: about 160 MiB. Ten thousand links are a
third of it."""


class GarbageCollection:
    def __init__(self) -> None:
        self.looks = 0
        self.put_off = 0
        """Full collections that were due and would have taken too long."""
        self._block_s = FIRST_GUESS_S
        self._frozen = 0  # blocks that the collector does not look at
        self._lowest = 0  # blocks, since the last look
        self._owed = False
        self._timer: asyncio.TimerHandle | None = None
        self._before = gc.get_threshold()

    def start(self) -> None:
        """Freeze the objects that exist now (modules, the node's parts), and take over the third generation."""
        self._before = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._frozen = self._lowest = sys.getallocatedblocks()
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.set_threshold(*self._before)
            gc.unfreeze()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._called)

    def _called(self) -> None:
        if self.is_due(sys.getallocatedblocks()):
            self._look()
        self._wait()

    def is_due(self, blocks: int) -> bool:
        """Tell whether a full collection should run, with so many blocks allocated now."""
        self._lowest = min(self._lowest, blocks)
        grown, young = blocks - self._lowest, max(0, self._lowest - self._frozen)
        if grown >= max(LEAST_GROWTH_BLOCKS, GROWTH * young):
            self._owed = True
        if not self._owed:
            return False
        if grown >= MOST_GROWTH_BLOCKS or self._block_s * (blocks - self._frozen) <= MOST_S:
            return True
        self.put_off += 1
        return False

    def looked(self, took_s: float, before: int, after: int) -> None:
        """Note a full collection: its seconds, and the blocks before and after."""
        self.looks += 1
        self._owed = False
        self._lowest = after
        if before - self._frozen >= LEAST_GROWTH_BLOCKS:
            self._block_s = took_s / (before - self._frozen)

    def _look(self) -> None:
        before, began_s = sys.getallocatedblocks(), time.thread_time()
        gc.collect()
        self.looked(time.thread_time() - began_s, before, sys.getallocatedblocks())
