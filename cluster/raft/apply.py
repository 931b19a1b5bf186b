"""Giving committed entries to the state machine, in order, and their results to the proposers.

The problem: an entry that cannot be applied must neither stop all replicas for ever nor be half done on one of them
(A10, L2 in docs/internals/pysyncobj.md). The rules: what a machine raises is a defect that all replicas have in common,
and is recorded as the entry's result; what the surroundings of *this* node lack (memory, disk) stops this node, before
anything is acknowledged. A tick applies a bounded slice: a node that catches up must still answer heartbeats.

Rejected: applying in the tick that commits, whatever the amount. An election would come of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cluster.raft.interfaces import DiskBatch, StateMachine
from cluster.raft.log.compaction import Compaction
from cluster.raft.log.log_store import LogStore
from cluster.raft.options import RaftOptions
from cluster.raft.proposal_outcomes import ApplyFailed, NodeUnfit, UnknownEntry
from cluster.raft.proposals import Proposals
from cluster.raft.pysyncobj.core import Core

log = logging.getLogger(__name__)


class Applier:
    def __init__(
        self,
        name: str,
        log_store: LogStore,
        core: Core,
        machine: StateMachine,
        proposals: Proposals,
        compaction: Compaction,
        options: RaftOptions,
        batch: Callable[[], DiskBatch],
    ) -> None:
        self._name = name
        self._log_store = log_store
        self._core = core
        self._machine = machine
        self._proposals = proposals
        self._compaction = compaction
        self._options = options
        self._batch = batch

    def run(self) -> bool:
        """Apply one slice, and return whether there is more."""
        core, log_store, batch = self._core, self._log_store, self._batch()
        commit, index = core.commit_index, core.applied_index
        bytes_left = self._options.apply_bytes_per_tick
        end = min(commit, index + self._options.apply_entries_per_tick)
        while index < end and bytes_left > 0:
            index += 1
            term, data = log_store.term_at(index), log_store.data_at(index)
            result = self._apply(index, term, data, batch) if data[0] == 0 else None
            core.applied_index = index
            bytes_left -= len(data)
            self._compaction.applied(len(data))
            self._proposals.applied(index, term, result)
        return index < commit

    def _apply(self, index: int, term: int, data: bytes, batch: DiskBatch) -> object:
        try:
            return self._machine.apply(index, term, data, batch)
        except UnknownEntry:
            raise  # others carry it out: this replica must not go on without it
        except (MemoryError, OSError) as error:
            raise NodeUnfit(f"{self._name}: entry {index} cannot be applied on this node: {error}") from error
        except Exception as error:  # L2: a defect common to all replicas; stopping them all forever helps nobody
            log.exception("%s: apply of entry %d (term %d) failed, recorded as a rejection", self._name, index, term)
            return ApplyFailed(f"{type(error).__name__}: {error}")
