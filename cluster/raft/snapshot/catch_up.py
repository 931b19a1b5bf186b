"""Catching up by a snapshot, both sides for one group: handing one out (`snapshot.sender`), and fetching one
(`snapshot.receiver`), up to the moment at which it takes the place of the log.

The rule: a sender gives only what it has applied, and only while it leads; a receiver changes
nothing but the staging until everything is there; and what a log holds beyond the snapshot, if the two agree, stays: it
may have been counted on. A leader that cannot commit anything yet gives a snapshot too: the
members that lack what is trimmed may be the very ones that it needs for its majority.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

from cluster.raft.interfaces import Disk, DiskBatch, GroupId, NodeId, StateMachine
from cluster.raft.log.log_store import LogStore
from cluster.raft.options import RaftOptions
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.private_names import LEADER
from cluster.raft.raft_pb2 import FetchReply, FetchRequest
from cluster.raft.replication.message_validation import RAFT
from cluster.raft.snapshot.bandwidth import FetchBudget
from cluster.raft.snapshot.receiver import SnapshotReceiver
from cluster.raft.snapshot.sender import SnapshotSender
from cluster.raft.snapshot.staging import Staging

log = logging.getLogger(__name__)


class CatchUp:
    def __init__(
        self,
        group: GroupId,
        name: str,
        log_store: LogStore,
        machine: StateMachine,
        options: RaftOptions,
        disk: Disk,
        budget: FetchBudget,
        batch: Callable[[], DiskBatch],
        draws: random.Random,
    ) -> None:
        self._name = name
        self._log_store = log_store
        self._machine = machine
        self._batch = batch
        self._staging = Staging(group, disk, log_store, batch)
        self.snapshot_sender = SnapshotSender(disk, log_store, machine, options, draws)
        self.snapshot_receiver = SnapshotReceiver(
            group, name, log_store, machine, self._staging, options, budget, batch,
            first_number=draws.getrandbits(48),
        )  # fmt: skip

    def progress(self) -> dict[str, Any] | None:
        return self.snapshot_receiver.progress()

    def serve(
        self, node: NodeId, birth: int, request: FetchRequest, applied_index: int, now: float, *, leads: bool
    ) -> FetchReply:
        """Serve a replica. `birth`: the one that this leader knows of it."""
        fault = RAFT.fault(request)
        if fault is not None:
            return SnapshotSender.refuse(request, fault)
        if not leads:
            return SnapshotSender.refuse(request, "this node does not lead the group")
        if request.version != birth:
            return SnapshotSender.refuse(request, f"the replica there is of birth {birth}, not {request.version}")
        return self.snapshot_sender.serve(node, request, applied_index, now)

    def install(self, core: Core) -> int | None:
        """Put the fetched snapshot in the place of the log and the state, in the batch of this turn. Returns its last
        index; None: the log has come as far by itself."""
        snapshot_receiver, staging, log_store = self.snapshot_receiver, self._staging, self._log_store
        index, state = snapshot_receiver.manifest.index, bytes(snapshot_receiver.state)
        if core.state == LEADER or index <= log_store.commit:
            snapshot_receiver.stop()
            return None
        if index <= log_store.last and log_store.term_at(index) == staging.term_at(index):
            # The log agrees up to here, and what follows may have been acknowledged: it must not be forgotten.
            core.commit_to(index)
            snapshot_receiver.stop()
            return None
        if staging.last_term > core.term:
            # The path of snapshots was open while that of messages was not: the term was never heard of here.
            core.follow_term(staging.last_term)
        log_store.replace(
            staging.base, staging.last_index, staging.starts, index, snapshot_receiver.manifest_configuration()
        )
        self._machine.restore(index, state)
        log_store.put_checkpoint(index, self._machine.checkpoint(log_store.version))  # the sender may write older ones
        forget_old_rows = getattr(self._machine, "rows_copied", None)
        if forget_old_rows is not None:
            forget_old_rows(self._batch())
        core.jump_to(index)
        snapshot_receiver.installed()
        log.info(
            "%s: installed a snapshot up to entry %d, with entries from %d on", self._name, index,
            log_store.base_index + 1,
        )  # fmt: skip
        return index
