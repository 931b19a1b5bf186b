"""Commit quorum: which copies of an entry the library's commit rule counts.

The rule commits what a majority holds. Three copies must not count: one that is of an earlier term, before the leader
has committed an entry of its own (Raft, 5.4.2); one at a member without a memory, until its vote has recovered; and the
leader's own, until it is durable.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.raft.log.log_store import LogStore
from cluster.raft.pysyncobj.member import RaftMember


def own_copy_counts(log: LogStore, index: int) -> bool:
    """True if the leader's own copy of an entry is durable: an entry without it does not exist for the rule (A9)."""
    return index <= log.durable


class MatchIndex(dict[RaftMember, int]):
    """Index that each member holds, as the commit rule reads it: 0 below the first entry of the leader's own term.

    Only from that entry on can the rule commit anything; without this it walks over the whole inherited tail in every
    tick. An index of a member without a memory does not count (`counts`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._own_term_from = 0

        self.counts: Callable[[RaftMember], bool] = _always

    def own_term_begins(self, index: int) -> None:
        self._own_term_from = index

    def __getitem__(self, member: RaftMember) -> int:
        index = super().__getitem__(member)
        return index if index >= self._own_term_from and self.counts(member) else 0

    def __setitem__(self, member: RaftMember, index: int) -> None:
        """Set the index; a late answer must not lower it, and only a new leadership sets it back to 0."""
        super().__setitem__(member, max(index, self.get(member, 0)) if index else 0)


def _always(_: RaftMember) -> bool:
    return True
