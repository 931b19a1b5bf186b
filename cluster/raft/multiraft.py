"""Raft groups of one node, and the one place that orders their turns.

The problem: a message or an answer that leaves before the sync promises what a crash forgets (A6, A9); a tick
on state that is not on disk decides on it. The order of a turn is therefore fixed: queued input, then the
groups that are due, then *one* write; the caller syncs (in a thread, if it likes) and calls `release`, and
only then messages leave and the next turn may begin. (But for a leader's appends, which promise nothing: with
`eager_appends` they leave before the write.) While a sync runs, proposals and input are taken and
belong to the next turn.

What nobody waits for comes last: a follower that has to answer for new entries applies others once it has answered, and
writes what comes of them with its next turn, or `WRITE_LAG_S` later.

    turn = multiraft.turn()
    if turn is not None:
        if turn.needs_sync:
            await in_thread(disk.sync)
        multiraft.release(turn)

A fault of *one* group puts that group into quarantine (`quarantine.py`). A fault of the node (its disk, its memory) is
no fault of a group: after any other exception out of `turn` the node has to stop, since memory is ahead of the disk.
Every later call raises the same again.

Rejected: a write and sync per group. One sync carries all groups of a node, as one WAL does.
"""

from __future__ import annotations

import heapq
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from types import MappingProxyType

from cluster.raft.elections.leadership_transfer import PreferredTurns
from cluster.raft.group import RaftGroup
from cluster.raft.heartbeats.node_heartbeats import NODE_MESSAGES, NodeHeartbeats
from cluster.raft.interfaces import Clock, Disk, DiskBatch, GroupId, NodeId, StateMachine
from cluster.raft.log.entry_cache import EntryCache
from cluster.raft.log.key_layout import births_over, erase_group, stored_birth
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.configuration import FOUNDING_BIRTH, Configuration, founding
from cluster.raft.options import RaftOptions
from cluster.raft.proposal_outcomes import InvariantBroken, NodeUnfit, OtherBirth
from cluster.raft.pysyncobj.private_names import set_clock
from cluster.raft.quarantine import GROUP_FAULTS, NothingStored, Quarantine, unless_told
from cluster.raft.raft_pb2 import FetchReply, FetchRequest, RaftMessage
from cluster.raft.replication.inflight_limit import InflightLimit
from cluster.raft.replication.message_encoding import IncomingMessage, OutgoingMessage
from cluster.raft.snapshot.bandwidth import LONGEST_REST_MS, CopyBudgets
from cluster.raft.snapshot.sender import SnapshotSender
from cluster.versions import MEMBERS_CHANGE_FROM, UNSET

log = logging.getLogger(__name__)

Send = Callable[[NodeId, list[OutgoingMessage]], None]

WRITE_LAG_S = 0.05
"""Time in which what a follower has applied is written, if no turn does it earlier."""


class Turn:
    """Outcome of one turn: what its sync makes durable, and the messages to send after it."""

    __slots__ = ("durable", "fetches", "messages", "needs_sync")

    def __init__(
        self,
        needs_sync: bool,
        messages: dict[NodeId, list[OutgoingMessage]],
        durable: list[tuple[RaftGroup, int]],
        fetches: list[tuple[NodeId, FetchRequest]],
    ) -> None:
        self.needs_sync = needs_sync
        self.messages = messages
        self.durable = durable
        self.fetches = fetches


