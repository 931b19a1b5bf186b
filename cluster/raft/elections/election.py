"""Campaign rules: pre-vote, loyalty to a living leader, and quick suspicion of a dead one.

The problem: pysyncobj campaigns whenever its deadline has passed, even if its own loop was what stood still (L5),
raises the term and so deposes a healthy leader (L3). The rules: nobody campaigns without having asked a majority first;
nobody grants while it hears a leader, or without a memory (`vote_recovery` has the one exception); a term that is over
is answered, or a member with a higher term could never come back (L4); only the leader's own order (`TimeoutNow`)
overrides loyalty.

A broken connection to the leader's node is evidence, not proof: it shortens the wait before asking, and the
question itself is harmless. Pre-votes change nothing on the disk of anyone.

Rejected: shorter election timeouts for faster failover. They turn every pause of a loop into an election.
"""

from __future__ import annotations

import random
from math import inf

from cluster.raft.elections.vote_recovery import may_grant
from cluster.raft.heartbeats.quiescence import QuietLinks
from cluster.raft.interfaces import NodeId
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.membership import Membership, Tell
from cluster.raft.options import RaftOptions
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.pysyncobj.private_names import CANDIDATE, FOLLOWER, LEADER
from cluster.raft.raft_pb2 import RaftMessage, VoteRequest
from cluster.raft.replication.message_encoding import Stamp

CAMPAIGN_RETRY_FACTORS = (2.0, 4.0)
"""Multiples of `suspicion_max_s` after which a lost election is repeated while the leader is known to be gone."""


