"""How a member that has lost its memory gets its vote back.

The problem: a member whose disk was replaced has forgotten votes it gave and entries it acknowledged. Counted like any
other, it could elect a second leader in a term, or a leader without a committed entry. So it is opened *mute*: it
stores, answers and applies, but grants, campaigns and confirms nothing, and what it acknowledges commits nothing. The
group is as safe, and as available, as if the member were down.

It may vote again when nothing that it forgot can matter. The leader of term T sees it mute, forgets what it believed
the member to hold, and waits until *every* other member has answered, in T, an append sent since. Each of them was then
in no term above T after the old member was gone, so no vote of the old one can ever be counted in a term above T. And
an entry that was committed with the old one's help lies at or below the leader's commit index, once that covers an
entry of T. So: the member has everything up to that index, in the leader's own words, and from then on votes in terms
above T only: it counts as having voted for the leader in T. Then its vote is back, on disk, before it says so.

A member draws a mark when it is opened; an answer or a release with another mark belongs to another life of it. Answers
to appends sent before it was seen mute are of an earlier life too, and do not count.

Rejected: a majority of the others instead of all. With five members a candidate that was not asked may hold the old
vote. Rejected: letting it vote once it has caught up. That mends forgotten entries, not forgotten votes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cluster.raft.interfaces import NodeId


@dataclass(slots=True)
class _Mute:
    mark: int
    asked_from: int  # sequence of the first append whose answers count
    missing: set[NodeId]
    index: int = 0  # from which it may vote; 0: not known yet


class Readmission:
    """The leader's part. Begun anew with each leadership."""

    def __init__(self, peers: Collection[NodeId]) -> None:
        self._peers = frozenset(peers)
        self._mute: dict[NodeId, _Mute] = {}

    def begin(self) -> None:
        self._mute.clear()

    def is_mute(self, node: NodeId) -> bool:
        return node in self._mute

    def heard(self, node: NodeId, mark: int, sequence: int, next_sequence: int) -> bool:
        """An answer of the own term. True: `node` has lost its memory since it was last heard of, and what it told
        before is void."""
        for other, mute in self._mute.items():
            if other != node and sequence >= mute.asked_from:
                mute.missing.discard(node)
        known = self._mute.get(node)
        if mark == 0:
            if known is not None and sequence >= known.asked_from:
                del self._mute[node]
            return False
        if known is not None and known.mark == mark:
            return False
        self._mute[node] = _Mute(mark, next_sequence, set(self._peers - {node}))
        return True

    def release(self, node: NodeId, commit_index: int, *, own_term_committed: bool) -> tuple[int, int] | None:
        """(index, mark) for the member: from this index on it may vote."""
        mute = self._mute.get(node)
        if mute is None or mute.missing or not own_term_committed:
            return None
        if not mute.index:
            mute.index = commit_index
        return mute.index, mute.mark
