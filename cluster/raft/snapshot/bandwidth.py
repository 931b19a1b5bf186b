"""Bandwidth of snapshots: how many bytes a second a node fetches, and for how many groups at a time."""

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
