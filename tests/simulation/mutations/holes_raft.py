"""Mutations of `step`, of elections, proposals and reads. What they are for: catalogue.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast
from unittest import mock

from cluster.raft import (
    Discarded,
    NodeId,
    RaftGroup,
    RaftMessage,
    RaftOptions,
    StateDamaged,
)
from cluster.raft.elections import election
from cluster.raft.elections.election import Election
from cluster.raft.elections.leadership_transfer import LeadershipTransfer
from cluster.raft.elections.vote_recovery import VoteRecovery
from cluster.raft.log.log_store import LogStore
from cluster.raft.proposals import Proposals
from cluster.raft.pysyncobj.commit_quorum import MatchIndex
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.member import RaftMember
from cluster.raft.raft_pb2 import AppendEntries, VoteRequest
from cluster.raft.read_index import ReadDone, ReadIndex
from cluster.raft.replication import step
from cluster.raft.replication.message_validation import ANY, RAFT_RANGES, RangeTable
from cluster.raft.replication.progress import Progress
from cluster.raft.replication.step import Stepper
from cluster.raft.snapshot.sender import SnapshotSender
from cluster.raft.snapshot.staging import Staging

# ---------------------------------------------------------------- `step`


@contextlib.contextmanager
def no_append_rewrite() -> Iterator[None]:
    """A2: appends reach the library as they came."""

    def deliver_as_it_came(step: Stepper, member: RaftMember, term: int, body: AppendEntries) -> None:
        first = body.previous_index + 1
        entries = [(data, first + i, body.entry_terms[i]) for i, data in enumerate(body.entries)]
        step._deliver(
            member,
            {
                "type": "append_entries",
                "term": term,
                "commit_index": body.commit_index,
                "prevLogIdx": body.previous_index,
                "prevLogTerm": body.previous_term,
                "entries": entries,
            },
        )

    with mock.patch.object(Stepper, "_match", deliver_as_it_came):
        yield


@contextlib.contextmanager
def terms_not_bounded() -> Iterator[None]:
    """Whatever 64 bits hold is taken for a term."""
    anything = RangeTable(dict.fromkeys(RAFT_RANGES, ANY))
    with mock.patch.object(step, "RAFT", anything), mock.patch.object(step, "term_fault", return_value=None):
        yield


@contextlib.contextmanager
def term_lead_not_bounded() -> Iterator[None]:
    """Any term within its range is taken, also one that no election can have led to."""
    with mock.patch.object(step, "term_fault", return_value=None):
        yield


@contextlib.contextmanager
def no_vote_dedup() -> Iterator[None]:
    """A5: a vote that arrives twice counts twice."""

    def counts_messages(step: Stepper, term: int, voter: RaftMember) -> bool:
        step._voters = {counted for counted in step._voters if counted[0] == term}
        step._voters.add((term, -len(step._voters)))
        return 2 * (len(step._voters) + 1) > len(step._membership.quorum.nodes)

    with mock.patch.object(Stepper, "_is_elected_by", counts_messages):
        yield


@contextlib.contextmanager
def no_commit_clamp() -> Iterator[None]:
    """A3: a commit index is believed without a match of logs."""
    bare_handler = Stepper._bare

    def believe(step: Stepper, member: RaftMember, term: int, commit_index: int, proven: int) -> None:
        bare_handler(step, member, term, commit_index, proven=commit_index)

    with mock.patch.object(Stepper, "_bare", believe):
        yield


@contextlib.contextmanager
def every_reset_counts() -> Iterator[None]:
    """Late rejections move a leader back. Costs time, not safety: the append rewrite absorbs what is sent again."""

    def accept(progress: Progress, sequence: int, next_sequence: int) -> bool:
        progress.restart(next_sequence)
        return True

    with mock.patch.object(Progress, "accepts_reset", accept):
        yield


# ---------------------------------------------------------------- proposals and reads


@contextlib.contextmanager
def outcome_without_term() -> Iterator[None]:
    """A13: whatever is applied at a proposal's index is taken for it."""
    applied = Proposals.applied

    def any_term(proposals: Proposals, index: int, term: int, result: object) -> None:
        waiting = [replace(one, term=term) for one in proposals._waiting.get(index, ())]
        if waiting:
            proposals._waiting[index] = waiting
        applied(proposals, index, term, result)

    with mock.patch.object(Proposals, "applied", any_term):
        yield


