"""Vote recovery of a member that has lost its memory.

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

In a group of *two* this would never end: without the mute one's vote nobody leads again, and without its count nobody
commits in that term. But every quorum of two includes the other member, and that one has its memory. So there a mute
member gives its vote, and its pre-vote, to the other, and asks nothing:

* no term gets a second leader: whoever leads has the vote of the member with a memory, which gives one in a term. What
  the mute one voted before it lost its disk cannot count without that vote, in that term, given to itself; then the
  other is in that term at least, and campaigns in greater ones only;
* no committed entry is missing at the leader: it was on both disks, synced, before it counted, so it is on the disk
  that is left. For the same reason the mute one compares no logs: what it has beyond the other's was never committed.
  It may have more, since a leader may send before its own sync and lose power, and must not wait for itself then;
* it is released when it has all that the leader had when it was elected, and what that committed since: everything that
  was ever committed with the help of the lost disk lies there. No vote of the lost disk is waited for, by the first
  point; and it counts as having voted in the leader's term, as everywhere.

A mute member never campaigns, is not counted, and confirms nothing, in groups of two either. If both members are mute
neither asks the other, so nobody is elected: nothing of what they had is left, and to begin anew would hide that. A
request that a member sent before it lost its memory elects nobody: a vote that comes back finds no candidate.

Who the two are, the asker says: it has a memory, and is in every quorum of its latest configuration, so nothing newer
can have been committed without it. The mute one cannot know: it has no log, and metadata may be behind. (In a group
that changes its members old and new voters are meant. While there are more of them and a change is open, nobody is
released.)

A member draws a mark when it is opened; an answer or a release with another mark belongs to another life of it. Answers
to appends sent before it was seen mute are of an earlier life too, and do not count.

Rejected: votes of mute members in larger groups, even for a candidate that has all that they have. Two of three, one of
them mute, may be a quorum without the member that holds what was committed, or that gave the other vote of a term.
Rejected: a majority of the others instead of all. With five members a candidate that was not asked may hold the old
vote. Rejected: letting it vote once it has caught up. That mends forgotten entries, not forgotten votes.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.raft.interfaces import NodeId
from cluster.raft.membership.membership import Membership


def may_grant(*, mute: bool, is_asked_by_the_other: bool) -> bool:
    """True if a member may give its vote away. `is_asked_by_the_other`: it and the asker are all that vote."""
    return not mute or is_asked_by_the_other


@dataclass(slots=True)
class _Mute:
    mark: int
    asked_from: int  # sequence of the first append whose answers count
    missing: set[NodeId]
    index: int = 0  # from which it may vote; 0: not known yet


class VoteRecovery:
    """The leader's part of vote recovery. Begins anew with each leadership."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._mute: dict[NodeId, _Mute] = {}

    def begin(self) -> None:
        self._mute.clear()

    def is_mute(self, node: NodeId) -> bool:
        return node in self._mute

    def heard(self, node: NodeId, mark: int, sequence: int, next_sequence: int) -> bool:
        """Take an answer of the own term. Returns True if `node` has lost its memory since it was last heard of, and
        what it told before is void."""
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
        self._mute[node] = _Mute(mark, next_sequence, self._others(node))
        return True

    def _others(self, node: NodeId) -> set[NodeId]:
        """Voters that have to answer before that member votes again."""
        return set(self._membership.quorum.nodes - {node, self._membership.node})

    def members_changed(self, next_sequence: int) -> None:
        """Wait anew, for the voters of the new configuration. Who is mute stays so, unless it is no member any more."""
        self._mute = {node: mute for node, mute in self._mute.items() if node in self._membership.peers}
        for node, mute in self._mute.items():
            mute.asked_from, mute.missing, mute.index = max(mute.asked_from, next_sequence), self._others(node), 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._mute)

    def release(self, node: NodeId, commit_index: int, own_from: int) -> tuple[int, int] | None:
        """Return (index, mark) for the member: from this index on it may vote. None: not yet. `own_from`: the leader's
        first entry of its own term, after all that it had when it was elected."""
        mute = self._mute.get(node)
        if mute is None or mute.missing:
            return None
        if not self._membership.is_of_pair() and (commit_index < own_from or not self._is_at_rest()):
            return None
        if not mute.index:
            mute.index = max(commit_index, own_from)
        return mute.index, mute.mark

    def _is_at_rest(self) -> bool:
        """True if no change of voters is open: else those that were waited for are not all that may still matter."""
        latest = self._membership.configuration
        return self._membership.is_committed and latest is not None and not latest.is_joint
