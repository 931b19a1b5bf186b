"""Known holes, reopened one at a time: a net that does not notice them proves nothing.

Each mutation undoes one rule of the guard, the journal, the barrier or a state machine for the duration of a schedule
or a script. `BY_SCHEDULES` are noticed by random schedules; whatever stops one counts: a violation seen from outside,
or an assertion of the code itself. `BY_SCRIPTS` are noticed by a scenario script, whose trace comes out otherwise:
those cost time and not safety, or need a sequence that random search hits too seldom.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from unittest import mock

from pysyncobj import syncobj as library

from cluster.metadata.state import State
from cluster.raft import Discarded, Group, NodeId, RaftMessage, RaftOptions, StateDamaged, Turn
from cluster.raft.core import Core, Member
from cluster.raft.election import Election
from cluster.raft.guard import Guard
from cluster.raft.handover import Handover
from cluster.raft.host import Host
from cluster.raft.journal import Journal
from cluster.raft.lazy import LazySlice
from cluster.raft.progress import Progress
from cluster.raft.proposals import Proposals
from cluster.raft.raft_pb2 import AppendEntries
from cluster.raft.readmission import Readmission
from cluster.raft.reads import ReadDone
from node.partition.batch import BatchHead
from node.partition.machine import PartitionMachine
from node.partition.producers import ALL_NEW, Known, Producer, Producers, Refusal
from node.storage import journal as store_journal
from node.storage.journal import Position, Record
from tests.simulation.disk import SimDisk
from tests.simulation.nodes import SimNode
from tests.simulation.plan import LogPlan, Plan

Apply = Callable[[], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True)
class Mutation:
    apply: Apply
    plan: Callable[[Plan], Plan]
    budget: int = 200
    """Schedules within which it must be noticed; most take fewer than ten."""


# ---------------------------------------------------------------- schedules that are rich in something


def as_drawn(plan: Plan) -> Plan:
    return plan


def crashing(plan: Plan) -> Plan:
    """Power is lost often."""
    weights = {**plan.weights, "crash": 3.0, "bounce": 3.0, "start": 6.0, "crash_all": 0.3, "flip": 0.0}
    options = replace(plan.options, durability="fsync", eager_appends=True)
    return plan.varied(weights=weights, power_loss=True, options=options, disk="memory")


def on_files(plan: Plan) -> Plan:
    """The store is one of files, and a bit turns in one of them."""
    return plan.varied(disk="journal", weights={**plan.weights, "flip": 2.0, "crash": 2.0, "start": 4.0})


def alone(plan: Plan) -> Plan:
    """The same for partitions of one replica."""
    return crashing(plan).varied(logs=(LogPlan(1, 1, 0),))


def contested(plan: Plan) -> Plan:
    """Elections: slow links, many frames twice, leaders and voters restarted at once."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"bounce": 4.0, "stutter": 6.0, "reset": 2.0, "stall": 3.0, "heal": 1.0, "start": 3.0, "pause": 1.0}
    return plan.varied(weights={**names, **weights}, wild=True, latency_s=0.05, fault_every_s=0.05, bounce_voters=0.5)


def contested_by_five(plan: Plan) -> Plan:
    """Two votes that count three times make a leader of five, not of three."""
    return contested(plan).varied(nodes=5, logs=(LogPlan(1, 5, 0),), bounce_voters=0.0)


def bare(plan: Plan) -> Plan:
    """What the bare library can take part in: no transfers, no disk of ours, no clock of its own."""
    without = dict.fromkeys(("transfer", "clock", "flip"), 0.0)
    weights = {**plan.weights, **without, "replay": 8.0, "reset": 3.0}
    nodes = min(plan.nodes, 5)
    return plan.varied(nodes=nodes, weights=weights, wild=True, fault_every_s=0.05, chaos_s=10.0, rest="dead")


def bare_fifo(plan: Plan) -> Plan:
    """The same on links that never repeat or reorder a frame."""
    return bare(plan).varied(wild=False, weights={**bare(plan).weights, "replay": 0.0, "stutter": 0.0})


def replaying(plan: Plan) -> Plan:
    """Old frames come back often."""
    return plan.varied(weights={**plan.weights, "replay": 6.0, "reset": 3.0}, wild=True)


# ---------------------------------------------------------------- the guard