class Election:
    def __init__(
        self,
        membership: Membership,
        stamp: Stamp,
        log_store: LogStore,
        options: RaftOptions,
        randomness: random.Random,
        tell: Tell,
    ) -> None:
        self._membership = membership
        self._stamp = stamp
        self._log_store = log_store
        self._options = options
        self._random = randomness
        self._tell = tell
        self.core: Core
        self._round = 0
        self._asking = False
        self._asked_term = 0
        self._grants: set[NodeId] = set()
        self._approved = False
        self._tries = 0
        self._heard_at = -inf
        self._voted_at = -inf
        self._leader_lost = False
        self.by_transfer = False
        self.links: QuietLinks

    # ---- timers

    def random_timeout(self) -> float:
        """The library's wait for a leader: after a heartbeat, a granted vote, the start of a campaign."""
        if self._leader_lost:
            low, high = CAMPAIGN_RETRY_FACTORS
            return self._random.uniform(low, high) * self._options.suspicion_max_s
        return self._random.uniform(self._options.election_min_s, self._options.election_max_s)

    def _short_wait(self) -> float:
        """Wait between questions about a leader known to be gone; doubles so that a lonely node goes
        quiet."""
        options, uniform = self._options, self._random.uniform
        wait = uniform(options.suspicion_min_s, options.suspicion_max_s) * 2.0**self._tries
        return min(wait, uniform(options.election_min_s, options.election_max_s))

    def before_tick(self, now: float) -> None:
        """Let the library campaign in the coming tick, or move its deadline."""
        core = self.core
        if core.state == LEADER or core.election_deadline > now:
            return
        if not self._membership.may_campaign or self._log_store.mute:
            core.forget_transfer()
            core.election_deadline = now + self.random_timeout()
        elif self._membership.is_alone:
            core.election_deadline = 0.0
        elif not self._is_majority_connected():
            self.reset_question()
            core.forget_transfer()
            core.forget_leader()
            core.election_deadline = now + self._wait_to_ask_again()
        elif core.transfer_ordered or (self._approved and core.term == self._asked_term):
            self.by_transfer = core.transfer_ordered
            self.reset_question()
            core.election_deadline = 0.0
        elif 0.0 < core.election_deadline < now - self._options.stall_s:
            core.election_deadline = now + self._random.uniform(self._options.heartbeat_s, self._options.election_min_s)
        else:
            self._ask(now)

    def _is_majority_connected(self) -> bool:
        return self._membership.is_reached({member.id for member in self.core.connected})

    def _wait_to_ask_again(self) -> float:
        self._tries = min(self._tries + 1, 8)
        return self._short_wait() if self._leader_lost else self.random_timeout()

    def hurry(self, now: float) -> None:
        """Bring the election forward: there is no leader, and good reason to ask soon."""
        self._leader_lost = True
        self._tries = 0
        self.core.election_deadline = min(self.core.election_deadline, now + self._short_wait())

    # ---- asking

    def _ask(self, now: float) -> None:
        core = self.core
        self._round += 1
        self._asking, self._approved = True, False
        self._asked_term = core.term
        self._grants = set()
        core.forget_leader()
        core.election_deadline = now + self._wait_to_ask_again()
        for peer in sorted(self._membership.voting, key=lambda member: member.id):
            self._tell(peer, self._pre_vote(others_grant=self._membership.last_to_ask(set()) == peer))

    def _pre_vote(self, *, others_grant: bool) -> RaftMessage:
        last = (self._log_store.last, self._log_store.last_term)
        return self._stamp.vote_request(
            self.core.term + 1, last, pre=True, round_number=self._round, others_grant=others_grant
        )

    def reset_question(self) -> None:
        self._asking = self._approved = False

    def pre_vote_reply(self, sender: NodeId, message: RaftMessage) -> None:
        reply, core = message.vote_reply, self.core
        current = self._asking and reply.round == self._round and core.term == self._asked_term
        if not current or not reply.granted or core.state not in (FOLLOWER, CANDIDATE):
            return
        if sender in self._grants:
            return
        self._grants.add(sender)
        if self._membership.is_reached(self._grants):
            self._asking, self._approved = False, True
            core.election_deadline = 0.0
        elif (last := self._membership.last_to_ask(self._grants)) is not None:
            self._tell(last, self._pre_vote(others_grant=True))

    # ---- answering

    def may_grant(self, request: VoteRequest) -> bool:
        """True unless this member has no memory, and another has not granted. The asker says so; until members can
        change at all both know whether there is another."""
        others_grant = request.others_grant if self._membership.may_change else self._membership.quorum.is_pair()
        return may_grant(mute=self._log_store.mute, others_grant=others_grant)

    def judged_by(self, request: VoteRequest) -> tuple[int, int]:
        """(term, index) of the candidate's last entry. What a mute member has beyond it was never committed."""
        last, own = (request.last_term, request.last_index), (self._log_store.last_term, self._log_store.last)
        return max(last, own) if self._log_store.mute else last

    def is_loyal(self, now: float) -> bool:
        """True if this member leads, or heard the leader within the shortest election timeout."""
        heard_at = max(self._heard_at, self.links.leader_heard_at)
        return self.core.state == LEADER or now - heard_at < self._options.election_min_s

    def pre_vote_request(self, sender: RaftMember, message: RaftMessage, now: float) -> None:
        core, request = self.core, message.vote_request
        if message.term <= core.term:
            self._tell(sender, self._stamp.stale_term(core.term))
            return
        own = (self._log_store.last_term, self._log_store.last)
        just_voted = now - self._voted_at < self._options.suspicion_max_s
        if not self.may_grant(request) or self.is_loyal(now) or just_voted or self.judged_by(request) < own:
            return
        self._tell(sender, self._stamp.vote_reply(message.term, granted=True, pre=True, round_number=request.round))

    # ---- what `step` saw

    def leader_heard(self, now: float) -> None:
        self._heard_at = now
        self._leader_lost = False
        self._tries = 0
        self._asking = self._approved = False

    def doubted_until(self, now: float) -> float:
        """The deadline of a leader that was heard of last, by its node, for the shortest election timeout."""
        return now + self._random.uniform(0.0, self._options.election_max_s - self._options.election_min_s)

    def rouse(self, now: float) -> None:
        """Wait for the leader itself from now on, no longer for its node."""
        self._heard_at = max(self._heard_at, self.links.leader_heard_at)
        self.core.election_deadline = now + self.random_timeout()

    def vote_given(self, now: float) -> None:
        self._voted_at = now
        self.reset_question()

    def peer_joined(self, now: float) -> None:
        """Note that a connection came up while no leader is known: perhaps that completes a majority. New groups keep
        the order of their first wait."""
        core = self.core
        leaderless = core.state != LEADER and core.leader is None and core.term > 0
        if leaderless and self._is_majority_connected():
            self.hurry(now)

    def leader_gone(self, now: float) -> None:
        """Note that the connection to the leader's node broke."""
        self._heard_at = -inf
        self.hurry(now)

    def let_in(self, now: float) -> None:
        """Note that another node has let this process in: a member without others leads from now on."""
        if self._membership.is_alone and self.core.state != LEADER:
            self.core.election_deadline = now

    def first_wait(self, now: float, *, eager: bool, new: bool, let_in: bool) -> None:
        """Set the first deadline: nobody waits for a leader that never was, and the preferred node asks
        first. An old group's leader, if there is one, shows itself within two heartbeats. A member without others leads
        at once, unless this process may still be an older copy of its node (`let_in` ends that)."""
        options = self._options
        if self._membership.is_alone:
            wait = -now if let_in else inf
        elif new:
            self._leader_lost = True
            wait = self._short_wait() + (0.0 if eager else 2.0 * options.suspicion_max_s)
        else:
            wait = self._random.uniform(2.0 * options.heartbeat_s, options.election_min_s)
        self.core.election_deadline = now + wait
