"""The newest entries in memory, for followers, apply and tail readers.

The problem: what was just appended is read three or four times within milliseconds, what is older hardly ever. The
rules: one bound in bytes for the whole node, oldest out first; an entry that is not on disk yet is never dropped, so a
reader finds each entry here or there. And where this node follows, nobody reads: an entry goes as soon as it is applied
and on disk. So the memory is for what this node leads, and what passes through a follower takes the same few
mebibytes again and again, which a processor's cache holds. A new leader begins with nothing in memory:
readers near the end then read the disk, for as long as they are behind.

Rejected: a bound per group. A hundred idle groups would hold what one busy group needs.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

OVERHEAD_BYTES = 350
"""Memory of an entry beside its bytes: an object, its place in the log's table, and one here."""


class CachedLog(Protocol):
    """Log that holds its own entries, and is told when to let go of one."""

    def drop_cached(self, index: int) -> None: ...


class EntryCache:
    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._sizes: OrderedDict[tuple[CachedLog, int], int] = OrderedDict()
        self.held_bytes = 0

    def added(self, log_store: CachedLog, index: int, size: int) -> None:
        self.removed(log_store, index)  # another one, that was truncated
        size += OVERHEAD_BYTES
        self._sizes[log_store, index] = size
        self.held_bytes += size

    def removed(self, log_store: CachedLog, index: int) -> None:
        """Forget an entry that the log has let go of by itself."""
        self.held_bytes -= self._sizes.pop((log_store, index), 0)

    def shrink(self) -> None:
        """Drop the oldest entries beyond the limit; called after the write of a turn."""
        while self.held_bytes > self._limit and self._sizes:
            (log_store, index), size = self._sizes.popitem(last=False)
            self.held_bytes -= size
            log_store.drop_cached(index)
