"""When the interpreter looks for garbage that points at itself: never in the way of everybody.

The problem: the collector of CPython looks at every object of the process whenever a quarter more have survived than
were there before. With ten thousand links that is a quarter of a second in which nobody is served, and it is peers that
decide when. Nearly everything here is freed by counting references, at once; what a connection leaves behind points at
nothing of itself (`node/listener/connection.py`). The rules: young objects are looked at as always; all of them only
when that is expected to be done within MOST_S, by what it took the last time, or when so much has come since then that
it must be garbage, for peers cannot make the node hold that much (`node/listener/limits/accounts.py`). A look that was
put off is owed, and made when the peers' objects are gone.
Rejected: no full collection at all. Bugs make cycles, and a node runs for months. Rejected, too: `gc.freeze` from time
to time, which hides old objects from the collector for ever, their cycles with them.
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
"""For a look at everything: with what else a turn of the loop has to do it stays under 50 ms."""

FIRST_GUESS_S = 100e-9
"""For each of the interpreter's blocks of memory, before the first look has shown what it takes here."""

GROWTH = 0.25
LEAST_GROWTH_BLOCKS = 50_000
"""Since the last look, before there is a point in another: some megabytes."""

MOST_GROWTH_BLOCKS = 2_000_000
"""Since the last look, when it is made whatever it takes: about 160 MiB. Ten thousand links are a third of it."""


class Garbage:
    def __init__(self) -> None:
        self.looks = 0
        self.put_off = 0
        """How often a look at everything was due and would have taken too long."""
        self._block_s = FIRST_GUESS_S
        self._frozen = 0  # blocks that the collector does not look at
        self._lowest = 0  # blocks, since the last look
        self._owed = False
        self._timer: asyncio.TimerHandle | None = None
        self._before = gc.get_threshold()

    def start(self) -> None:
        """What there is now stays: modules, and the node's parts."""
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
        """So many there are now."""
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
        """It took so long; so many blocks there were and are."""
        self.looks += 1
        self._owed = False
        self._lowest = after
        if before - self._frozen >= LEAST_GROWTH_BLOCKS:
            self._block_s = took_s / (before - self._frozen)

    def _look(self) -> None:
        before, began_s = sys.getallocatedblocks(), time.thread_time()
        gc.collect()
        self.looked(time.thread_time() - began_s, before, sys.getallocatedblocks())
