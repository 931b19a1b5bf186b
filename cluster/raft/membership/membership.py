"""Membership of this replica in its group: the latest configuration, shared by all parts of the group.

The problem: elections, replication, reads and the library each need to know who belongs to the group, and a change
must reach all of them in the moment of the append. The rule: there is one object of this kind in a group, which they
all hold, and which `update` changes in place; `peers` is one dictionary for its whole life. Nothing of it is copied.

Rejected: a new group object for each configuration. Every proposal under way would be of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from math import inf

from cluster.raft.interfaces import NodeId
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.configuration import FOUNDING_BIRTH, Configuration, Replica
from cluster.raft.membership.quorum import Quorum
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.raft_pb2 import RaftMessage
from cluster.versions import MEMBERS_CHANGE_FROM

Tell = Callable[[RaftMember, RaftMessage], None]


class Membership:
    def __init__(self, node: NodeId, log_store: LogStore) -> None:
        self.node = node
        self._log_store = log_store
        self.peers: dict[NodeId, RaftMember] = {}
        """All other replicas, voters and learners; in the order of their nodes."""
        self.voting: set[RaftMember] = set()
        """Those of the peers that vote, in the old set or in the new one."""
        self.quorum = Quorum(None)
        self.is_voter = False
        """True if this replica votes, in the old set or in the new one."""
        self._silenced_until = 0
        self.update()

    @property
    def configuration(self) -> Configuration | None:
        """The latest configuration, committed or not; None: nothing is known of the members."""
        return self._log_store.configurations.latest

    @property
    def own(self) -> Replica:
        return Replica(self.node, self._log_store.birth)

    @property
    def may_change(self) -> bool:
        """True if some group may have other members than those it began with, as far as this node has heard."""
        return self._log_store.version >= MEMBERS_CHANGE_FROM

    @property
    def may_campaign(self) -> bool:
        """True if this replica votes in its latest configuration, and was not told of a newer one without it."""
        return self.is_voter and not self._silenced_until

    @property
    def is_alone(self) -> bool:
        """True if this replica is the only voter."""
        return self.is_voter and self.quorum.is_alone(self.node)

    @property
    def is_committed(self) -> bool:
        """True if the latest configuration is, as far as this replica knows."""
        return self._log_store.configurations.latest_index <= self._log_store.commit

    @property
    def is_settled(self) -> bool:
        """True if no change is under way in the log."""
        latest = self.configuration
        return self.is_committed and latest is not None and not latest.move

    def is_reached(self, by: set[NodeId]) -> bool:
        """True if these and this replica are enough."""
        return self.quorum.is_reached(by | {self.node})

    def last_to_ask(self, granted: Set[NodeId]) -> RaftMember | None:
        """The voter, old or new, without which all others have granted. It hears so, and may have no memory. None:
        more than one is left, or none, or members cannot change yet; or that voter is a whole set, so no other one
        need know what was committed."""
        left = [member for member in self.voting if member.id not in granted]
        is_asked = len(left) == 1 and self.may_change and not self.quorum.is_whole_set(left[0].id)
        return left[0] if is_asked else None

    def sendable_up_to(self, member: RaftMember) -> float:
        """Index up to which a replica may be sent entries: one that does not vote gets the latest configuration once it
        is committed. So nobody has a longer log than those who can win the next election."""
        if self.is_committed or member in self.voting:
            return inf
        return self._log_store.configurations.latest_index - 1

    def silence(self, version: int) -> bool:
        """Note that this replica has no place in the committed configuration of this version. Returns whether that is
        news: it is none if a configuration is known here that is as new."""
        latest = self.configuration
        if latest is not None and version <= latest.version:
            return False
        self._silenced_until = max(self._silenced_until, version)
        return True

    def update(self) -> tuple[list[RaftMember], list[RaftMember]]:
        """Take the latest configuration over. Returns the peers that are none any more, and those that are new."""
        latest = self.configuration
        replicas = latest.replicas if latest is not None else frozenset()
        before = list(self.peers.values())
        known = {member.replica: member for member in before}
        others = [known.get(one) or RaftMember(*one) for one in sorted(replicas) if one.node != self.node]
        self.peers.clear()
        self.peers.update((member.id, member) for member in others)
        voters = latest.all_voters if latest is not None else frozenset()
        self.voting = {member for member in others if member.replica in voters}
        self.quorum = Quorum(latest)
        self.is_voter = self.own in voters
        if latest is not None and latest.version > self._silenced_until:
            self._silenced_until = 0
        return [one for one in before if one not in others], [one for one in others if one not in before]


def addressed(emit: Callable[[NodeId, RaftMessage], None]) -> Tell:
    """A way to tell a replica something, that writes its birth on the message."""

    def tell(member: RaftMember, message: RaftMessage) -> None:
        if member.birth != FOUNDING_BIRTH:
            message.to = member.birth
        emit(member.id, message)

    return tell
