"""Leadership transfer (L12), asked for or towards the group's preferred node.

The problem: pysyncobj's transfer works only when the target has every entry, and does not stop new ones. The
rules: proposals stop first; the order goes out once, when the target has everything; if nobody took over in
time, proposals are taken again. A preferred node that cannot hold the leadership (a slow disk, a bad link) is not
given it again and again: one that gets it back soon waits twice as long as before, and one that stores slowly is not
offered it at all. All groups of a node take turns with it (`PreferredTurns`): a node that returns may be preferred by
hundreds.

Rejected: stepping down and hoping for the right winner. A transfer costs one round trip, an election costs a
timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from cluster.raft.interfaces import NodeId
from cluster.raft.log.log_store import LogStore
from cluster.raft.options import RaftOptions
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.pysyncobj.private_names import LEADER


class PreferredTurns:
    """Times at which groups of this node hand over to their preferred nodes, one after the other."""

    def __init__(self, per_s: float) -> None:
        self._period_s = 1 / per_s
        self._next_at = -inf

    def take(self, now: float) -> float:
        """Take the next turn, which may be at once."""
        at = max(now, self._next_at)
        self._next_at = at + self._period_s
        return at


class LeadershipTransfer:
    def __init__(
        self,
        core: Core,
        log_store: LogStore,
        peers: Mapping[NodeId, RaftMember],
        options: RaftOptions,
        preferred: NodeId | None,
        has_vote: Callable[[NodeId], bool],
        is_slow: Callable[[NodeId, float], bool],
        turns: PreferredTurns,
    ) -> None:
        self._core = core
        self._has_vote = has_vote
        self._is_slow = is_slow
        self._turns = turns
        self._has_turn = False
        self._log_store = log_store
        self._options = options
        self._peers = peers
        self.preferred_node = preferred
        self._target: RaftMember | None = None
        self._ordered = False
        self._give_up_at = inf
        self._prefer_at = inf
        self._patience_s = options.prefer_after_s
        self._offered_at = -inf  # to the preferred node, last

    @property
    def _preferred(self) -> RaftMember | None:
        return None if self.preferred_node is None else self._peers.get(self.preferred_node)

    @property
    def is_active(self) -> bool:
        return self._target is not None

    @property
    def next_deadline(self) -> float:
        return min(self._give_up_at, self._prefer_at)

    def begin(self, now: float) -> None:
        """Begin a leadership of this node."""
        self._stop()
        if now - self._offered_at > self._options.prefer_settled_s + self._patience_s:
            self._patience_s = self._options.prefer_after_s  # the last one held
        self._await_preferred(now)

    def _await_preferred(self, now: float) -> None:
        self._has_turn = False
        self._prefer_at = inf if self.preferred_node in (None, self._core.selfNode.id) else now + self._patience_s

    def prefer(self, node: NodeId | None, now: float) -> None:
        """Take another node as the preferred one; None: none is."""
        self.preferred_node = node
        if self._core.state == LEADER:
            self._await_preferred(now)

    def end(self) -> None:
        """End the leadership of this node."""
        self._stop()
        self._prefer_at = inf

    def _stop(self) -> None:
        self._target, self._ordered, self._give_up_at = None, False, inf

    def peer_up(self, node: NodeId, now: float) -> None:
        if node == self.preferred_node and self._prefer_at < inf:
            self._prefer_at = now + self._patience_s

    def start(self, target: RaftMember, now: float, patience_s: float | None = None) -> None:
        self._target, self._ordered = target, False
        self._give_up_at = now + (self._options.transfer_timeout_s if patience_s is None else patience_s)

    def before_tick(self, now: float) -> None:
        if now >= self._give_up_at:
            self._stop()
        if now >= self._prefer_at:
            self._consider_preferred(now)
        target = self._target
        if target is None or self._ordered or self._core.state != LEADER:
            return
        if not self._has_vote(target.id):
            return  # it would not campaign; the order is given up in time
        if target in self._core.connected and self._core.match.get(target, 0) == self._log_store.last:
            self._ordered = True
            self._core.transferLeadership(target)

    def _consider_preferred(self, now: float) -> None:
        target = self._preferred
        core, options = self._core, self._options
        if target is None:  # it has no place in the group, now
            self._prefer_at = now + options.prefer_after_s
            return
        silent_s = now - core.last_response.get(target, -inf)  # a silent member would not be heard campaigning
        able = silent_s < options.election_min_s and target in core.connected and self._has_vote(target.id)
        able = able and not self._is_slow(target.id, now)
        caught_up = able and core.match.get(target, 0) >= core.commit_index
        own_term_applied = core.applied_index >= (core.noop_index or 0)
        if caught_up and own_term_applied and self._target is None:
            if not self._has_turn and (at := self._turns.take(now)) > now:
                self._has_turn, self._prefer_at = True, at
                return
            self._has_turn = False
            self.start(target, now)
            self._offered_at = now
            self._patience_s = min(2 * self._patience_s, options.prefer_longest_s)
            self._prefer_at = now + max(options.prefer_retry_s, self._patience_s)
        else:
            self._prefer_at = now + options.prefer_after_s
