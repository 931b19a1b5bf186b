"""Known holes, reopened one at a time: a simulation that does not notice them proves nothing.

Each mutation undoes one rule of the guard, the journal or the barrier for the duration of a schedule.
Whatever stops the schedule counts as noticed: a violation seen from outside, or an assertion of the code
itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

from pysyncobj import syncobj as library

from cluster.raft.core import Core, Member
from cluster.raft.guard import Guard
from cluster.raft.host import Host
from cluster.raft.journal import Journal
from cluster.raft.lazy import LazySlice
from cluster.raft.progress import Progress
from cluster.raft.raft_pb2 import AppendEntries
from tests.simulation.disk import SimDisk
from tests.simulation.schedule import Plan


def crashing(plan: Plan) -> Plan:
    """Schedules that lose power often."""
    weights = {**plan.weights, "crash": 3.0, "bounce": 3.0, "start": 6.0, "crash_all": 0.3}
    options = replace(plan.options, durability="fsync", eager_appends=True)
    return plan.varied(weights=weights, power_loss=True, options=options)


def alone(plan: Plan) -> Plan:
    """A cluster of one that loses power often."""
    return crashing(plan).varied(nodes=1, preferred=None)


def contested(plan: Plan) -> Plan:
    """Schedules full of elections: slow links, many frames twice, leaders and voters restarted at once."""
    weights = {"bounce": 4.0, "stutter": 6.0, "reset": 2.0, "stall": 3.0, "heal": 1.0, "start": 3.0, "pause": 1.0}
    return plan.varied(weights=weights, wild=True, latency_s=0.05, fault_every_s=0.05, bounce_voters=0.5)


def contested_by_five(plan: Plan) -> Plan:
    """Two votes that count three times make a leader of five, not of three."""
    return contested(plan).varied(nodes=5, bounce_voters=0.0)


def bare(plan: Plan) -> Plan:
    """What the bare library can take part in: one group, no trims, no transfers."""
    weights = {**plan.weights, "trim": 0.0, "transfer": 0.0, "replay": 8.0, "reset": 3.0}
    return plan.varied(groups=1, weights=weights, wild=True, fault_every_s=0.05)


def bare_fifo(plan: Plan) -> Plan:
    """The same on links that never repeat or reorder a frame."""
    return bare(plan).varied(wild=False, weights={**bare(plan).weights, "replay": 0.0, "stutter": 0.0})


def replaying(plan: Plan) -> Plan:
    """Schedules in which old frames come back often."""
    return plan.varied(weights={**plan.weights, "replay": 6.0, "reset": 3.0}, wild=True)


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
def no_sync() -> Iterator[None]:
    """A6: the sync returns without having synced."""
    with (
        mock.patch.object(SimDisk, "sync", return_value=None),
        mock.patch.object(SimDisk, "synced_up_to", return_value=None),
    ):
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
def no_commit_clamp() -> Iterator[None]:
    """A3: a commit index is believed without a match of logs."""
    bare = Guard._bare

    def believe(guard: Guard, member: Member, term: int, commit_index: int, proven: int) -> None:
        bare(guard, member, term, commit_index, proven=commit_index)

    with mock.patch.object(Guard, "_bare", believe):
        yield


@contextlib.contextmanager
def every_reset_counts() -> Iterator[None]:
    """Late rejections move a leader back. Costs time, not safety: the append rewrite absorbs what is sent
    again."""

    def accept(progress: Progress, sequence: int, next_sequence: int) -> bool:
        progress.restart(next_sequence)
        return True

    with mock.patch.object(Progress, "accepts_reset", accept):
        yield


@contextlib.contextmanager
def library_random() -> Iterator[None]:
    """The bare library draws from the module `random`; give it the schedule's generator and the module
    back."""
    with mock.patch.object(library, "random", library.random):
        yield