@contextlib.contextmanager
def no_append_rewrite() -> Iterator[None]:
    """A2: appends reach the library as they came."""

    def deliver_as_it_came(guard: Guard, member: Member, term: int, body: AppendEntries) -> None:
        first = body.previous_index + 1
        entries = [(data, first + i, body.entry_terms[i]) for i, data in enumerate(body.entries)]
        guard._deliver(
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

    with mock.patch.object(Guard, "_match", deliver_as_it_came):
        yield


@contextlib.contextmanager
def no_vote_dedup() -> Iterator[None]:
    """A5: a vote that arrives twice counts twice."""
    with mock.patch.object(Guard, "_is_counted", return_value=False):
        yield


@contextlib.contextmanager
def no_commit_clamp() -> Iterator[None]:
    """A3: a commit index is believed without a match of logs."""
    bare_handler = Guard._bare

    def believe(guard: Guard, member: Member, term: int, commit_index: int, proven: int) -> None:
        bare_handler(guard, member, term, commit_index, proven=commit_index)

    with mock.patch.object(Guard, "_bare", believe):
        yield


@contextlib.contextmanager
def every_reset_counts() -> Iterator[None]:
    """Late rejections move a leader back. Costs time, not safety: the append rewrite absorbs what is sent again."""

    def accept(progress: Progress, sequence: int, next_sequence: int) -> bool:
        progress.restart(next_sequence)
        return True

    with mock.patch.object(Progress, "accepts_reset", accept):
        yield


# ---------------------------------------------------------------- the journal and the barrier


@contextlib.contextmanager
def no_sync() -> Iterator[None]:
    """A6: the sync returns without having synced."""
    with mock.patch.object(SimDisk, "end_sync", return_value=None):
        yield


@contextlib.contextmanager
def forgotten_vote() -> Iterator[None]:
    """A8: a restarted node remembers its term but not its vote."""
    load = Journal._load

    def load_without_vote(journal: Journal) -> None:
        load(journal)
        journal.vote = 0

    with mock.patch.object(Journal, "_load", load_without_vote):
        yield


@contextlib.contextmanager
def forgotten_term() -> Iterator[None]:
    """PSO#201: a restarted node takes its term from its last entry."""
    load = Journal._load

    def load_without_term(journal: Journal) -> None:
        load(journal)
        journal.term, journal.vote = journal.last_term, 0

    with mock.patch.object(Journal, "_load", load_without_term):
        yield


@contextlib.contextmanager
def commit_before_own_sync() -> Iterator[None]:
    """A9: the leader counts itself before its own disk has the entry. Only a group of one can commit so."""

    def entries(core: Core, fromIDx: int, count: int | None = None, maxSizeBytes: Any = None) -> Any:
        log = core._log
        end = log.last + 1 if count is None else min(log.last + 1, fromIDx + count)
        return LazySlice(log, fromIDx, end) if fromIDx >= log.base_index else []

    with mock.patch.object(Core, "_SyncObj__getEntries", entries):
        yield


@contextlib.contextmanager
def hard_state_apart() -> Iterator[None]:
    """A7: what callbacks propose inside a turn is written without the hard state that goes with it."""

    def write(host: Host) -> None:
        if host._batch is not None:
            batch, host._batch = host._batch, None
            host._disk.write(batch)

    with mock.patch.object(Host, "_write", write):
        yield


@contextlib.contextmanager
def messages_before_sync() -> Iterator[None]:
    """A6, A9: what a turn promises leaves before its sync."""

    def promise_first(node: SimNode, turn: Turn) -> None:
        begun = node.disk.begin_sync()
        node.after(node.schedule.now + 0.005, lambda: node.disk.end_sync(begun))
        node._release(turn)

    with mock.patch.object(SimNode, "_sync", promise_first):
        yield


@contextlib.contextmanager
def votes_not_synced() -> Iterator[None]:
    """A6: a vote asks for no sync."""
    with mock.patch.object(Host, "_note_vote", return_value=None):
        yield


@contextlib.contextmanager
def checkpoint_too_new() -> Iterator[None]:
    """A checkpoint claims one entry more than its state has seen."""
    put = Journal.put_checkpoint

    def claim_more(journal: Journal, index: int, state: bytes) -> None:
        put(journal, min(index + 1, journal.commit), state)

    with mock.patch.object(Journal, "put_checkpoint", claim_more):
        yield


@contextlib.contextmanager
def no_checksums() -> Iterator[None]:
    """Damage in the files of the store looks like data."""
    with mock.patch.object(store_journal, "crc32c", return_value=0):
        yield


@contextlib.contextmanager
def no_watermark() -> Iterator[None]:
    """A journal that lost its durable end is taken for one with a torn tail."""
    scan = store_journal.Journal.scan

    def scan_anything(journal: store_journal.Journal, start: Position, durable: Position) -> Iterator[Record]:
        return scan(journal, start, Position(0, 0))

    with mock.patch.object(store_journal.Journal, "scan", scan_anything):
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

    def answer(group: Group, done: ReadDone) -> None:
        done(group.applied_index)

    with mock.patch.object(Group, "read_index", answer):
        yield


# ---------------------------------------------------------------- state machines


@contextlib.contextmanager
def producers_not_in_checkpoint() -> Iterator[None]:
    """What is known of producers does not survive a restart."""
    with mock.patch.object(Producers, "rows", return_value=[]):
        yield


@contextlib.contextmanager
def restored_without_digests() -> Iterator[None]:
    """A restart forgets which events were stored last, but not their numbers."""
    begin = Producers.__init__

    def forget(producers: Producers, rows: Iterable[Producer] = ()) -> None:
        known = list(rows)
        for row in known:
            row.batches, row.digests = bytearray(), bytearray()
        begin(producers, known)

    with mock.patch.object(Producers, "__init__", forget):
        yield


@contextlib.contextmanager
def no_dedup() -> Iterator[None]:
    """What comes again is stored again."""
    judge = Producers.judge

    def all_new(producers: Producers, head: BatchHead) -> Known | Refusal:
        verdict = judge(producers, head)
        return verdict if isinstance(verdict, Refusal) else ALL_NEW

    with mock.patch.object(Producers, "judge", all_new):
        yield


@contextlib.contextmanager
def gaps_allowed() -> Iterator[None]:
    """A number behind a gap is taken."""
    judge = Producers.judge

    def take(producers: Producers, head: BatchHead) -> Known | Refusal:
        verdict = judge(producers, head)
        return ALL_NEW if isinstance(verdict, Refusal) and verdict.code == "out-of-order" else verdict

    with mock.patch.object(Producers, "judge", take):
        yield


@contextlib.contextmanager
def no_fencing() -> Iterator[None]:
    """A producer whose id was taken over may go on."""
    judge = Producers.judge

    def take(producers: Producers, head: BatchHead) -> Known | Refusal:
        verdict = judge(producers, head)
        return ALL_NEW if isinstance(verdict, Refusal) and verdict.code == "producer-stolen" else verdict

    with mock.patch.object(Producers, "judge", take):
        yield


@contextlib.contextmanager
def requests_not_remembered() -> Iterator[None]:
    """A metadata command that comes again is carried out again."""
    with mock.patch.object(State, "_remember", return_value=None):
        yield


@contextlib.contextmanager
def local_clock_in_apply() -> Iterator[None]:
    """A replica gives events the time at which *it* applies them."""
    store = PartitionMachine._store
    drifting = count()

    def by_own_clock(machine: PartitionMachine, index: int, head: BatchHead, *rest: Any) -> Any:
        return store(machine, index, replace(head, max_timestamp_ms=head.max_timestamp_ms + next(drifting)), *rest)

    with mock.patch.object(PartitionMachine, "_store", by_own_clock):
        yield


# ---------------------------------------------------------------- what scripts notice


@contextlib.contextmanager
def replies_of_any_term() -> Iterator[None]:
    """A1: an acknowledgement counts whatever term it was given in."""
    handle = Guard._on_append_reply

    def take(guard: Guard, member: Member, message: RaftMessage, now: float) -> None:
        message.term = guard.core.term
        handle(guard, member, message, now)

    with mock.patch.object(Guard, "_on_append_reply", take):
        yield


@contextlib.contextmanager
def success_moves_back() -> Iterator[None]:
    """An acknowledgement sets what is sent next, back if need be."""
    with mock.patch("cluster.raft.guard.max", lambda *values: values[-1], create=True):
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
    with mock.patch.object(Guard, "_on_stale_term", return_value=None):
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
    with mock.patch.object(Guard, "_hint", lambda guard, next_index: next_index):
        yield


@contextlib.contextmanager
def no_window() -> Iterator[None]:
    """L11: everything is sent, answered or not."""
    with mock.patch.object(Progress, "has_room", return_value=True):
        yield


@contextlib.contextmanager
def proposals_during_transfer() -> Iterator[None]:
    """L12: a transfer stops nothing."""
    with mock.patch.object(Handover, "is_active", False):
        yield


@contextlib.contextmanager
def other_versions_are_heard() -> Iterator[None]:
    """Members of another configuration count."""
    receive = Guard.receive

    def any_version(guard: Guard, sender: NodeId, message: RaftMessage, now: float) -> None:
        message.version = guard._version
        receive(guard, sender, message, now)

    with mock.patch.object(Guard, "receive", any_version):
        yield


@contextlib.contextmanager
def apply_again_from_the_start() -> Iterator[None]:
    """L1: a restart applies the whole log again."""
    load = Journal.load_checkpoint

    def from_the_base(journal: Journal) -> tuple[int, bytes | None]:
        load(journal)
        return journal.base_index, None

    with mock.patch.object(Journal, "load_checkpoint", from_the_base):
        yield


@contextlib.contextmanager
def checkpoint_not_verified() -> Iterator[None]:
    """A4: a damaged checkpoint is none."""
    load = Journal.load_checkpoint

    def forgive(journal: Journal) -> tuple[int, bytes | None]:
        try:
            return load(journal)
        except StateDamaged:
            return journal.base_index, None

    with mock.patch.object(Journal, "load_checkpoint", forgive):
        yield


@contextlib.contextmanager
def votes_while_mute() -> Iterator[None]:
    """A member that lost its memory counts at once."""
    with mock.patch.object(Readmission, "is_mute", return_value=False):
        yield


@contextlib.contextmanager
def library_random() -> Iterator[None]:
    """The bare library draws from the module `random`; give it the schedule's generator and the module back."""
    with mock.patch.object(library, "random", library.random):
        yield


BY_SCHEDULES: dict[str, Mutation] = {
    "no-append-rewrite": Mutation(no_append_rewrite, as_drawn),
    "no-vote-dedup": Mutation(no_vote_dedup, contested_by_five),
    "no-commit-clamp": Mutation(no_commit_clamp, replaying),
    "no-sync": Mutation(no_sync, crashing),
    "messages-before-sync": Mutation(messages_before_sync, crashing),
    "votes-not-synced": Mutation(votes_not_synced, contested),
    "forgotten-vote": Mutation(forgotten_vote, contested),
    "forgotten-term": Mutation(forgotten_term, contested),
    "commit-before-own-sync": Mutation(commit_before_own_sync, alone),
    "hard-state-apart": Mutation(hard_state_apart, crashing),
    "checkpoint-too-new": Mutation(checkpoint_too_new, crashing),
    "no-checksums": Mutation(no_checksums, on_files),
    "no-watermark": Mutation(no_watermark, on_files),
    "outcome-without-term": Mutation(outcome_without_term, as_drawn),
    "unknown-is-discarded": Mutation(unknown_is_discarded, as_drawn),
    "reads-not-confirmed": Mutation(reads_not_confirmed, as_drawn),
    "producers-not-in-checkpoint": Mutation(producers_not_in_checkpoint, crashing),
    "restored-without-digests": Mutation(restored_without_digests, crashing),
    "no-dedup": Mutation(no_dedup, as_drawn),
    "gaps-allowed": Mutation(gaps_allowed, as_drawn),
    "no-fencing": Mutation(no_fencing, as_drawn),
    "requests-not-remembered": Mutation(requests_not_remembered, as_drawn),
    "local-clock-in-apply": Mutation(local_clock_in_apply, as_drawn),
}


@dataclass(frozen=True)
class ScriptMutation:
    apply: Apply
    script: str


BY_SCRIPTS: dict[str, ScriptMutation] = {
    "replies-of-any-term": ScriptMutation(replies_of_any_term, "a1-acknowledgement-of-an-earlier-term"),
    "no-append-rewrite": ScriptMutation(no_append_rewrite, "a2-resent-prefix"),
    "no-commit-clamp": ScriptMutation(no_commit_clamp, "a3-sign-of-life-commits-nothing"),
    "checkpoint-not-verified": ScriptMutation(checkpoint_not_verified, "a4-damaged-checkpoint"),
    "no-vote-dedup": ScriptMutation(no_vote_dedup, "a5-one-voter-one-vote"),
    "commit-before-own-sync": ScriptMutation(commit_before_own_sync, "a9-commit-waits-for-the-own-disk"),
    "outcome-without-term": ScriptMutation(outcome_without_term, "a13-leading-twice"),
    "reads-not-confirmed": ScriptMutation(reads_not_confirmed, "a16-deposed-leader"),
    "apply-again-from-the-start": ScriptMutation(apply_again_from_the_start, "l1-restart-behind-the-checkpoint"),
    "no-loyalty": ScriptMutation(no_loyalty, "l3-loyal-followers"),
    "no-pre-vote": ScriptMutation(no_pre_vote, "l3-isolated-node-comes-back"),
    "no-answer-to-old-terms": ScriptMutation(no_answer_to_old_terms, "l4-higher-term-is-not-locked-out"),
    "stalls-not-noticed": ScriptMutation(stalls_not_noticed, "l5-stalled-loop"),
    "no-hint": ScriptMutation(no_hint, "l6-foreign-tail"),
    "no-window": ScriptMutation(no_window, "l11-window"),
    "proposals-during-transfer": ScriptMutation(proposals_during_transfer, "l12-transfer-under-load"),
    "other-versions-are-heard": ScriptMutation(other_versions_are_heard, "fig-10-two-majorities"),
    "unknown-is-discarded": ScriptMutation(unknown_is_discarded, "l16-outcomes"),
    "every-reset-counts": ScriptMutation(every_reset_counts, "late-rejection"),
    "success-moves-back": ScriptMutation(success_moves_back, "success-repeats-nothing"),
    "votes-while-mute": ScriptMutation(votes_while_mute, "wiped-member"),
}
