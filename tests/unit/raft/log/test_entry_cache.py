"""The newest entries in memory: one bound for all logs of a node, oldest out first."""

from __future__ import annotations

from cluster.raft.log.entry_cache import OVERHEAD_BYTES, EntryCache


class Log:
    def __init__(self) -> None:
        self.dropped: list[int] = []

    def drop_cached(self, index: int) -> None:
        self.dropped.append(index)


def test_entries_count_for_what_they_take_and_the_oldest_of_all_logs_goes_first() -> None:
    one, other = Log(), Log()
    cache = EntryCache(10 * (OVERHEAD_BYTES + 1))
    for index in range(1, 11):
        cache.added(one, index, 1)
    cache.shrink()
    assert one.dropped == [], "it is full, and not too full"
    cache.added(other, 1, 1)
    cache.added(other, 2, OVERHEAD_BYTES)
    cache.shrink()
    assert (one.dropped, other.dropped) == ([1, 2, 3], [])
    assert cache.held_bytes <= 10 * (OVERHEAD_BYTES + 1)


def test_what_a_log_has_let_go_of_counts_no_more() -> None:
    log = Log()
    cache = EntryCache(2 * (OVERHEAD_BYTES + 1))
    for index in (1, 2, 3):
        cache.added(log, index, 1)
    cache.removed(log, 1)
    cache.removed(log, 7)
    cache.shrink()
    assert (log.dropped, cache.held_bytes) == ([], 2 * (OVERHEAD_BYTES + 1))
    cache.added(log, 2, 5)
    assert cache.held_bytes == 2 * OVERHEAD_BYTES + 6, "another entry in the same place"
    cache.shrink()
    assert log.dropped == [3], "that one is the older one now"
    cache.removed(log, 2)
    assert cache.held_bytes == 0
