"""One group's part in falling silent: which followers its leader leaves to the heartbeats of its node, and whether this
member rests under such a leader.

A leader asks a follower with the flag `quiesce` on a heartbeat, once nothing has happened for a while, and only where
nothing can be waiting: everything is committed and applied, the follower has acknowledged all of it, and every member
has its memory (`vote_recovery` needs the answers of all the others). The follower agrees in its answer, if it has
applied everything, too, and nothing else is going on. Whatever the leader sends it later without the flag ends that.

A member that rests has no election deadline. So an event that sets one (an append in the library, a vote given, a lost
connection) has ended the rest, and so has another term or leader: `check` looks at that after each event. While the
leader's node is doubted there is a deadline, too; then the rest ends when it passes, or when the leader itself speaks.

Rejected: to let a group fall silent as a whole. With one of three nodes away for days its groups would never rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from cluster.raft.heartbeats.node_heartbeats import NodeHeartbeats
from cluster.raft.interfaces import GroupId, NodeId
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember


class QuietLinks:
    def __init__(self, group_id: GroupId, heartbeats: NodeHeartbeats, quiesce_after_s: float) -> None:
        self._group_id = group_id
        self._heartbeats = heartbeats
        self._quiesce_after_s = quiesce_after_s
        self.core: Core
        self.peers: Mapping[NodeId, RaftMember]
        self.resume: Callable[[float], None]
        """The leader has to send again: at once."""
        self._asked: dict[NodeId, int] = {}  # the sequence from which answers count
        self._quiet: set[NodeId] = set()
        self._idle_from = inf
        self._seen_last = -1
        self._under: tuple[NodeId, int] | None = None  # the leader's node and its term
        self._doubts = False  # that node was not heard for long; there is a deadline

    # ---- the leader

    def begin(self, now: float) -> None:
        self._idle_from = now

    def end(self) -> None:
        """End the leadership of this member: no follower is counted on to rest."""
        for node in [*self._asked, *self._quiet]:
            self._heartbeats.disclaim(node, self._group_id, tell=True)
        self._asked.clear()
        self._quiet.clear()

    def is_quiet(self, node: NodeId) -> bool:
        return node in self._quiet

    @property
    def quiet(self) -> set[NodeId]:
        return self._quiet

    def is_idle(self, last: int, now: float) -> bool:
        """True if nothing was appended, and nobody was woken, for long enough."""
        if last != self._seen_last:
            self._seen_last = last
            self._idle_from = now
        return now - self._idle_from >= self._quiesce_after_s

    def asks(self, node: NodeId, sequence: int, now: float) -> None:
        if node not in self._asked:
            self._asked[node] = sequence
            self._heartbeats.claim(node, self._group_id, self.core.term, now)

    def speaks(self, node: NodeId, *, tell: bool = False) -> None:
        """Note that more than the question was sent to a follower: it rests no more."""
        if node in self._quiet or node in self._asked:
            self._hear(node)
            self._quiet.discard(node)
            self._asked.pop(node, None)
            self._heartbeats.disclaim(node, self._group_id, tell=tell)

    def forget(self, node: NodeId) -> None:
        """Count no more on a member that left the group, or began another life."""
        if node in self._quiet or node in self._asked:
            self._quiet.discard(node)
            self._asked.pop(node, None)
            self._heartbeats.disclaim(node, self._group_id, tell=True)

    def answered(self, node: NodeId, sequence: int, *, quiesced: bool, now: float) -> None:
        if sequence < self._asked.get(node, inf):
            return
        del self._asked[node]
        if quiesced:
            self._quiet.add(node)
        else:
            self._heartbeats.disclaim(node, self._group_id, tell=False)
            self._idle_from = now

    def wake(self, node: NodeId, now: float) -> None:
        """Speak to a follower again that may or must not rest, or that hears no leader, whatever is believed here."""
        self.speaks(node, tell=True)
        self._idle_from = now
        self.resume(now)

    def wake_all(self, now: float) -> None:
        for node in [*self._asked, *self._quiet]:
            self.wake(node, now)

    def hear(self) -> None:
        """Count resting members as heard through their node, for the library's quorum check and for trims."""
        for node in self._quiet:
            self._hear(node)

    def _hear(self, node: NodeId) -> None:
        member, last_response = self.peers[node], self.core.last_response
        last_response[member] = max(last_response.heard_at(member), self._heartbeats.answered_at(node))

    # ---- a follower

    @property
    def rests(self) -> bool:
        return self._under is not None

    def rest(self, leader: NodeId, now: float) -> None:
        self._under, self._doubts = (leader, self.core.term), False
        self.core.election_deadline = inf
        self._heartbeats.rest(leader, self._group_id, self.core.term, now)

    @property
    def leader_heard_at(self) -> float:
        """Time at which the leader's node was last heard; -inf: this member does not rest."""
        return -inf if self._under is None else self._heartbeats.heard_at(self._under[0])

    def check(self, sender: NodeId | None = None) -> bool:
        """Check the rest. Returns False if this member rested, and does no longer. `sender`: whose message was the
        reason, if it was one."""
        if self._under is None:
            return True
        core, (leader, term) = self.core, self._under
        unchanged = core.term == term and core.leader is not None and core.leader.id == leader
        waits = sender != leader if self._doubts else core.election_deadline == inf
        if unchanged and waits:
            return True
        self.stir(tell=sender != leader)
        return False

    def doubt(self, deadline: float) -> None:
        self._doubts = True
        self.core.election_deadline = deadline

    def trust(self) -> None:
        if self._doubts:
            self._doubts = False
            self.core.election_deadline = inf

    def stir(self, *, tell: bool) -> None:
        if self._under is not None:
            self._heartbeats.stir(self._under[0], self._group_id, tell=tell)
            self._under, self._doubts = None, False
