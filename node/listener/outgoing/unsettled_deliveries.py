"""Unsettled deliveries of a link, from delivery number to event.

Problem: after a rollback events come again, so a link must know what it sent under which number; and it sends hundreds
of thousands a second, nearly all of which are settled in order and never asked for. So it keeps one row for each run of
consecutive events, and how far everything is settled; only deliveries that are settled out of order cost more.

Rules never broken: a number that is not settled is found; and memory is bounded by the unsettled deliveries, which a
link bounds, and not by how much was handed out since the oldest of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

C = TypeVar("C")

MAX_EARLY = 8192
"""Deliveries settled out of order, before the unsettled ones below are set aside one by one: a peer that keeps a single
delivery for ever costs some 600 KiB."""


class UnsettledDeliveries(Generic[C]):
    """Deliveries that were sent and are not settled. `C`: the cursor that the events came from."""

    def __init__(self) -> None:
        self._runs: deque[tuple[int, int, C, int]] = deque()  # first number, count, cursor, first offset
        self._low = 0  # every delivery below is settled
        self._early: set[int] = set()  # settled, and not below
        self._next = 0
        self._aside: dict[int, tuple[C, int]] = {}  # (cursor, offset) of numbers below `_low` that are not settled

    def sent(self, first: int, cursor: C, runs: Sequence[tuple[int, int]]) -> None:
        """Note deliveries that are numbered from `first` on; `runs`: (offset, count) of their events."""
        for offset, count in runs:
            self._runs.append((first, count, cursor, offset))
            first += count
        self._next = first

    def find(self, number: int) -> tuple[C, int] | None:
        """(cursor, offset) of a delivery that is not settled."""
        if number in self._aside:
            return self._aside[number]
        if not self._low <= number < self._next or number in self._early:
            return None
        at = bisect_right(self._runs, number, key=lambda run: run[0]) - 1
        if at < 0:
            return None
        first, count, cursor, offset = self._runs[at]
        return (cursor, offset + number - first) if number < first + count else None

    def settled(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        first, last = min(numbers), max(numbers)  # a peer settles in any order
        if first == self._low and last - first == len(numbers) - 1 and not self._early:
            self._low = last + 1
        else:
            early = self._early
            early.update(number for number in numbers if number >= self._low)
            if self._aside:
                for number in numbers:
                    self._aside.pop(number, None)
            while self._low in early:
                early.remove(self._low)
                self._low += 1
            if len(early) > MAX_EARLY:
                self._set_aside()
        runs = self._runs
        while runs and runs[0][0] + runs[0][1] <= self._low:
            runs.popleft()

    def _set_aside(self) -> None:
        """Set all unsettled deliveries aside, one by one; each number is looked at here once."""
        for number in range(self._low, self._next):
            found = self.find(number)
            if found is not None:
                self._aside[number] = found
        self._early.clear()
        self._low = self._next