@contextlib.contextmanager
def unknown_is_discarded() -> Iterator[None]:
    """L16: who waited too long is told that it certainly did not happen."""

    def give_up(proposals: Proposals, terms_before: int) -> None:
        proposals.give_up_at = float("inf")
        proposals._end_older(terms_before, Discarded)

    with mock.patch.object(Proposals, "give_up", give_up):
        yield


@contextlib.contextmanager
def reads_not_confirmed() -> Iterator[None]:
    """A16: who believes to lead answers."""

    def answer(group: RaftGroup, done: ReadDone) -> None:
        done(group.applied_index)

    with mock.patch.object(RaftGroup, "read_index", answer):
        yield


# ---------------------------------------------------------------- what scripts notice


@contextlib.contextmanager
def replies_of_any_term() -> Iterator[None]:
    """A1: an acknowledgement counts whatever term it was given in."""
    handle = Stepper._on_append_reply

    def take(step: Stepper, member: RaftMember, message: RaftMessage, now: float) -> None:
        message.term = step.core.term
        handle(step, member, message, now)

    with mock.patch.object(Stepper, "_on_append_reply", take):
        yield


@contextlib.contextmanager
def success_moves_back() -> Iterator[None]:
    """An acknowledgement sets what is sent next, back if need be."""
    with mock.patch("cluster.raft.replication.step.max", lambda *values: values[-1], create=True):
        yield


@contextlib.contextmanager
def no_loyalty() -> Iterator[None]:
    """L3: who hears a leader votes all the same."""
    with mock.patch.object(Election, "is_loyal", return_value=False):
        yield


@contextlib.contextmanager
def no_pre_vote() -> Iterator[None]:
    """L3: who doubts campaigns at once."""

    def campaign(election: Election, now: float) -> None:
        election.core.election_deadline = 0.0

    with mock.patch.object(Election, "_ask", campaign):
        yield


@contextlib.contextmanager
def no_answer_to_old_terms() -> Iterator[None]:
    """L4: messages of a past term are dropped in silence."""
    with mock.patch.object(Stepper, "_on_stale_term", return_value=None):
        yield


@contextlib.contextmanager
def stalls_not_noticed() -> Iterator[None]:
    """L5: after a standstill of its own a node doubts the leader before it looks at its input."""
    begin = RaftOptions.__init__

    def never_stalled(options: RaftOptions, *values: Any, **named: Any) -> None:
        begin(options, *values, **{**named, "stall_s": 1e9})

    with mock.patch.object(RaftOptions, "__init__", never_stalled):
        yield


@contextlib.contextmanager
def no_hint() -> Iterator[None]:
    """L6: a rejection goes back one entry."""
    with mock.patch.object(Stepper, "_hint", lambda step, next_index: next_index):
        yield


@contextlib.contextmanager
def no_window() -> Iterator[None]:
    """L11: everything is sent, answered or not."""
    with mock.patch.object(Progress, "has_room", return_value=True):
        yield


@contextlib.contextmanager
def proposals_during_transfer() -> Iterator[None]:
    """L12: a transfer stops nothing."""
    with mock.patch.object(LeadershipTransfer, "is_active", False):
        yield


@contextlib.contextmanager
def other_versions_are_heard() -> Iterator[None]:
    """Answers count whatever birth they are from."""
    receive = Stepper.receive

    def any_version(step: Stepper, sender: NodeId, message: RaftMessage, now: float) -> None:
        member = step._members.get(sender)
        message.version = message.version if member is None else member.birth
        receive(step, sender, message, now)

    with mock.patch.object(Stepper, "receive", any_version):
        yield


