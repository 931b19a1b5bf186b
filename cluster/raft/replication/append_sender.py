"""The sending half of a leader: which appends go out in a tick.

The problem: pysyncobj sends an append to everybody whenever it sends at all, slices the whole tail for each,
and knows no window (L9-L11). The rules: entries leave in the tick after they were proposed, within a window
per follower; a heartbeat goes only to followers that got nothing else; a new commit index travels with the next
append or, after `commit_lag_s`, alone; after a rejection one append at a time, until a match is found.

What all groups together send to a follower's node is bounded, too (`inflight_limit`). Replicas that are to come, and
are far behind, get what the node has to spare (`snapshot/bandwidth.py`).

A follower that has everything is asked to rest, and is sent nothing then (`cluster.raft.heartbeats`). Once all do,
nothing is due.

Followers at the same index, of the same birth, get the same message object, so its bytes are built (and can be
serialized) once.

Rejected: a timer per follower. All leaders of a node beat at the same multiples of `heartbeat_s`, so one
frame carries them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, inf

from cluster.raft.heartbeats.quiescence import QuietLinks
from cluster.raft.interfaces import NodeId
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.membership import Membership, Tell
from cluster.raft.options import RaftOptions
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.replication.inflight_limit import InflightLimit
from cluster.raft.replication.message_encoding import EncodedAppend, OutgoingMessage, Stamp
from cluster.raft.replication.progress import Progress
from cluster.raft.replication.step import Stepper
from cluster.raft.snapshot.bandwidth import PACED_APPEND_BYTES, PACED_APPEND_ENTRIES, CopyBudget

FAR_ENTRIES = 64
"""A replica that lacks no more is sent them like any follower."""

_Built = dict[tuple[int, float, int, bool], tuple[EncodedAppend, int, int]]
"""Appends of one tick, with the number and the size of their entries, by their first entry, the last one that may be
sent, the birth they are for, and whether they count for the pace."""


class AppendSender:
    def __init__(
        self,
        membership: Membership,
        stamp: Stamp,
        log_store: LogStore,
        core: Core,
        step: Stepper,
        options: RaftOptions,
        emit: Callable[[NodeId, OutgoingMessage], None],
        tell: Tell,
        links: QuietLinks,
        may_rest: Callable[[], bool],
        room: InflightLimit,
        budget: CopyBudget,
    ) -> None:
        """`may_rest`: nothing else in the group needs the followers' answers."""
        self._membership = membership
        self._peers = membership.peers
        self._stamp = stamp
        self._log_store = log_store
        self._core = core
        self._step = step
        self._options = options
        self._emit = emit
        self._tell = tell
        self._links = links
        self._may_rest = may_rest
        self._room = room
        self._budget = budget
        self._paced_until = inf
        self._heartbeat_at = inf
        self._commit_at = inf
        self._ticked_at = 0.0

    def begin(self, now: float) -> None:
        """Begin a leadership; the library sends the first appends right after this."""
        self._heartbeat_at = now if self._peers else inf
        self._commit_at = inf
        self._ticked_at = now
        self._links.begin(now)
        self._step.vote_recovery.begin()
        self._step.progress = {}
        for member in self._peers.values():
            self.begin_member(member, now)

    def begin_member(self, member: RaftMember, now: float) -> None:
        """Begin with a follower of which nothing is known yet."""
        self._step.progress[member.id] = Progress(self._options, self._step.next_sequence)
        self._core.begin_member(member, now)
        if self._heartbeat_at == inf:
            self._heartbeat_at = now

    def restart(self, member: RaftMember) -> None:
        """Restart a follower whose connection broke or came back: what was in flight is lost."""
        self._step.progress[member.id].restart(self._step.next_sequence)
        match = self._core.match.get(member, 0)
        if match:
            self._core.next_index[member] = match + 1

    def commit_moved(self, now: float) -> None:
        if self._peers and self._commit_at == inf:
            self._commit_at = now + self._options.commit_lag_s
            self._core.append_time = min(self._core.append_time, self._commit_at)

    def before_tick(self, now: float) -> None:
        """The library compares times strictly, blames others for our own pauses (L5), and hears no heartbeats of
        nodes."""
        core = self._core
        stalled_s = now - self._ticked_at - self._options.heartbeat_s
        if stalled_s > self._options.stall_s and self._heartbeat_at < inf:
            for member in self._peers.values():
                core.last_response[member] = core.last_response.heard_at(member) + stalled_s
        self._links.hear()
        self._ticked_at = now
        if core.append_time <= now:
            core.append_time = 0.0

    def resume(self, now: float) -> None:
        """Speak to followers again, beginning with the next tick."""
        if self._heartbeat_at == inf and self._peers:
            self._heartbeat_at = self._ticked_at = now
        self._core.append_time = 0.0

    def send(self, now: float, *, probes: bool = False) -> None:
        """Send the appends that are due. `probes`: an answer is wanted from everybody, whether there is something to
        say or not."""
        beats = now >= self._heartbeat_at
        tells_commit = now >= self._commit_at
        commit = self._core.commit_index
        built: _Built = {}
        behind = False
        self._paced_until = inf
        asks = beats and self._may_rest() and self._links.is_idle(self._log_store.last, now)
        for node, member in self._peers.items():
            if member not in self._core.connected:
                continue
            progress = self._step.progress[node]
            if progress.is_suspected:
                progress.is_suspected = False
                self._send_empty(node, member)  # before it is given what it lost
            if self._send_entries(node, member, progress, built, now):
                progress.commit_told = commit
                if beats and self._step.vote_recovery.is_mute(node):
                    self._send_empty(node, member)  # entries for several cannot carry its release
            elif probes or (tells_commit and progress.commit_told < commit):
                self._send_empty(node, member)
                progress.commit_told = commit
            elif beats and not self._links.is_quiet(node):
                self._send_empty(node, member, quiesce=asks and self._has_all(member, progress), now=now)
                progress.commit_told = commit
            behind = behind or progress.commit_told < commit
        if beats:
            beat = self._options.heartbeat_s
            self._heartbeat_at = (floor(now / beat) + 1) * beat
        if tells_commit or not behind:
            self._commit_at = inf
        if self._is_silent():
            self._heartbeat_at = inf
        elif self._heartbeat_at == inf and self._peers:
            self.resume(now)
        self._core.append_time = min(self._heartbeat_at, self._commit_at, self._paced_until)

    def _has_all(self, member: RaftMember, progress: Progress) -> bool:
        """True if the follower has acknowledged the whole log and nothing is in flight to it."""
        settled = not (progress.probing or progress.behind or progress.is_suspected or progress.in_flight_bytes)
        return settled and self._core.match.get(member, 0) == self._log_store.last

    def _is_silent(self) -> bool:
        """True if all reachable members rest, and are a majority with this leader: else it has to find out that it
        leads no more."""
        core, links = self._core, self._links
        if not links.quiet or core.commit_index < self._log_store.last:
            return False
        if not self._membership.is_reached(links.quiet):
            return False
        awake = any(member in core.connected and not links.is_quiet(node) for node, member in self._peers.items())
        return not awake and self._may_rest()

    def _send_entries(
        self,
        node: NodeId,
        member: RaftMember,
        progress: Progress,
        built: _Built,
        now: float,
    ) -> bool:
        next_index, log_store = self._core.next_index, self._log_store
        sent = False
        end = min(log_store.last, self._membership.sendable_up_to(member))
        progress.looked_at(log_store.last, is_far=end - next_index[member] >= FAR_ENTRIES)
        while next_index[member] <= end and progress.has_room() and self._room.is_there(node):
            start = next_index[member]
            if start <= log_store.base_index:
                progress.behind = True
                progress.warn_once(
                    f"{self._step.name}: {member} needs entry {start}, the log begins at {log_store.base_index + 1}; "
                    "that replica fetches a snapshot"
                )
                return sent
            is_copy = member not in self._membership.voting and end - start >= FAR_ENTRIES
            is_new = is_copy and log_store.last - progress.grown_from >= PACED_APPEND_ENTRIES
            is_paced = is_copy and not is_new
            if is_paced and (opens_at := self._budget.opens_at(now, (self._step.name, node), node)) is not None:
                self._paced_until = min(self._paced_until, opens_at)
                return sent
            key = (start, end, member.birth, is_paced)
            if key not in built:
                built[key] = self._build(start, int(end), member.birth, is_copy=is_copy, is_paced=is_paced)
            message, count, size = built[key]
            self._links.speaks(node)
            self._emit(node, message)
            self._room.use(node, size)
            if is_new:  # as many as have come meanwhile do not count: at any pace the replica comes nearer
                progress.grown_from += count
            elif is_paced:
                self._budget.charge(size, now, count)
            progress.sent(message.sequence, size, now)
            next_index[member] = start + count
            sent = True
        return sent

    def _build(
        self, start: int, end: int, birth: int, *, is_copy: bool, is_paced: bool
    ) -> tuple[EncodedAppend, int, int]:
        options, log_store = self._options, self._log_store
        most, most_bytes = options.max_append_entries, options.max_append_bytes
        if is_copy:
            most, most_bytes = min(most, PACED_APPEND_ENTRIES), min(most_bytes, PACED_APPEND_BYTES)
        data, terms = log_store.take(start, min(most, end - start + 1), most_bytes)
        core, previous = self._core, (start - 1, log_store.term_at(start - 1))
        message = self._stamp.append_entries(
            core.term, self._next_sequence(), core.commit_index, previous, data, terms, birth, paced=is_paced
        )
        return message, len(data), sum(map(len, data))

    def _send_empty(self, node: NodeId, member: RaftMember, *, quiesce: bool = False, now: float = 0.0) -> None:
        """Send a heartbeat; one without promise if the follower needs entries that are gone here."""
        start, log_store, core = self._core.next_index[member], self._log_store, self._core
        sequence = self._next_sequence()
        if quiesce:
            self._links.asks(node, sequence, now)
        else:
            self._links.speaks(node)
        index = self._step.progress[node].acknowledged
        acknowledged = (index, log_store.term_at(index) if index >= log_store.base_index else 0) if index else None
        if start <= log_store.base_index:
            retained_from = log_store.base_index + 1
            message = self._stamp.append(
                core.term, sequence, core.commit_index, None, retained_from=retained_from, acknowledged=acknowledged
            )
        else:
            previous = (start - 1, log_store.term_at(start - 1))
            release = self._step.release_for(node)
            message = self._stamp.append(
                core.term,
                sequence,
                core.commit_index,
                previous,
                release=release,
                acknowledged=acknowledged,
                quiesce=quiesce,
            )
        self._tell(member, message)

    def _next_sequence(self) -> int:
        sequence = self._step.next_sequence
        self._step.next_sequence = sequence + 1
        return sequence
