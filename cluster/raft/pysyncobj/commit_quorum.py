"""Commit quorum: the answers of a whole quorum, as the library's rules for commits and for stepping down read them.

The library counts members: those that hold an entry, and those that answered lately, against half of all others. That
is right for one set of voters, and for no joint configuration. So both of its tables have two faces: `get` tells the
truth of one member, and `[]`, which the library reads, tells for every member the same: the index that all of some
quorum hold, the time since which all of some quorum have answered. Then either all of them count for it, or none.

Three copies must not count: one that is of an earlier term, before the leader has committed an entry of its own (Raft,
5.4.2); one at a member without a memory, until its vote has recovered; and the leader's own, until it is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from cluster.raft.interfaces import NodeId
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.membership import Membership
from cluster.raft.pysyncobj.member import RaftMember


def own_copy_counts(log: LogStore, index: int) -> bool:
    """True if the leader's own copy of an entry is durable: an entry without it does not exist for the rule (A9)."""
    return index <= log.durable


class MatchIndex(dict[RaftMember, int]):
    """Index that each member holds: `get` tells it, `[]` what the commit rule may use.

    That is 0 below the first entry of the leader's own term. Only from there on can the rule commit anything; without
    this it walks over the whole inherited tail in every tick.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own_term_from = 0
        self._held_by_quorum = 0
        self.counts: Callable[[RaftMember], bool] = _always

    def own_term_begins(self, index: int) -> None:
        self._own_term_from = index

    def count(self, membership: Membership, own_last: int) -> None:
        """Look which index all of some quorum hold; once before each tick, which nothing changes in its course."""
        self._held_by_quorum = self.held_by_quorum(membership, own_last)

    def held_by_quorum(self, membership: Membership, own_last: int) -> int:
        """Return the index that all of some quorum hold, if it may be committed, and else 0."""
        peers = membership.peers

        def held(node: NodeId) -> int:
            if node == membership.node:
                return own_last
            member = peers[node]
            return self.get(member, 0) if self.counts(member) else 0

        index = membership.quorum.held_by_all_of_one(held)
        return index if index >= self._own_term_from else 0

    def __getitem__(self, member: RaftMember) -> int:
        return self._held_by_quorum

    def __setitem__(self, member: RaftMember, index: int) -> None:
        """Set the index; a late answer must not lower it, and only a new leadership sets it back to 0."""
        super().__setitem__(member, max(index, self.get(member, 0)) if index else 0)


class LastResponse(dict[RaftMember, float]):
    """Time of each member's last answer: `heard_at` tells it, `[]` what the rule for stepping down may use."""

    def __init__(self) -> None:
        super().__init__()
        self._heard_of_quorum = 0.0
        self.led_from = 0.0
        """Begin of the leadership: a member that has not answered yet is as if heard then."""

    def heard_at(self, member: RaftMember) -> float:
        return self.get(member, self.led_from)

    def count(self, membership: Membership) -> None:
        """Look since when all of some quorum have answered; once before each tick."""
        peers = membership.peers
        self._heard_of_quorum = membership.quorum.held_by_all_of_one(
            lambda node: inf if node == membership.node else self.heard_at(peers[node])
        )

    def __getitem__(self, member: RaftMember) -> float:
        return self._heard_of_quorum


def _always(_: RaftMember) -> bool:
    return True