@contextlib.contextmanager
def apply_again_from_the_start() -> Iterator[None]:
    """L1: a restart applies the whole log again."""
    load = LogStore.load_checkpoint

    def from_the_base(journal: LogStore) -> tuple[int, bytes | None]:
        load(journal)
        return journal.base_index, None

    with mock.patch.object(LogStore, "load_checkpoint", from_the_base):
        yield


@contextlib.contextmanager
def checkpoint_not_verified() -> Iterator[None]:
    """A4: a damaged checkpoint is none."""
    load = LogStore.load_checkpoint

    def forgive(journal: LogStore) -> tuple[int, bytes | None]:
        try:
            return load(journal)
        except StateDamaged:
            return journal.base_index, None

    with mock.patch.object(LogStore, "load_checkpoint", forgive):
        yield


@contextlib.contextmanager
def votes_while_mute() -> Iterator[None]:
    """A member that lost its memory counts at once."""
    with mock.patch.object(VoteRecovery, "is_mute", return_value=False):
        yield


@contextlib.contextmanager
def mute_votes_in_any_group() -> Iterator[None]:
    """A member that lost its memory votes for others also where there are more than two."""
    with mock.patch.object(election, "may_grant", return_value=True):
        yield


@contextlib.contextmanager
def mute_of_two_grants_nothing() -> Iterator[None]:
    """A member that lost its memory votes for nobody, also where there is only one other."""
    with mock.patch.object(election, "may_grant", lambda *, mute, others_grant: not mute):
        yield


@contextlib.contextmanager
def mute_of_two_compares_logs() -> Iterator[None]:
    """A member that lost its memory refuses a candidate that has less than it has been sent since."""

    def judged_by(self: Election, request: VoteRequest) -> tuple[int, int]:
        return request.last_term, request.last_index

    with mock.patch.object(Election, "judged_by", judged_by):
        yield


@contextlib.contextmanager
def of_two_released_too_soon() -> Iterator[None]:
    """Of two, the vote comes back with what the leader *knows* to be committed, before its own term has begun."""
    release = VoteRecovery.release

    def too_soon(vote_recovery: VoteRecovery, node: NodeId, commit_index: int, own_from: int) -> tuple[int, int] | None:
        return release(vote_recovery, node, commit_index, min(commit_index, own_from))

    with mock.patch.object(VoteRecovery, "release", too_soon):
        yield


# ---------------------------------------------------------------- members that lost their memory


@contextlib.contextmanager
def own_word_not_verified() -> Iterator[None]:
    """A member that lacks what it acknowledged goes on voting."""
    with mock.patch.object(Stepper, "_verify_own_word", return_value=None):
        yield


@contextlib.contextmanager
def mute_not_persisted() -> Iterator[None]:
    """That a member has no vote is forgotten with its process."""
    flush = LogStore.flush

    def forget(log_store: LogStore) -> None:
        mute, log_store.mute = log_store.mute, False
        try:
            flush(log_store)
        finally:
            log_store.mute = mute

    with mock.patch.object(LogStore, "flush", forget):
        yield


@contextlib.contextmanager
def regained_vote_in_the_same_term() -> Iterator[None]:
    """Who gets its vote back may use it in the very term."""

    def vote_for_nobody(core: Core, member: RaftMember) -> None:
        """Not a mock: the library looks at each method of its subclass."""

    with mock.patch.object(Core, "vote_for", vote_for_nobody):
        yield


@contextlib.contextmanager
def match_of_the_wiped_kept() -> Iterator[None]:
    """What a member acknowledged before it lost its disk goes on counting."""

    def keep(stepper: Stepper, member: RaftMember, progress: Progress) -> None:
        progress.begin_new_life(stepper.next_sequence)
        stepper.core.next_index[member] = stepper._log_store.last + 1

    with mock.patch.object(Stepper, "_forget", keep):
        yield