class MultiRaft:
    def __init__(
        self,
        node_id: NodeId,
        disk: Disk,
        clock: Clock,
        random: random.Random,
        send: Send,
        options: RaftOptions | None = None,
        *,
        alone: bool = True,
        active_version: Callable[[], int] = lambda: UNSET,
    ) -> None:
        """`alone`: the cluster has no other node. `active_version`: of all that is written and sent."""
        if node_id < 1:
            raise ValueError(f"a node id is 1 or more, not {node_id}")
        self.node_id = node_id
        self.options = options or RaftOptions()
        self.active_version = active_version
        self.now = clock.monotonic()
        self.room = InflightLimit()
        self.copies = CopyBudgets(self.options)
        self.preferred_turns = PreferredTurns(self.options.prefer_per_s)
        self.is_disk_full = False
        """True if logs wait for voters only, and for no snapshot. The owner sets it, by how much space is left."""
        self.on_wake: Callable[[], None] | None = None
        self.on_answers: Callable[[], None] | None = None
        """Called before the write of a turn without news for the disk: what callers were told in it may leave."""
        self.on_fetch: Callable[[NodeId, FetchRequest], None] | None = None
        """Carries a request to another node's `serve_fetch`, and its answer to `deliver_fetched` here. It may take its
        time, or get lost: requests are repeated."""
        self._disk = disk
        self._clock = clock
        self._random = random
        self._send = send
        self._groups: dict[GroupId, RaftGroup] = {}
        self._cache = EntryCache(self.options.tail_cache_bytes)
        self._inbox: list[tuple[NodeId, Sequence[IncomingMessage]]] = []
        self._dirty: dict[RaftGroup, None] = {}
        self._deadlines: list[tuple[float, int, RaftGroup]] = []
        self._tie = 0
        self._up: set[NodeId] = set()
        self.is_let_in = alone
        """True once another node has let this process in: only then it is no older copy of the node's data. A group
        without other members is led from then on; the others cannot be led without another member's word anyway."""
        self.on_quarantined: Callable[[RaftGroup], None] | None = None
        self._quarantine = Quarantine(self._silence)
        self._batches: dict[GroupId, DiskBatch] = {}  # of this turn
        self._outbox: dict[NodeId, list[OutgoingMessage]] = {}
        self._fetches: list[tuple[NodeId, FetchRequest]] = []
        self._fetched: list[tuple[NodeId, FetchReply]] = []
        self._heartbeats = NodeHeartbeats(random, self.options, self._groups, self._emit)
        self._early: dict[NodeId, list[OutgoingMessage]] = {}
        self._put_off: list[RaftGroup] = []  # groups that apply when the turn's answers have left
        self._write_at = inf
        # What an earlier process of this node wrote may not have been synced: the first turn does it.
        self._votes_changed = True
        self._entries_changed = False
        self._open_turn: Turn | None = None
        self._in_turn = False
        self._broken: BaseException | None = None

    # ---- groups

    @property
    def groups(self) -> Mapping[GroupId, RaftGroup]:
        return MappingProxyType(self._groups)

    def open_group(
        self,
        group_id: GroupId,
        members: Sequence[NodeId],
        machine: StateMachine,
        *,
        birth: int | None = FOUNDING_BIRTH,
        preferred: NodeId | None = None,
        mute: bool = False,
        keep_entries: int | None = None,
        patient: bool = False,
    ) -> RaftGroup:
        """Load a group from disk, or begin it. `members`: with which it began, the same at all of them; none, if the
        replica was added later: then it hears of them from the log.

        `birth`: of this replica, which the metadata say; None: they are what this group replicates, so it hears that
        from the group's leader. A later birth than the stored one begins anew; an earlier one raises OtherBirth.

        `mute`: if nothing is stored of the group here, that may be because it was lost: the member follows, but does
        not count until the group's leader says that nothing of what it forgot matters (`vote_recovery`). The member's
        earlier life must be over: nothing sent by it may be *asked for* any more when this one speaks.

        `keep_entries`: the state is all that matters of applied entries; so many of the newest stay (`compaction`).

        `patient`: nobody at its followers waits for what is committed; they hear by the next append or heartbeat.
        """
        if group_id in self._groups:
            raise ValueError(f"Raft group {group_id} is open already")
        is_set = self.node_id in members and len(set(members)) == len(members) and min(members) >= 1
        if members and not is_set:
            raise ValueError(f"Raft group {group_id}: members {list(members)} are not a set with node {self.node_id}")
        self._enter()
        self._require_birth(group_id, birth)
        hint, own = founding(members) if members else None, birth or 0
        make = partial(self._make_group, group_id, hint, machine, own, preferred, mute, keep_entries, patient)
        try:
            group = make(self._disk)
        except NodeUnfit:
            raise
        except GROUP_FAULTS as error:
            # With nothing in memory, so that nothing can come of it; what is stored stays as it is.
            self._batches.pop(group_id, None)
            group = make(NothingStored())
            self._groups[group_id] = group
            self._quarantine.put(group, error)
            return group
        self._groups[group_id] = group
        for node in sorted(self._up):
            group.peer_up(node)
        self.mark_dirty(group)
        return group

    def _require_birth(self, group_id: GroupId, birth: int | None) -> None:
        """Erase what is stored of an earlier life of the replica. Raises OtherBirth if it is of a later one."""
        stored, over = stored_birth(group_id, self._disk), births_over(group_id, self._disk)
        if birth is None:
            return
        if birth <= over or (stored is not None and birth < stored):
            raise OtherBirth(
                f"Raft group {group_id}: a replica of birth {birth} is to be opened, and births up to "
                f"{max(over, (stored or 1) - 1)} are over on node {self.node_id}: its metadata are behind"
            )
        if stored and stored < birth:
            erase_group(group_id, self.batch_of(group_id), stored)
            self._write()

    def _make_group(
        self,
        group_id: GroupId,
        hint: Configuration | None,
        machine: StateMachine,
        birth: int,
        preferred: NodeId | None,
        mute: bool,
        keep_entries: int | None,
        patient: bool,
        disk: Disk,
    ) -> RaftGroup:
        options = replace(self.options, commit_lag_s=inf) if patient else self.options
        batch = partial(self.batch_of, group_id)
        log_store = LogStore(
            group_id, disk, self._cache, batch, self._note_vote, self._note_entries, mute=mute,
            active_version=self.active_version, founding=hint, birth=birth,
        )  # fmt: skip
        append_emit = self._emit_early if self.options.eager_appends else self._emit
        return RaftGroup(
            group_id, self.node_id, machine, log_store, self, self._emit, append_emit, options,
            random.Random(self._random.getrandbits(64)), preferred,
            disk, random.Random(self._random.getrandbits(64)), keep_entries,
            self._heartbeats,
        )  # fmt: skip

    def close_group(self, group_id: GroupId, *, erase: bool, over: bool = False) -> None:
        """Forget a group; with `erase` also everything this package stored of it (a machine removes its own
        keys). `over`: the group lives on without this replica, which must never be opened again with its birth."""
        group = self._groups.pop(group_id)
        self._enter()
        self._dirty.pop(group, None)
        group.close(erase=erase, over=over)
        group.scheduled_at = inf
        self._write()

    def close(self) -> None:
        """Checkpoint and close all groups, and sync: the next start has nothing to apply again."""
        for group_id in list(self._groups):
            self.close_group(group_id, erase=False)
        self._disk.sync()

    def replay(self, group: RaftGroup) -> None:
        """Apply what the group is known to have committed before, right after it was opened: for a caller that must not
        act on less than this node knew when it stopped. The caller drives no turns meanwhile."""
        while group.applied_index < group.commit_index and group.quarantined is None:
            turn = self.turn()
            if turn is None:
                return
            if turn.needs_sync:
                self._disk.sync()
            elif self._disk.must_drain:
                self._disk.drain()
            self.release(turn)

    # ---- input

    def is_up(self, node: NodeId) -> bool:
        return node in self._up

    def deliver(self, sender: NodeId, messages: Sequence[IncomingMessage]) -> None:
        idle = not self.has_work
        self._inbox.append((sender, messages))
        if idle:
            self._wake()

    def serve_fetch(self, sender: NodeId, request: FetchRequest) -> FetchReply:
        """A piece of a snapshot for another node. Reads the disk, a bounded amount; promises and changes nothing, so
        whatever goes wrong costs that node its piece and nobody else: the group may have no majority without its
        leader."""
        self._enter()
        group, budget = self._groups.get(request.group), self.copies.out
        if group is None:
            return SnapshotSender.refuse(request, f"node {self.node_id} has no such group")
        may_put_off = self.active_version() >= MEMBERS_CHANGE_FROM  # else a debt would only be met after the upgrade
        if may_put_off and budget.opens_at(self.now, ("snapshot", request.group, sender)) is not None:
            return SnapshotSender.put_off(request, min(budget.rest_ms(self.now) + 1, LONGEST_REST_MS))
        try:
            reply = group.serve_fetch(sender, request, self.now)
            if may_put_off:
                budget.charge(len(reply.body), self.now)
            return reply
        except NodeUnfit:
            raise
        except GROUP_FAULTS as error:
            log.error("%s: gives node %d no snapshot: %s", group.name, sender, error, exc_info=unless_told(error))
            return SnapshotSender.refuse(request, f"node {self.node_id} cannot give it: {error!r}")

    def deliver_fetched(self, sender: NodeId, reply: FetchReply) -> None:
        idle = not self.has_work
        self._fetched.append((sender, reply))
        if idle:
            self._wake()

    def let_in(self) -> None:
        """Lead groups without other members: this cluster has no other node that could tell this process from an older
        copy."""
        self._enter()
        self.is_let_in = True
        for group in list(self._groups.values()):
            self._quarantine.guarded(group, group.let_in)
            self._schedule(group)

    def forget_node(self, node: NodeId) -> None:
        """Forget what was agreed with a node that is no member of the cluster any more."""
        self._enter()
        self._heartbeats.forget(node, self.now)
        for group in list(self._groups.values()):
            self._schedule(group)

    def peer_up(self, node: NodeId) -> None:
        self._enter()
        self._up.add(node)
        self.is_let_in = True
        for group in list(self._groups.values()):
            self._quarantine.guarded(group, group.peer_up, node)
            self._schedule(group)

    def peer_down(self, node: NodeId) -> None:
        self._enter()
        self._up.discard(node)
        for group in list(self._groups.values()):
            self._quarantine.guarded(group, group.peer_down, node)
            self._schedule(group)

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do now (after `release`, if a turn is open)."""
        return bool(self._inbox or self._dirty or self._fetched)

    def _wake(self) -> None:
        """Tell the host that `has_work` became true. What becomes dirty inside a turn is announced by `release`."""
        if self.on_wake is not None and not self._in_turn:
            self.on_wake()

    def mark_dirty(self, group: RaftGroup) -> None:
        if group not in self._dirty and not group.closed and group.quarantined is None:
            idle = not self.has_work
            self._dirty[group] = None
            if idle:
                self._wake()

    # ---- turn

    def turn(self) -> Turn | None:
        if self._broken is not None:
            raise InvariantBroken(f"node {self.node_id} stopped: {self._broken}") from self._broken
        assert self._open_turn is None, "release() the turn before the next one"
        self._enter()
        self._in_turn = True
        try:
            turn = self._turn()
        except BaseException as error:
            self._broken = error
            raise
        finally:
            self._in_turn = False
        self._open_turn = turn
        return turn

    def _turn(self) -> Turn | None:
        now = self.now
        inbox, self._inbox = self._inbox, []
        groups, dirty = self._groups, self._dirty
        for sender, messages in inbox:
            for message in messages:
                group = groups.get(message.group)
                if group is None:
                    if message.group == NODE_MESSAGES and isinstance(message, RaftMessage):
                        self._heartbeats.receive(sender, message, now)
                elif self._quarantine.guarded(group, group.receive, sender, message, now):
                    dirty[group] = None
        fetched, self._fetched = self._fetched, []
        for sender, reply in fetched:
            group = groups.get(reply.group)
            if group is not None and self._quarantine.guarded(group, group.fetched, sender, reply, now):
                dirty[group] = None
        if self._heartbeats.next_at <= now:
            self._heartbeats.run(now)
        self._collect_due(now)
        ticked, self._dirty = self._dirty, {}
        if not ticked and not self._batches and not self._outbox:
            self._write_at = inf  # a quarantine has dropped what was to be written
            return None
        for group in ticked:
            self._quarantine.guarded(group, group.tick, now)
            self._schedule(group)
        early, self._early = self._early, {}
        self._send_all(early)
        if self.on_answers is not None and not (self._votes_changed or self._entries_changed):
            self.on_answers()
        self._write()
        durable = [(group, group.log_store.mark_written()) for group in ticked if group.quarantined is None]
        self._cache.shrink()
        needs_sync = self._votes_changed or (self._entries_changed and self.options.durability == "fsync")
        self._votes_changed = self._entries_changed = False
        messages_by_peer, self._outbox = self._outbox, {}
        fetches, self._fetches = self._fetches, []
        return Turn(needs_sync, messages_by_peer, durable, fetches)

    def release(self, turn: Turn) -> None:
        """Let the turn's messages go, because its writes are as durable as the options ask."""
        assert turn is self._open_turn, "this turn is not the open one"
        self._open_turn = None
        self._enter()
        for group, index in turn.durable:
            if not group.closed:
                self._quarantine.guarded(group, group.after_sync, index)
        self._send_all(turn.messages)
        self._apply_put_off()
        self.room.turn_ended()
        if self.on_fetch is not None:
            for node, request in turn.fetches:
                self.on_fetch(node, request)
        if self.has_work:
            self._wake()

    def puts_off(self, group: RaftGroup) -> bool:
        """Tell whether a follower is to apply only once this turn's answers have left, and see to that."""
        has_to_answer = self._in_turn and self._entries_changed
        if has_to_answer:
            self._put_off.append(group)
        return has_to_answer

    def _apply_put_off(self) -> None:
        groups, self._put_off = self._put_off, []
        for group in groups:
            if not group.closed:
                self._quarantine.guarded(group, group.apply_after_answer)
        if self._batches and not self.has_work:
            self._write_at = min(self._write_at, self.now + WRITE_LAG_S)

    # ---- quarantine

    def quarantine(self, group_id: GroupId, reason: str) -> None:
        """Quarantine a group of which the caller knows that nothing more may be done with it here."""
        self._enter()
        group = self._groups[group_id]
        if group.quarantined is None:
            self._quarantine.put(group, InvariantBroken(reason))

    @property
    def quarantined(self) -> dict[GroupId, str]:
        """Reason for the quarantine of each group that is in it."""
        return {number: group.quarantined for number, group in self._groups.items() if group.quarantined is not None}

    def _silence(self, group: RaftGroup) -> None:
        """Drop what is left of a group that was put into quarantine: its writes, its messages and its deadline."""
        number = group.group_id
        self._batches.pop(number, None)
        self._dirty.pop(group, None)
        for box in (self._outbox, self._early):
            for node, messages in box.items():
                box[node] = [message for message in messages if message.group != number]
        self._fetches = [fetch for fetch in self._fetches if fetch[1].group != number]
        group.scheduled_at = inf
        if self.on_quarantined is not None:
            self.on_quarantined(group)

    def _collect_due(self, now: float) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            at, _, group = heapq.heappop(deadlines)
            if group.scheduled_at != at:
                continue
            group.scheduled_at = inf
            if group.next_deadline() <= now:
                self._dirty[group] = None
            else:
                self._schedule(group)

    def _schedule(self, group: RaftGroup) -> None:
        """Keep one live heap entry per group, never later than its deadline; one that is too early is moved when it
        fires."""
        at = group.next_deadline()
        if at < group.scheduled_at and not group.closed:
            group.scheduled_at = at
            self._tie += 1
            heapq.heappush(self._deadlines, (at, self._tie, group))

    def next_deadline(self) -> float:
        """Time at which `turn` has something to do even without input; inf if never."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] != deadlines[0][2].scheduled_at:
            heapq.heappop(deadlines)
        return min(deadlines[0][0] if deadlines else inf, self._heartbeats.next_at, self._write_at)

    # ---- for groups and log stores

    def _enter(self) -> None:
        """Time stands still within one call."""
        self.now = now = self._clock.monotonic()
        set_clock(lambda: now)

    def batch_of(self, group_id: GroupId) -> DiskBatch:
        """The writes of one group in this turn, apart from those of the others, so that those of a broken group can be
        dropped. The keys of groups never overlap."""
        batch = self._batches.get(group_id)
        if batch is None:
            batch = self._batches[group_id] = self._disk.batch()
        return batch

    def _write(self) -> None:
        for group in list(self._dirty):
            # A callback proposed to it after its tick, or input came since: entries and hard state go together.
            self._quarantine.guarded(group, group.log_store.flush)
        self._write_at = inf
        if self._batches:
            (batch, *others), self._batches = self._batches.values(), {}
            for other in others:
                batch.extend(other)
            try:
                self._disk.write(batch)
            except BaseException as error:
                self._broken = error  # outside of a turn too: the batch held what all groups have in memory
                raise

    def fetch(self, node: NodeId, request: FetchRequest) -> None:
        self._fetches.append((node, request))

    def _note_vote(self) -> None:
        self._votes_changed = True

    def _note_entries(self) -> None:
        self._entries_changed = True

    def _emit(self, node: NodeId, message: OutgoingMessage) -> None:
        self._outbox.setdefault(node, []).append(message)

    def _emit_early(self, node: NodeId, message: OutgoingMessage) -> None:
        """A leader's append promises nothing, not even that the leader has written it: followers begin while it does
        (`eager_appends`)."""
        self._early.setdefault(node, []).append(message)

    def _send_all(self, messages_by_peer: dict[NodeId, list[OutgoingMessage]]) -> None:
        for node, messages in messages_by_peer.items():
            self._send(node, messages)
