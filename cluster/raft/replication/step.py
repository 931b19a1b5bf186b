"""The transport of one group's core: every message passes here, in both directions, and is dropped, corrected
or answered.

The problem: as shipped, pysyncobj loses acknowledged entries on plain FIFO links. It counts messages instead
of voters (A5), takes replies of any age for fresh ones (A1), truncates what it already has and acknowledged
(A2), and believes a leader's commit index without a match of logs (A3). The rules below keep each of its
handlers within the conditions under which it is right:

* a message for another birth than the own one is dropped, and so is one with values that cannot be
  (`message_validation`); answers count from the replica that this one knows at that node, with its birth; appends and
  requests for votes are taken from any (once members can change at all): who sends them may have a newer configuration;
* an append is delivered without the prefix we already hold, so the library truncates only on a real conflict;
  a conflict at or below our commit index stops the group;
* a commit index is believed up to the entry the same append proved to match;
* one vote per voter and term; one accepted rejection per batch of appends (`progress`);
* elections go through `election` (pre-vote, loyalty); messages of a past term are answered with ours (L3 +
  L4, never one alone);
* commands are never forwarded to another member (A12, A13);
* a member without a memory grants no vote (but to the only other member), and is not believed to remember
  (`vote_recovery`);
* a leader repeats to each member the last entry that it acknowledged in the leader's term; a member that lacks it has
  lost its memory, and is one without from then on, on disk before it says anything else.

Nothing leaves here directly: `emit` puts it into the node's outbox, which opens after the sync.

Rejected: repairing pysyncobj's handlers in place. Filters can be tested one by one, and the library stays
what was audited.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from pysyncobj.transport import Transport

from cluster.raft.elections.election import Election
from cluster.raft.elections.vote_recovery import VoteRecovery
from cluster.raft.heartbeats.quiescence import QuietLinks
from cluster.raft.interfaces import NodeId
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.configuration import FOUNDING_BIRTH
from cluster.raft.membership.membership import Membership, Tell
from cluster.raft.proposal_outcomes import InvariantBroken
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.pysyncobj.private_names import CANDIDATE, LEADER
from cluster.raft.raft_pb2 import AppendEntries, AppendReply, RaftMessage
from cluster.raft.read_index import ReadIndex
from cluster.raft.replication.message_encoding import IncomingMessage, ReceivedAppend, Stamp
from cluster.raft.replication.message_validation import RAFT, term_fault
from cluster.raft.replication.progress import Progress
from cluster.raft.snapshot.bandwidth import CopyBudgets
from cluster.raft.snapshot.receiver import SnapshotReceiver

log = logging.getLogger(__name__)


FROM_ANYBODY = frozenset({"append", "vote_request", "timeout_now", "resigned", "not_member"})
"""Messages that are no answers: the sender may belong to a configuration that is not known here yet."""


class Stepper(Transport):
    def __init__(
        self,
        name: str,
        membership: Membership,
        stamp: Stamp,
        log_store: LogStore,
        election: Election,
        tell: Tell,
        mark: int,
        snapshot_receiver: SnapshotReceiver,
        reads: ReadIndex,
        links: QuietLinks,
        copies: CopyBudgets,
    ) -> None:
        """`mark`: not 0; tells this life of a mute member from others."""
        super().__init__(None, None, ())
        self.name = name
        self._membership = membership
        self._members = membership.peers
        self._stamp = stamp
        self._log_store = log_store
        self._election = election
        self._tell = tell
        self._mark = mark
        self._snapshot_receiver = snapshot_receiver
        self._reads = reads
        self._links = links
        self._copies = copies
        self.vote_recovery = VoteRecovery(membership)
        self.core: Core
        self.progress: dict[NodeId, Progress] = {}
        self.next_sequence = 1
        self._answering = 0
        self._voting_for = 0  # round of the vote request that is being answered
        self._rest_ms = 0
        self._voters: set[tuple[int, NodeId]] = set()
        self.refused = 0  # messages with values that cannot be
        self._handlers: dict[str, Callable[[RaftMember, RaftMessage, float], None]] = {
            "append_reply": self._on_append_reply,
            "vote_request": self._on_vote_request,
            "vote_reply": self._on_vote_reply,
            "timeout_now": self._on_timeout_now,
            "stale_term": self._on_stale_term,
            "resigned": self._on_resigned,
            "not_member": self._on_not_member,
        }

    # ---- outgoing

    def send(self, node: RaftMember, message: dict[str, Any]) -> bool:
        kind = message["type"]
        if kind == "request_vote":
            out = self._vote_request(message["term"], others_grant=self._membership.last_to_ask(set()) == node)
        elif kind == "response_vote":
            out = self._stamp.vote_reply(message["term"], granted=True, round_number=self._voting_for)
        elif kind == "next_node_idx":
            out = self._reply(message["next_node_idx"], success=message["success"], reset=message["reset"])
        elif kind == "timeout_now":
            self._links.speaks(node.id)
            out = self._stamp.timeout_now(message["term"])
        else:
            raise InvariantBroken(f"{self.name}: pysyncobj wants to send {kind!r}, which no member may send")
        self._tell(node, out)
        return True

    def _vote_request(self, term: int, *, others_grant: bool) -> RaftMessage:
        last, by_transfer = (self._log_store.last, self._log_store.last_term), self._election.by_transfer
        return self._stamp.vote_request(
            term, last, transfer=by_transfer, round_number=self._candidacy, others_grant=others_grant
        )

    @property
    def _candidacy(self) -> int:
        """Mark of this life, which votes name: a forgotten life may have asked for the same term with a longer log."""
        return self._mark if self._membership.may_change and self._log_store.has_forgotten else 0

    def _reply(self, next_index: int, *, success: bool, reset: bool, quiesced: bool = False) -> RaftMessage:
        if reset:
            next_index = self._hint(next_index)
        mute = self._mark if self._log_store.mute else 0
        return self._stamp.append_reply(
            self.core.term, self._answering, next_index, success=success, reset=reset, mute=mute, quiesced=quiesced,
            rest_ms=self._rest_ms,
        )  # fmt: skip

    def _hint(self, next_index: int) -> int:
        """Hint for a rejection (L6): skip our whole run of the conflicting term, but nothing that is committed here."""
        log_store = self._log_store
        if log_store.base_index < next_index <= log_store.last:
            next_index = log_store.first_of_term_at(next_index)
        return max(next_index, log_store.commit + 1)

    # ---- incoming

    def receive(self, sender: NodeId, incoming: IncomingMessage, now: float) -> None:
        beside: Sequence[bytes] = ()
        if isinstance(incoming, ReceivedAppend):
            message, beside = incoming
        else:
            message = incoming
        kind = message.WhichOneof("body")
        member = self._members.get(sender)
        if member is None or message.version != member.birth:
            if kind not in FROM_ANYBODY or not self._membership.may_change:
                return
            member = RaftMember(sender, message.version)
        if (message.to or FOUNDING_BIRTH) != self._log_store.birth and not self._is_born_by(message, kind):
            return
        fault = RAFT.fault(message) or term_fault(message.term, self.core.term)
        if fault is not None:
            self._refuse(member, fault)
            return
        if kind is not None:
            if kind == "append":
                self._on_append(member, message, beside or message.append.entries, now)
            else:
                self._handlers[kind](member, message, now)
            if not self._links.check(sender) and self.core.election_deadline == inf:
                self.core.election_deadline = now + self._election.random_timeout()

    def _is_born_by(self, message: RaftMessage, kind: str | None) -> bool:
        """Take the birth from an append that this replica would answer, if the metadata have not told it: they are what
        the group itself replicates. It has nothing then, and no vote."""
        if self._log_store.birth or kind != "append":
            return False
        self._log_store.be_born(message.to or FOUNDING_BIRTH)
        self._stamp.birth = self._log_store.birth
        self._membership.update()
        return True

    def _refuse(self, member: RaftMember, fault: str) -> None:
        self.refused += 1
        if self.refused.bit_count() == 1:  # a peer that does it once may do it at every heartbeat
            log.error(
                "%s: a message of %s is refused (%d so far): %s. It is %s that is wrong there, or what carried it; if "
                "it goes on: `holdfast node repair-group`",
                self.name, member, self.refused, fault, member,
            )  # fmt: skip

    def _deliver(self, member: RaftMember, message: dict[str, Any]) -> None:
        self._onMessageReceived(member, message)

    def _on_append(self, member: RaftMember, message: RaftMessage, entries: Sequence[bytes], now: float) -> None:
        core = self.core
        if message.term < core.term:
            self._tell(member, self._stamp.stale_term(core.term))
            return
        if message.term == core.term and core.state == LEADER:
            raise InvariantBroken(f"{self.name}: {member} and this node both lead term {core.term}")
        self._election.leader_heard(now)
        body = message.append
        self._verify_own_word(member, message.term, body)
        self._answering = body.sequence
        if body.has_previous:
            self._match(member, message.term, body, entries, now)
        else:
            self._bare(member, message.term, body.commit_index, proven=core.commit_index)
            if body.retained_from > self._log_store.commit + 1:
                self._snapshot_receiver.wanted(member.id, now)
            self._tell(member, self._reply(self._log_store.commit + 1, success=False, reset=False))

    def _verify_own_word(self, member: RaftMember, term: int, body: AppendEntries) -> None:
        """Check that the log has the entry which this member acknowledged to the leader of this very term. No other
        node could have taken it back in this term, so a member that lacks it has lost what it acknowledged, and its
        vote with it: an older copy of the disk, or a disk that lied."""
        index, entry_term, log_store = body.acknowledged_index, body.acknowledged_term, self._log_store
        if log_store.mute or index <= log_store.base_index:
            return
        if index <= log_store.last and entry_term in (0, log_store.term_at(index)):  # 0: the leader has trimmed it
            return
        log.error(
            "%s: lacks entry %d, which it acknowledged to %s in term %d: its disk has lost what was "
            "durable, or is an older copy. It goes on without a vote until nothing that it forgot can matter",
            self.name, index, member, term,
        )  # fmt: skip
        log_store.lose_vote()

    def _bare(self, member: RaftMember, term: int, commit_index: int, proven: int) -> None:
        """A sign of life whose commit index is believed up to `proven` (A3)."""
        self._deliver(member, {"type": "append_entries", "term": term, "commit_index": min(commit_index, proven)})

    def _match(self, member: RaftMember, term: int, body: AppendEntries, entries: Sequence[bytes], now: float) -> None:
        log_store = self._log_store
        index, index_term = body.previous_index, body.previous_term
        terms = body.entry_terms
        end = index + len(terms)
        if len(entries) != len(terms):
            return
        skip = 0
        if index < log_store.base_index:
            # Trimmed here, hence committed, hence the same at every leader.
            skip = min(log_store.base_index - index, len(terms))
        elif index > log_store.last or log_store.term_at(index) != index_term:
            self._reject(member, term, body)
            return
        while skip < len(terms) and self._has(index + skip + 1, terms[skip]):
            skip += 1
        if skip == len(terms):
            self._bare(member, term, body.commit_index, proven=max(end, self.core.commit_index))
            self._snapshot_receiver.matched()
            self._regain_vote(member, body, end)
            quiesced = body.quiesce and self._may_rest(end)
            if quiesced:
                self._links.rest(member.id, now)
            self._tell(member, self._reply(end + 1, success=True, reset=False, quiesced=quiesced))
        else:
            self._append(member, term, body, entries, skip, now)

    def _may_rest(self, end: int) -> bool:
        """True if this follower has and has applied all that the leader has, and nothing else is going on."""
        core, log_store = self.core, self._log_store
        everything = end == log_store.last == core.commit_index == core.applied_index
        return everything and not log_store.mute and not core.transfer_ordered

    def _regain_vote(self, member: RaftMember, body: AppendEntries, end: int) -> None:
        """The leader says from where on nothing matters that this member forgot, and the log matches so far."""
        log_store = self._log_store
        if not log_store.mute or not body.release_index or body.release_mark != self._mark:
            return
        if end >= body.release_index:
            if log_store.vote == 0:
                self.core.vote_for(member)
            log_store.regain_vote()
            log.info("%s: has everything up to entry %d and votes again after term %d", self.name, end, log_store.term)

    def _has(self, index: int, term: int) -> bool:
        return index <= self._log_store.last and self._log_store.term_at(index) == term

    def _append(
        self, member: RaftMember, term: int, body: AppendEntries, entries: Sequence[bytes], skip: int, now: float
    ) -> None:
        """Deliver what we lack; the library truncates after the new previous entry (A2)."""
        log_store = self._log_store
        index = body.previous_index + skip
        if index < log_store.last and index + 1 <= log_store.commit:
            raise InvariantBroken(
                f"{self.name}: {member} leads term {term} with another entry at {index + 1}, "
                f"which is committed here (commit index {log_store.commit})"
            )
        self._snapshot_receiver.matched()
        terms = body.entry_terms
        first = body.previous_index + 1
        lacking = [(data, first + i, terms[i]) for i, data in enumerate(entries) if i >= skip]
        if body.paced:
            self._copies.into.charge(sum(map(len, entries)), now, len(entries))
            self._rest_ms = self._copies.into.rest_ms(now)
        self._deliver(
            member,
            {
                "type": "append_entries",
                "term": term,
                "commit_index": body.commit_index,
                "prevLogIdx": index,
                "prevLogTerm": log_store.term_at(index),
                "entries": lacking,
            },
        )
        self._rest_ms = 0

    def _reject(self, member: RaftMember, term: int, body: AppendEntries) -> None:
        """The library answers "go back"; it needs no entries for that."""
        if body.previous_index <= self._log_store.commit:
            raise InvariantBroken(
                f"{self.name}: {member} leads term {term} and has term {body.previous_term} at "
                f"{body.previous_index}, which is committed here with term "
                f"{self._log_store.term_at(body.previous_index)}"
            )
        self._deliver(
            member,
            {
                "type": "append_entries",
                "term": term,
                "commit_index": self.core.commit_index,
                "prevLogIdx": body.previous_index,
                "prevLogTerm": body.previous_term,
                "entries": [],
            },
        )

    def _on_append_reply(self, member: RaftMember, message: RaftMessage, now: float) -> None:
        core = self.core
        if message.term != core.term or core.state != LEADER:
            return
        reply = message.append_reply
        progress = self.progress[member.id]
        if reply.rest_ms:
            self._copies.out.rest(member.id, now + reply.rest_ms / 1000)
        if self.vote_recovery.heard(member.id, reply.mute, reply.sequence, self.next_sequence):
            self._forget(member, progress)
            self._links.wake_all(now)  # its vote comes back by answers of all the others
        if progress.is_of_an_earlier_life(reply.sequence):
            return
        if not self.vote_recovery.is_mute(member.id):
            self._reads.answered(member.id, reply.sequence)
        if reply.success:
            if reply.next_index > self._log_store.last + 1:
                raise InvariantBroken(
                    f"{self.name}: {member} acknowledges entry {reply.next_index - 1} of term {core.term}, "
                    f"but this leader's last is {self._log_store.last}"
                )
            progress.accepts_success(reply.sequence, now)
            progress.acknowledged = max(progress.acknowledged, reply.next_index - 1)
        elif reply.reset:
            if not progress.accepts_reset(reply.sequence, self.next_sequence):
                return
            if reply.next_index <= progress.acknowledged:
                # On a network that reorders it may have said so before; it knows, and does not count meanwhile.
                progress.suspect(self.next_sequence)
                core.match[member] = 0
                progress.warn_once(
                    f"{self.name}: {member} lacks entry {reply.next_index}, which it had acknowledged in term "
                    f"{core.term}: it lost data it reported as durable; it does not count until it has said what it is"
                )
        sent_next = core.next_index[member]
        if reply.success and core.match.get(member, 0) < reply.next_index - 1:
            # Not left to the library: what it compares with is the index of a quorum (`commit_quorum`).
            core.match[member] = reply.next_index - 1
            sent_next = max(sent_next, reply.next_index)
        self._deliver(
            member,
            {
                "type": "next_node_idx",
                "next_node_idx": min(reply.next_index, self._log_store.last + 1),
                "success": reply.success,
                "reset": reply.reset,
            },
        )
        if not reply.reset:
            core.next_index[member] = max(sent_next, core.next_index[member])
        self._join_log(member, progress, reply, sent_next)
        self._links.answered(member.id, reply.sequence, quiesced=reply.quiesced, now=now)
        if core.next_index[member] <= self._log_store.last:
            core.append_time = 0.0

    def _forget(self, member: RaftMember, progress: Progress) -> None:
        """Forget what a member acknowledged before it lost its memory."""
        log.warning("%s: %s comes without a memory; it does not count until it has caught up", self.name, member)
        progress.begin_new_life(self.next_sequence)
        self.core.match[member] = 0
        self.core.next_index[member] = self._log_store.last + 1

    def _join_log(self, member: RaftMember, progress: Progress, reply: AppendReply, sent_next: int) -> None:
        """Choose where the follower's log may join ours: not below our base, and anew after it installed a snapshot."""
        next_index, base = self.core.next_index, self._log_store.base_index
        if reply.reset:
            if next_index[member] <= base < sent_next - 1 and not progress.tried_base:
                progress.tried_base = True
                next_index[member] = base + 1  # its hint may have leapt over the base, at which the logs can agree
        elif reply.success:
            progress.behind = progress.tried_base = False
        elif reply.next_index > base and (progress.behind or next_index[member] <= base):
            progress.behind = progress.tried_base = False
            next_index[member] = reply.next_index
            progress.restart(self.next_sequence)

    def release_for(self, node: NodeId) -> tuple[int, int] | None:
        core = self.core
        return self.vote_recovery.release(node, core.commit_index, core.noop_index or 0)

    def _on_vote_request(self, member: RaftMember, message: RaftMessage, now: float) -> None:
        core, request = self.core, message.vote_request
        if request.pre:
            if core.state == LEADER and self._members.get(member.id) == member:
                self._links.wake(member.id, now)  # it does not rest, whatever this leader believes
            self._tell_if_gone(member)
            self._election.pre_vote_request(member, message, now)
            return
        self._tell_if_gone(member)
        if message.term < core.term:
            self._tell(member, self._stamp.stale_term(core.term))
            return
        if not self._election.may_grant(request) or (self._election.is_loyal(now) and not request.transfer):
            return
        voted_before = (self._log_store.term, self._log_store.vote)
        last_term, last_index = self._election.judged_by(request)
        has_all = (last_term, last_index) >= (self._log_store.last_term, self._log_store.last)
        self._voting_for = request.round
        self._deliver(
            member,
            {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": last_index,
                "last_log_term": last_term,
            },
        )
        if (self._log_store.term, self._log_store.vote) == (message.term, member.id):
            self._election.vote_given(now)
            if voted_before == (message.term, member.id) and has_all:
                # L7: the library answers once; the answer may have been lost with a connection.
                self._tell(member, self._stamp.vote_reply(message.term, granted=True, round_number=request.round))

    def _on_vote_reply(self, member: RaftMember, message: RaftMessage, now: float) -> None:
        if message.vote_reply.pre:
            self._election.pre_vote_reply(member.id, message)
            return
        reply = message.vote_reply
        if message.term != self.core.term or self.core.state != CANDIDATE or not reply.granted:
            return
        if reply.round != self._candidacy:
            return
        if self._is_elected_by(message.term, member):
            while self.core.state == CANDIDATE:  # the library counts messages, up to a majority of all that it knows
                self._deliver(member, {"type": "response_vote", "term": message.term})
        elif (last := self._membership.last_to_ask({node for _, node in self._voters})) is not None:
            self._tell(last, self._vote_request(message.term, others_grant=True))

    def _is_elected_by(self, term: int, voter: RaftMember) -> bool:
        """True if a quorum has voted for this member, now that this one has, too (A5): voters count, not messages."""
        self._voters = {counted for counted in self._voters if counted[0] == term} | {(term, voter.id)}
        return self._membership.is_reached({node for _, node in self._voters})

    def _on_timeout_now(self, member: RaftMember, message: RaftMessage, now: float) -> None:
        self._deliver(member, {"type": "timeout_now", "term": message.term})

    def _on_resigned(self, member: RaftMember, message: RaftMessage, now: float) -> None:
        if message.term == self.core.term and self.core.leader == member:
            self._election.leader_gone(now)

    def resign(self) -> None:
        """Tell the members that this leader hears no majority, so that they need not wait for its silence."""
        for member in self._members.values():
            self._tell(member, self._stamp.resigned(self.core.term))

    def tell_gone(self, member: RaftMember) -> None:
        """Tell a replica that the committed configuration has no place for it: it need not campaign any more."""
        latest = self._membership.configuration
        assert latest is not None
        self._tell(member, self._stamp.not_member(self.core.term, latest.version))

    def _tell_if_gone(self, member: RaftMember) -> None:
        """Answer a replica that asks for votes and has no place, as far as this leader knows. If its own configuration
        is newer it does not mind."""
        is_member = self._members.get(member.id) == member
        if self.core.state == LEADER and not is_member and self._membership.is_committed:
            self.tell_gone(member)

    def _on_not_member(self, member: RaftMember, message: RaftMessage, now: float) -> None:
        if self._membership.silence(message.not_member.version):
            log.info("%s: has no place in the group any more, %s says", self.name, member)

    def _on_stale_term(self, member: RaftMember, message: RaftMessage, now: float) -> None:
        """Step down by a vote request that cannot be granted: the library adopts the term and nothing else
        (L4)."""
        if message.term <= self.core.term:
            return
        self._deliver(member, {"type": "request_vote", "term": message.term, "last_log_index": 0, "last_log_term": -1})
        self._election.reset_question()
        self._election.hurry(now)