# ---------------------------------------------------------------- confirmed reads


@contextlib.contextmanager
def reads_by_answers_of_any_age() -> Iterator[None]:
    """A16: an answer to an append that was sent before the question confirms it, too."""

    def answered(reads: ReadIndex, node: NodeId, sequence: int) -> None:
        for one in reads._rounds:
            one.confirmed_by.add(node)
        reads._confirm()

    with mock.patch.object(ReadIndex, "answered", answered):
        yield


@contextlib.contextmanager
def reads_by_one_member() -> Iterator[None]:
    """A16: with the leader itself, one member fewer than a majority confirms."""
    confirm = ReadIndex._confirm

    def needs_one_fewer(reads: ReadIndex) -> None:
        for one in reads._rounds:
            for node in reads._membership.peers:
                if one.quorum.is_reached(one.confirmed_by | {node}):
                    one.confirmed_by.add(node)
        confirm(reads)

    with mock.patch.object(ReadIndex, "_confirm", needs_one_fewer):
        yield


@contextlib.contextmanager
def reads_before_applied() -> Iterator[None]:
    """A confirmed read is answered from what is applied, as far as that may be."""
    applied = ReadIndex.applied

    def answer_all(reads: ReadIndex, index: int) -> None:
        while reads._confirmed:
            reads._answer(reads._confirmed.popleft()[1], index)
        applied(reads, index)

    with mock.patch.object(ReadIndex, "applied", answer_all):
        yield


@contextlib.contextmanager
def reads_from_another_term() -> Iterator[None]:
    """A16: what waited under an earlier leadership is confirmed under the next."""
    with mock.patch.object(ReadIndex, "lost", return_value=None):
        yield


@contextlib.contextmanager
def early_answer_to_repeats() -> Iterator[None]:
    """A6: that an append was here already is said before what came with it is synced."""
    match = Stepper._match

    def answer_early(step: Stepper, member: RaftMember, term: int, body: AppendEntries) -> None:
        later = step._emit
        with mock.patch.object(step, "_emit", cast(Any, later).__self__._emit_early):
            match(step, member, term, body)

    with mock.patch.object(Stepper, "_match", answer_early):
        yield


# ---------------------------------------------------------------- commits and snapshots


@contextlib.contextmanager
def earlier_terms_commit_by_counting() -> Iterator[None]:
    """Figure 8 of the Raft paper: an entry of an earlier term counts as one of the own."""
    entries = Core._SyncObj__getEntries  # type: ignore[attr-defined]

    def of_the_own_term(core: Core, first: int | None, count: int | None = None, max_bytes: int | None = None) -> Any:
        found = entries(core, first, count, max_bytes)
        return [(data, index, core.term) for data, index, _ in found] if count == 1 else found

    def from_the_start(match: MatchIndex, _: int) -> None:
        match._own_term_from = 0

    with (
        mock.patch.object(Core, "_SyncObj__getEntries", of_the_own_term),
        mock.patch.object(MatchIndex, "own_term_begins", from_the_start),
    ):
        yield


@contextlib.contextmanager
def snapshot_index_too_high() -> Iterator[None]:
    """A snapshot says that it holds one entry more than its state has applied."""
    begin = SnapshotSender._begin

    def one_more(sender: SnapshotSender, node: NodeId, have_from: int, applied_index: int, now: float) -> Any:
        return begin(sender, node, have_from, min(applied_index + 1, sender._log_store.last), now)

    with mock.patch.object(SnapshotSender, "_begin", one_more):
        yield


@contextlib.contextmanager
def snapshot_drops_the_tail() -> Iterator[None]:
    """A snapshot takes the place of a log that agrees with it, and what followed there is forgotten."""
    with mock.patch.object(Staging, "term_at", return_value=-1):
        yield
