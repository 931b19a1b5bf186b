"""Bandwidth of copies: how many bytes a second a node fetches, and for how many groups at a time; and how many it sends
to replicas that do not count yet."""

from __future__ import annotations

from cluster.raft.interfaces import GroupId
from cluster.raft.options import RaftOptions


class FetchBudget:
    """Limits that all groups of a node share: bytes fetched per second, and groups rebuilt at a time."""

    def __init__(self, options: RaftOptions) -> None:
        self._bytes_per_s = options.fetch_bytes_per_s
        self._slots = options.fetch_groups
        self._active: set[GroupId] = set()
        self.free_at = 0.0

    def enter(self, group: GroupId) -> bool:
        if group not in self._active and len(self._active) >= self._slots:
            return False
        self._active.add(group)
        return True

    def leave(self, group: GroupId) -> None:
        self._active.discard(group)

    def charge(self, size: int, now: float) -> None:
        self.free_at = max(self.free_at, now) + size / self._bytes_per_s


FLOOR_BYTES_PER_S = 4 << 20
"""A copy goes on so fast at least, however busy the node is: else it might never end."""

BURST_S = 0.05
"""Worth of bytes that may go at once: timers of a busy loop are not more exact."""

PACED_APPEND_BYTES = 512 << 10
"""Entries in one append to a replica that is far behind: what clients send goes in between."""


class SendBudget:
    """Bytes per second that all groups of a node send to replicas which are to come, and are far behind."""

    def __init__(self, bytes_per_s: int) -> None:
        self._most = max(bytes_per_s, FLOOR_BYTES_PER_S)
        self.bytes_per_s = float(self._most)
        self._free_at = 0.0

    def charge(self, size: int, now: float) -> None:
        self._free_at = max(self._free_at, now) + size / self.bytes_per_s

    def opens_at(self, now: float) -> float | None:
        """Time from which more may be sent; None: now."""
        return None if self._free_at <= now + BURST_S else self._free_at

    def adapt(self, *, is_busy: bool) -> None:
        """Go slower while clients feel it, and faster else, within bounds. Called four times a second."""
        wanted = self.bytes_per_s * 0.7 if is_busy else self.bytes_per_s + FLOOR_BYTES_PER_S
        self.bytes_per_s = min(float(self._most), max(float(FLOOR_BYTES_PER_S), wanted))
