"""Ranges of one partition's log whose events were rolled back: committed readers pass them over.

The problem: this is needed as long as the events are stored, and it is in every checkpoint. The rule never broken: an
event of a rolled-back transaction is in a range, and no event of a committed one is, whatever was merged.

A producer has one transaction open at a time, so between the first event of a transaction and its end there is no
transactional event of that producer that belongs to another. That stretch of the log, with the producer's id, says all:
no epoch is needed. A producer that rolls back again, and has committed nothing in between, makes its range longer. What
cannot be merged is bounded: with MAX_RANGES no transaction writes that could add one more. Retention makes room.

Rejected: dropping ranges (readers would see what was rolled back), or merging over a commit (they would miss it); and
ranges on the disk beside the offset index, as Kafka has them: a third kind of rows to copy and to trim, for logs that
roll back a hundred thousand times within their retention.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

MAX_RANGES = 100_000
"""Ranges of one partition. Each is some 20 bytes of every checkpoint and 200 to 350 of memory; so many take 12 ms to
encode. The transactions that have written when it is reached (MAX_OPEN at most) may add theirs."""


class AbortedRange(msgspec.Struct, array_like=True):
    """Range of rolled-back events: the producer's transactional ones at `first <= offset < end`."""

    producer_id: int
    first: int
    end: int
    grows: bool = True  # it has committed no event since


class AbortedRanges:
    """Aborted ranges of a partition, by the order of their ends."""

    def __init__(self, rows: Iterable[AbortedRange] = ()) -> None:
        self._by_first = {row.first: row for row in rows}
        self._firsts: dict[int, list[int]] = {}  # of each producer, ascending: its ranges do not overlap
        for row in self._by_first.values():
            self._firsts.setdefault(row.producer_id, []).append(row.first)

    def __len__(self) -> int:
        return len(self._by_first)

    def rows(self) -> list[AbortedRange]:
        """The ranges; equal on equal replicas."""
        return list(self._by_first.values())

    def contains(self, producer_id: int, offset: int) -> bool:
        firsts = self._firsts.get(producer_id)
        if firsts is None:
            return False
        at = bisect_right(firsts, offset)
        return at > 0 and offset < self._by_first[firsts[at - 1]].end

    def has_room_for(self, producer_id: int) -> bool:
        """Tell whether another transaction of the producer may be rolled back within MAX_RANGES."""
        last = self._last(producer_id)
        return len(self._by_first) < MAX_RANGES or (last is not None and last.grows)

    def add(self, producer_id: int, first: int, end: int) -> None:
        """Add a rolled-back transaction: its first event is at `first`, and the log ended at `end`."""
        last = self._last(producer_id)
        if last is not None and last.grows:
            del self._by_first[last.first]
            last.end = end
            self._by_first[last.first] = last
            return
        self._by_first[first] = AbortedRange(producer_id, first, end)
        self._firsts.setdefault(producer_id, []).append(first)

    def committed(self, producer_id: int) -> None:
        """Note a committed event of the producer: its next rollback is a range of its own."""
        if (last := self._last(producer_id)) is not None:
            last.grows = False

    def forget_below(self, start_offset: int) -> None:
        """Drop ranges that end at or below the start offset: their events are not stored any more."""
        gone: dict[int, int] = {}
        for row in self._by_first.values():
            if row.end > start_offset:
                break
            gone[row.producer_id] = gone.get(row.producer_id, 0) + 1
        for producer_id, count in gone.items():
            firsts = self._firsts[producer_id]
            for first in firsts[:count]:
                del self._by_first[first]
            del firsts[:count]
            if not firsts:
                del self._firsts[producer_id]

    def _last(self, producer_id: int) -> AbortedRange | None:
        firsts = self._firsts.get(producer_id)
        return self._by_first[firsts[-1]] if firsts else None
