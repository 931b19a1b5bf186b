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
commits in that term. The same holds while two sets of voters decide, and one of them is two. But each quorum of more
than one has another member, and that one has its memory. So a mute member gives its vote, and its pre-vote, to a
candidate for which *all* other voters, old and new, have voted, and compares nothing:

* no term gets a second leader: who was elected with the help of the lost disk has the vote of another member, too, in
  that term. That one gives no second vote in it;
* no committed entry is missing at the leader: it is on a disk of another member, which would refuse a candidate
  without it. For the same reason the mute one compares no logs: what it has beyond the leader's was never committed.
  It may have more, since a leader may send before its own sync and lose power, and must not wait for itself then;
* it is released when it has all that the leader had when it was elected, and what that committed since: everything that
  was ever committed with the help of the lost disk lies there. No vote of the lost disk is waited for but as
  everywhere, by answers of all others in the leader's term; and it counts as having voted in that term.

So it is released before the leader commits anything, where the group would come to a stand else: where every quorum
needs the leader, and while two sets decide. The configuration before those is committed then, so a voter that it
removed finds a member that refuses it its vote. While a set that decides alone is not committed yet, such a voter may
still be elected by the vote of the lost disk, and one other that has not heard of that set.

A mute member never campaigns, is not counted, and confirms nothing, in such groups either; nor where it knows of no
other voter: it may know only the first configuration of a group that has grown since. If two members are mute nobody is
elected by them: what one of them had may be on no other disk, and to begin anew would hide that.

A request that a member sent before it lost its memory elects nobody. A vote that comes back finds no candidate, or one
of another life: requests of a member that ever lost its memory carry the mark of its life, and so do the votes. Without
the mark a member that is released, and campaigns in the very term of a late request, would count a vote for the longer
log that it lost.

All this holds where each set of voters has another member. A member that is the whole old set, or the whole new one, is
asked like any other: it may have ended the change alone and taken others in, so the candidate may be one that left. If
such a member is mute the group waits for its lost disk.

That all others have voted, the candidate says. It asks the last one anew, when it has their votes. The mute one cannot
know who the others are: it has no log, and metadata may be behind.

A member draws a mark when it is opened; an answer or a release with another mark belongs to another life of it. Answers
to appends sent before it was seen mute are of an earlier life too, and do not count.

Rejected: votes of mute members for a candidate that has all that they have, without the votes of all others. Two of
three, one of them mute, may be a quorum without the member that holds what was committed, or that gave the other vote
of a term.
Rejected: a majority of the others instead of all. With five members a candidate that was not asked may hold the old
vote. Rejected: letting it vote once it has caught up. That mends forgotten entries, not forgotten votes.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.raft.interfaces import NodeId
from cluster.raft.membership.membership import Membership


def may_grant(*, mute: bool, others_grant: bool) -> bool:
    """True if a member may give its vote away. `others_grant`: all other voters, old and new, give theirs."""
    return not mute or others_grant


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
        if not self._needs_no_commit() and (commit_index < own_from or not self._membership.is_committed):
            return None
        if not mute.index:
            mute.index = max(commit_index, own_from)
        return mute.index, mute.mark

    def _needs_no_commit(self) -> bool:
        """True if those that were waited for are all that may matter, before anything is committed in this term."""
        latest, quorum = self._membership.configuration, self._membership.quorum
        return quorum.is_needed(self._membership.node) or (latest is not None and latest.is_joint)
