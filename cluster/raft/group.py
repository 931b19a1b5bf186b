"""One Raft group on this node: proposals in, applied entries out.

The problem: a caller wants to hand over bytes and learn what became of them, exactly once, whatever happens
to leadership in between. The rules: only a leader appends, synchronously, under its current term (A13); an
outcome is given in apply order, and `Discarded` only when another entry was applied at that index; apply
never leaves an entry half done (A10, L2); the checkpoint, the trim and the entries they belong to are in one
batch.

The group ticks the library (`core`) and is called back by it: `apply_committed` and `send_appends` run inside
a tick, between the node's input and its write.

Rejected: telling callers "discarded" when their entry is truncated. Another member may still hold it and be
elected.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Protocol

from cluster.raft.apply import Applier
from cluster.raft.elections.election import Election
from cluster.raft.elections.leadership_transfer import LeadershipTransfer, PreferredTurns
from cluster.raft.heartbeats.node_heartbeats import NodeHeartbeats
from cluster.raft.heartbeats.quiescence import QuietLinks
from cluster.raft.interfaces import Disk, DiskBatch, GroupId, NodeId, StateMachine
from cluster.raft.log.compaction import Compaction
from cluster.raft.log.log_store import CONFIGURATION_KIND, LogStore
from cluster.raft.membership.changes import NextStep, Wish, next_step
from cluster.raft.membership.configuration import Configuration
from cluster.raft.membership.configuration_codec import encode_entry
from cluster.raft.membership.member_changes import MemberChanges
from cluster.raft.membership.membership import Membership, addressed
from cluster.raft.options import MAX_ENTRY_BYTES, RaftOptions
from cluster.raft.proposal_outcomes import NotLeader, Outcome, Overloaded
from cluster.raft.proposals import Proposals
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.private_names import FOLLOWER, LEADER
from cluster.raft.raft_pb2 import FetchReply, FetchRequest
from cluster.raft.read_index import ReadDone, ReadIndex
from cluster.raft.replication.append_sender import AppendSender
from cluster.raft.replication.inflight_limit import InflightLimit
from cluster.raft.replication.message_encoding import IncomingMessage, OutgoingMessage, Stamp
from cluster.raft.replication.step import Stepper
from cluster.raft.snapshot.bandwidth import CopyBudgets
from cluster.raft.snapshot.catch_up import CatchUp
from cluster.raft.status import describe

log = logging.getLogger(__name__)

Emit = Callable[[NodeId, OutgoingMessage], None]


class GroupHost(Protocol):
    """The part of MultiRaft that a group needs."""

    now: float
    room: InflightLimit
    copies: CopyBudgets
    preferred_turns: PreferredTurns
    is_let_in: bool
    is_disk_full: bool

    def is_up(self, node: NodeId) -> bool: ...
    def batch_of(self, group_id: GroupId) -> DiskBatch: ...
    def mark_dirty(self, group: RaftGroup) -> None: ...
    def puts_off(self, group: RaftGroup) -> bool: ...
    def fetch(self, node: NodeId, request: FetchRequest) -> None: ...


class RaftGroup:
    def __init__(
        self,
        group_id: GroupId,
        self_id: NodeId,
        machine: StateMachine,
        log_store: LogStore,
        multiraft: GroupHost,
        emit: Emit,
        append_emit: Emit,
        options: RaftOptions,
        randomness: random.Random,
        preferred: NodeId | None,
        disk: Disk,
        draws: random.Random,
        keep_entries: int | None,
        heartbeats: NodeHeartbeats,
    ) -> None:
        self.group_id = group_id
        self.name = f"group {group_id} at node {self_id}"
        self.on_role_change: Callable[[RaftGroup], None] | None = None
        self._self_id = self_id
        self._machine = machine
        self._log_store = log_store
        self._multiraft = multiraft
        self._options = options
        self._proposals = Proposals(self.name)
        self._led_term = 0
        self._role: tuple[int, int, NodeId | None, bool] = (FOLLOWER, 0, None, False)
        self.scheduled_at = inf
        self.closed = False
        self.quarantined: str | None = None  # why nothing more is done with it on this node
        self._batch = partial(multiraft.batch_of, group_id)
        budget = multiraft.copies.into
        self._catch_up = CatchUp(group_id, self.name, log_store, machine, options, disk, budget, self._batch, draws)
        self._membership = Membership(self_id, log_store)
        self._reads = ReadIndex(self.name, self._membership)
        self._links = QuietLinks(group_id, heartbeats, options.quiesce_after_s)
        self._build_core(emit, append_emit, randomness, preferred, draws.getrandbits(63) + 1, keep_entries)
        self._compaction.restore()

    def _build_core(
        self,
        emit: Emit,
        append_emit: Emit,
        randomness: random.Random,
        preferred: NodeId | None,
        mark: int,
        keep_entries: int | None,
    ) -> None:
        log_store, options, membership = self._log_store, self._options, self._membership
        peers, tell = membership.peers, addressed(emit)
        stamp = Stamp(self.group_id, log_store.birth)
        self._peers = peers
        self._election = Election(membership, stamp, log_store, options, randomness, tell)
        self._step = Stepper(
            self.name,
            membership,
            stamp,
            log_store,
            self._election,
            tell,
            mark,
            self._catch_up.snapshot_receiver,
            self._reads,
            self._links,
            self._multiraft.copies,
        )
        self._links.peers = peers
        self._core = Core(membership, log_store, self._step, self, options)
        self._step.core = self._election.core = self._links.core = self._core
        self._election.links = self._links
        self._append_sender = AppendSender(
            membership, stamp, log_store, self._core, self._step, options, append_emit, addressed(append_emit),
            self._links, self._may_rest, self._multiraft.room, self._multiraft.copies.out,
        )  # fmt: skip
        self._links.resume = self._resume
        self._leadership_transfer = LeadershipTransfer(
            self._core, log_store, peers, options, preferred, self.may_lead,
            lambda node, now: self._step.progress[node].is_slow(now), self._multiraft.preferred_turns,
        )  # fmt: skip
        self._compaction = Compaction(
            log_store,
            self._core,
            self._machine,
            self._step,
            self._catch_up.snapshot_sender,
            membership,
            options,
            keep_entries,
            lambda: self._multiraft.is_disk_full,
        )
        self._applier = Applier(
            self.name, log_store, self._core, self._machine, self._proposals, self._compaction, options, self._batch
        )
        self._core.match.counts = lambda member: not self._step.vote_recovery.is_mute(member.id)
        self._changes = MemberChanges(
            self.name, membership, log_store, self._core, self._step, self._append_sender, self._links,
            self._catch_up.snapshot_sender, self._multiraft.is_up,
        )  # fmt: skip
        log_store.configurations.on_change = self._in_force
        eager = preferred in (None, self._self_id)
        self._election.first_wait(
            self._multiraft.now, eager=eager, new=log_store.term == 0, let_in=self._multiraft.is_let_in
        )

    # ---- members

    @property
    def configuration(self) -> Configuration | None:
        """The latest configuration, committed or not; None: nothing is known of the members here."""
        return self._membership.configuration

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Nodes of the latest configuration, voters and learners."""
        latest = self._membership.configuration
        return () if latest is None else tuple(sorted(replica.node for replica in latest.replicas))

    @property
    def is_settled(self) -> bool:
        """True if the latest configuration is committed, and no change is under way."""
        return self._membership.is_settled

    @property
    def voters(self) -> frozenset[NodeId]:
        """Nodes that vote in the latest configuration, in the old set or in the new one."""
        return self._membership.quorum.nodes

    @property
    def birth(self) -> int:
        """Birth of this replica; 0: it is not known yet."""
        return self._log_store.birth

    def next_step(self, wish: Wish | None) -> NextStep:
        """The next step of this leader towards what the metadata want. Raises NotLeader."""
        latest = self._membership.configuration
        if self.closed or not self.is_leader or latest is None:
            raise NotLeader(self.leader)
        view = self._changes.view(self._multiraft.now, self._options.election_min_s, is_ready=self.ready)
        return next_step(wish, latest, view)

    @property
    def near(self) -> frozenset[NodeId]:
        """Replicas that this leader could count on at once, itself included; nobody if it does not lead."""
        if self.closed or not self.is_leader:
            return frozenset()
        now, within_s = self._multiraft.now, self._options.election_min_s
        return frozenset(self._changes.view(now, within_s, is_ready=self.ready).near)

    def propose_configuration(self, new: Configuration, done: Callable[[Outcome], None]) -> int:
        """Append a configuration, which is in force from then on. Raises NotLeader, or ChangeRefused."""
        self._require_leadership()
        self._changes.require(new, is_ready=self.ready)
        return self._append(encode_entry(new), done)

    def _in_force(self) -> None:
        self._changes.in_force(self._multiraft.now)
        self._multiraft.mark_dirty(self)

    def prefer(self, node: NodeId | None) -> None:
        """Take another node as the preferred leader; None: none is."""
        self._leadership_transfer.prefer(node, self._multiraft.now)
        if self.is_leader:
            self._multiraft.mark_dirty(self)

    @property
    def preferred(self) -> NodeId | None:
        return self._leadership_transfer.preferred_node

    def may_lead(self, node: NodeId) -> bool:
        """True if a node votes in the new set, with a memory."""
        latest, member = self._membership.configuration, self._peers.get(node)
        is_voter = latest is not None and member is not None and member.replica in latest.voters
        return is_voter and not self._step.vote_recovery.is_mute(node)

    # ---- what others ask

    @property
    def term(self) -> int:
        return self._core.term

    @property
    def is_leader(self) -> bool:
        return self._core.state == LEADER and self.quarantined is None

    @property
    def is_handing_over(self) -> bool:
        """True while the leadership is on its way to another node, and proposals are refused."""
        return self._leadership_transfer.is_active

    @property
    def ready(self) -> bool:
        """True if this node leads, and has applied everything that earlier leaders committed."""
        core = self._core
        return self.is_leader and core.applied_index >= (core.noop_index or 0)

    @property
    def leader(self) -> NodeId | None:
        if self.quarantined is not None:
            return None
        member = self._core.leader
        return None if member is None else int(member.id)

    @property
    def commit_index(self) -> int:
        return self._core.commit_index

    @property
    def applied_index(self) -> int:
        return self._core.applied_index

    @property
    def first_index(self) -> int:
        return self._log_store.base_index + 1

    @property
    def last_index(self) -> int:
        return self._log_store.last

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes of own proposals without outcome."""
        return self._proposals.bytes

    def entry(self, index: int) -> tuple[int, bytes]:
        """(term, data) from memory or disk; KeyError if trimmed or not there yet."""
        if index <= self._log_store.base_index:
            raise KeyError(index)
        return self._log_store.term_at(index), self._log_store.data_at(index)

    def match_index(self, node: NodeId) -> int:
        """Last entry that `node` is known, by the leader, to hold durably; 0 if nothing is known."""
        if node == self._self_id:
            return self._log_store.durable
        member = self._peers.get(node)
        return self._core.match.get(member, 0) if self.is_leader and member is not None else 0

    def has_vote(self, node: NodeId) -> bool:
        """False if `node` does not vote in the latest configuration, or lost its memory, as far as is known here."""
        if self.quarantined is not None and node == self._self_id:
            return False
        if node not in self._membership.quorum.nodes:
            return False
        return not (self._log_store.mute if node == self._self_id else self._step.vote_recovery.is_mute(node))

    @property
    def may_count(self) -> bool:
        """False if this replica lost its memory, or is in quarantine; one that only follows is as sound as a voter."""
        return self.quarantined is None and not self._log_store.mute

    def safe_trim_index(self) -> int:
        """Index up to which every member that counts on the log, as far as this node knows, can do without the log."""
        if self.is_leader:
            self._links.hear()
        return self._compaction.safe_trim_index(self._multiraft.now)

    @property
    def is_quiet(self) -> bool:
        """True if nothing is said in this group: heartbeats of nodes speak for it."""
        return self._links.rests or (self.is_leader and bool(self._links.quiet) and self._core.append_time == inf)

    def status(self) -> dict[str, Any]:
        return describe(self)

    # ---- reads

    def read_index(self, done: ReadDone) -> None:
        """Call `done(index)`, in a turn, once everything up to `index` is applied here and a majority has confirmed
        that this node led when it was asked: what is read here then is not older than what anybody was told before.
        `done(None)` when leadership is lost first. Raises NotLeader."""
        if self.closed or not self.is_leader:
            raise NotLeader(self.leader)
        self._reads.add(done)
        self._multiraft.mark_dirty(self)

    def when_applied(self, index: int, done: ReadDone) -> None:
        """Call `done(index)` once entries up to `index` are applied here; `done(None)` if the group is closed first."""
        if self.closed or self.quarantined is not None:
            done(None)
            return
        self._reads.add_applied(index, done)
        self._multiraft.mark_dirty(self)

    # ---- a replica that is behind

    @property
    def remembers_nothing(self) -> bool:
        """True if there is neither a term nor an entry: as if it had just been made."""
        return self.quarantined is None and self._log_store.term == 0 and len(self._log_store) == 1

    def vote_from_the_beginning(self) -> None:
        """Let a mute member vote, because nobody has a memory of this group, so it has lost none; or nobody else has
        one, since the group never had another member. The caller knows that: the configuration here may be the first
        of many."""
        if self._log_store.mute and (self._membership.is_alone or self.remembers_nothing):
            self._log_store.regain_vote()
            self._election.first_wait(self._multiraft.now, eager=True, new=True, let_in=self._multiraft.is_let_in)
            self._multiraft.mark_dirty(self)

    def vote_as_first_life(self) -> None:
        """Let a mute member vote, because it never had another life than this process: it has forgotten nothing."""
        if self._log_store.mute:
            self._log_store.regain_vote()
            self._multiraft.mark_dirty(self)

    def serve_fetch(self, node: NodeId, request: FetchRequest, now: float) -> FetchReply:
        member = self._peers.get(node)
        leads = self.is_leader and not self.closed and member is not None
        birth = 0 if member is None else member.birth
        return self._catch_up.serve(node, birth, request, self.applied_index, now, leads=leads)

    def fetched(self, sender: NodeId, reply: FetchReply, now: float) -> None:
        self._catch_up.snapshot_receiver.receive(sender, reply, now)

    def _install(self) -> None:
        index = self._catch_up.install(self._core)
        if index is not None:
            self._compaction.installed(index)
            self._proposals.jumped_over(index)

    # ---- proposals

    def propose(self, data: bytes, done: Callable[[Outcome], None]) -> int:
        self._require_leadership()
        if data[0] == CONFIGURATION_KIND:
            raise ValueError("an entry that changes members is proposed by `propose_configuration`")
        size = len(data)
        if size > MAX_ENTRY_BYTES:
            raise ValueError(f"an entry of {size} bytes is over the limit of {MAX_ENTRY_BYTES}; split it")
        if self._proposals and self._proposals.bytes + size > self._options.max_uncommitted_bytes:
            raise Overloaded(
                f"{self.name}: {self._proposals.bytes} bytes wait for a majority; retry when some are answered"
            )
        return self._append(data, done)

    def _require_leadership(self) -> None:
        if self.closed or not self.is_leader or self.is_handing_over:
            raise NotLeader(None if self.is_leader else self.leader)
        if not self.ready and self._proposals.has_older(self._core.term):
            # Led, was deposed, leads again: a client that repeats what was discarded must not find newer ones first.
            raise NotLeader(None)

    def _append(self, data: bytes, done: Callable[[Outcome], None]) -> int:
        core, index = self._core, self._log_store.last + 1
        self._log_store.add(data, index, core.term)
        self._proposals.add(index, core.term, len(data), done)
        core.append_time = 0.0
        self._multiraft.mark_dirty(self)
        return index

    # ---- the library's callbacks

    def random_timeout(self) -> float:
        return self._election.random_timeout()

    def send_appends(self) -> None:
        probes = self._reads.is_waiting and self._core.commit_index >= (self._core.noop_index or 0)
        if probes:
            self._reads.begin_round(self._step.next_sequence, self._core.commit_index)
        self._append_sender.send(self._multiraft.now, probes=probes)

    def state_changed(self, old: int, new: int) -> None:
        now = self._multiraft.now
        if new == LEADER:
            self._election.leader_heard(now)
            log.info("%s: leads term %d from entry %d on", self.name, self._core.term, self._log_store.last + 1)
            self._led_term = self._core.term
            self._core.match.own_term_begins(self._log_store.last + 1)
            self._core.last_response.led_from = now
            self._changes.begin_leadership()
            self._append_sender.begin(now)
            self._leadership_transfer.begin(now)
        elif old == LEADER:
            log.info(
                "%s: steps down in term %d, %d proposal(s) without outcome",
                self.name,
                self._core.term,
                len(self._proposals),
            )
            self._leadership_transfer.end()
            self._links.end()
            if self._core.term == self._led_term:
                self._step.resign()
            self._catch_up.snapshot_sender.end()
            self._reads.lost()
            self._core.election_deadline = now + self._election.random_timeout()
            self._proposals.give_up_later(now + self._options.unknown_after_s)

    def apply_committed(self) -> None:
        """Apply in order, at most one slice; the MultiRaft ticks again while there is more."""
        core = self._core
        if core.applied_index >= core.commit_index:
            return
        if core.state == LEADER:
            self._append_sender.commit_moved(self._multiraft.now)
        elif self._multiraft.puts_off(self):
            return
        if self._applier.run():
            self._multiraft.mark_dirty(self)

    def apply_after_answer(self) -> None:
        """Apply what was put off. Nobody reads what a follower has in memory: it lets go of that."""
        if self._applier.run():
            self._multiraft.mark_dirty(self)
        self._reads.applied(self._core.applied_index)
        self._log_store.let_go(self._core.applied_index)

    # ---- heartbeats of nodes

    def _may_rest(self) -> bool:
        """True if nothing needs the followers' answers."""
        core = self._core
        waits = self._reads or self._proposals or self._compaction.waits or self._step.vote_recovery.is_under_way
        at_rest = core.applied_index == core.commit_index and self._membership.is_settled
        return not waits and at_rest and not self.is_handing_over

    def _resume(self, now: float) -> None:
        self._append_sender.resume(now)
        self._multiraft.mark_dirty(self)

    def speak_again(self, node: NodeId, now: float) -> None:
        self._links.wake(node, now)

    def doubt_leader(self, now: float) -> None:
        if self._links.rests:
            self._links.doubt(self._election.doubted_until(now))
            self._multiraft.mark_dirty(self)

    def trust_leader(self) -> None:
        self._links.trust()

    def rouse(self, now: float) -> None:
        if self._links.rests:
            self._election.rouse(now)
            self._links.stir(tell=True)
            self._multiraft.mark_dirty(self)

    def _fall_out(self) -> None:
        """Take the group out of the heartbeats of nodes: nothing more is done with it here."""
        self._links.end()
        self._links.stir(tell=True)

    # ---- the MultiRaft's calls

    def receive(self, sender: NodeId, message: IncomingMessage, now: float) -> None:
        self._step.receive(sender, message, now)

    @property
    def refused_messages(self) -> int:
        """Messages of peers that were refused for impossible values."""
        return self._step.refused

    def quarantine(self, reason: str) -> None:
        """Stop the faulty group on this node: from now on it is as if its process had been killed. Its waiting callers
        are answered; nothing of it is written, sent or ticked any more."""
        self.quarantined = reason
        self._fall_out()
        self._reads.close()
        self._catch_up.snapshot_sender.end()
        self._catch_up.snapshot_receiver.release_slot()
        self._proposals.give_up(terms_before=self._core.term + 1)
        self._notify()

    def tick(self, now: float) -> None:
        core = self._core
        if self._catch_up.snapshot_receiver.is_ready:
            self._install()
        self._election.before_tick(now)
        if core.state == LEADER:
            self._append_sender.before_tick(now)
            self._leadership_transfer.before_tick(now)
            if self._reads.is_waiting:
                core.append_time = 0.0
            core.count_answers()
        core._onTick(0.0)
        if core.state == LEADER:
            self._changes.tell_who_left()
        self._reads.applied(core.applied_index)
        request = self._catch_up.snapshot_receiver.due(now)
        if request is not None:
            self._multiraft.fetch(*request)
        if now >= self._proposals.give_up_at:
            self._proposals.give_up(terms_before=core.term if core.state == LEADER else core.term + 1)
        self._compaction.run(now)
        self._log_store.flush()
        self._links.check()
        self._notify()

    def _notify(self) -> None:
        role = (self._core.state if self.quarantined is None else FOLLOWER, self._core.term, self.leader, self.ready)
        if role == self._role:
            return
        self._role = role
        if self.on_role_change is not None:
            self.on_role_change(self)

    def next_deadline(self) -> float:
        core = self._core
        if self.quarantined is not None:
            return inf
        if core.state != LEADER:
            return min(core.election_deadline, self._proposals.give_up_at, self._catch_up.snapshot_receiver.next_at)
        return min(core.append_time, self._leadership_transfer.next_deadline, self._proposals.give_up_at)

    def after_sync(self, durable_index: int) -> None:
        log_store = self._log_store
        before = log_store.durable
        log_store.mark_durable(durable_index)
        if self._core.state != LEADER:
            log_store.let_go(self._core.applied_index)
        if self.is_leader and log_store.durable > before and self._core.may_commit:
            self._multiraft.mark_dirty(self)

    @property
    def log_store(self) -> LogStore:
        return self._log_store

    def let_in(self) -> None:
        self._election.let_in(self._multiraft.now)

    def peer_up(self, node: NodeId) -> None:
        self._election.let_in(self._multiraft.now)
        member = self._peers.get(node)
        if member is None or member in self._core.connected:
            return
        self._step._onNodeConnected(member)
        self._leadership_transfer.peer_up(node, self._multiraft.now)
        self._election.peer_joined(self._multiraft.now)
        if self.is_leader:
            self._append_sender.restart(member)
            self._resume(self._multiraft.now)

    def peer_down(self, node: NodeId) -> None:
        member = self._peers.get(node)
        if member is None or member not in self._core.connected:
            return
        self._step._onNodeDisconnected(member)
        if self.is_leader:
            self._append_sender.restart(member)
            self._links.speaks(node)
            self._resume(self._multiraft.now)
        elif self._core.leader == member:
            self._election.leader_gone(self._multiraft.now)
            self._links.stir(tell=True)

    # ---- requests

    def trim(self, index: int) -> None:
        """Ask to forget entries <= index. Done at the end of the tick, as far as it is applied here and (leader)
        held by every member. A checkpoint is in the same batch even if the entries must wait: what the machine
        forgot in that batch must not be missing from an older state."""
        self._compaction.ask(index)
        self._multiraft.mark_dirty(self)

    def rewrite(self) -> None:
        """Write the checkpoint and the hard state again, in the layouts of the active version."""
        self._compaction.rewrite()
        self._multiraft.mark_dirty(self)

    @property
    def rewritten_version(self) -> int:
        """The active version when this process wrote the checkpoint and the hard state last; UNSET: it has not."""
        return min(self._compaction.checkpoint_version, self._log_store.hard_state_version)

    def fetched_by(self, node: NodeId) -> int:
        """Last entry that `node` has fetched of a snapshot, which it has not taken over yet; 0: it fetches none."""
        fetched = self._catch_up.snapshot_sender.progress(node) if self.is_leader else None
        return 0 if fetched is None else fetched["next"] - 1

    def transfer(self, node: NodeId, patience_s: float | None = None) -> None:
        """Hand leadership over: stop taking proposals, wait until `node` has everything, order it to
        campaign. `patience_s`: after which it is given up; None: as the options say."""
        if not self.is_leader:
            raise NotLeader(self.leader)
        if node == self._self_id:
            return
        latest, member = self._membership.configuration, self._peers[node]
        if latest is None or member.replica not in latest.voters:
            raise ValueError(f"{self.name}: node {node} has no vote, and cannot lead: choose a voter")
        self._leadership_transfer.start(member, self._multiraft.now, patience_s)
        self._multiraft.mark_dirty(self)

    def close(self, *, erase: bool, over: bool = False) -> None:
        self.closed = True
        self._fall_out()
        self._reads.close()
        self._catch_up.snapshot_receiver.release_slot()
        self._proposals.give_up(terms_before=self._core.term + 1)
        if erase:
            self._log_store.erase(over=self._log_store.birth if over else 0)
        elif self.quarantined is None:
            self._compaction.close()
            self._log_store.flush()
        self._log_store.forget_cached()
