"""Checkpoints and trims of one group: how much a restart applies again, and how long the log gets.

The problem: the log would grow for ever, and what goes from it goes for good. The rules: both happen outside of apply,
and what they change is in one batch, so that what a machine forgot is never missing from an older state; nothing is
trimmed that is not applied here, that a member takes from the log (one that was heard of within `trim_wait_s`), or that
a snapshot under way needs. A member that is further behind gets a snapshot.

On a disk that is nearly full only voters are waited for, and no snapshot: a copy may take hours, in which the log would
grow. A copy that has lost what comes next begins anew, where the log begins then. It ends all the same if it is faster
than clients write, since trims are no faster than that.

Either the machine or the group says what goes. A machine whose log is the data (a partition) asks, by `ask`, as its
replicated retention decides. A group whose entries are worth nothing once they are applied (the metadata) is opened
with `keep_entries`: it keeps so many of the newest, for members that lack a few, and lets the older ones go so many at
a time. Each member does that by itself: which entries a log begins with is no part of the state.

Rejected: trims of the metadata as commands. They would agree on something that nobody has to agree on.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.raft.interfaces import NodeId, StateMachine
from cluster.raft.log.log_store import LogStore
from cluster.raft.membership.membership import Membership
from cluster.raft.options import RaftOptions
from cluster.raft.pysyncobj.core import Core
from cluster.raft.pysyncobj.private_names import LEADER
from cluster.raft.replication.step import Stepper
from cluster.raft.snapshot.sender import SnapshotSender
from cluster.versions import UNSET


class Compaction:
    def __init__(
        self,
        log_store: LogStore,
        core: Core,
        machine: StateMachine,
        step: Stepper,
        snapshot_sender: SnapshotSender,
        membership: Membership,
        options: RaftOptions,
        keep_entries: int | None,
        is_disk_full: Callable[[], bool],
    ) -> None:
        assert keep_entries is None or keep_entries > 0, keep_entries
        self._log_store = log_store
        self._core = core
        self._machine = machine
        self._step = step
        self._snapshot_sender = snapshot_sender
        self._membership = membership
        self._options = options
        self._keep_entries = keep_entries
        self._is_disk_full = is_disk_full
        self._trim_to = 0
        self._asked = False
        self._checkpoint_index = 0
        self._entries = 0  # applied since the checkpoint
        self._bytes = 0
        self.checkpoint_version = UNSET
        """The active version when this process wrote the checkpoint last; UNSET: it has not."""

    def restore(self) -> None:
        """L1: the library would apply the whole log again; continue after the checkpoint instead."""
        index, state = self._log_store.load_checkpoint()
        self._machine.restore(index, state)
        self._core.applied_index = index
        self._checkpoint_index = index

    def installed(self, index: int) -> None:
        """Note that the batch holds a checkpoint of this index: an own one, or that of a snapshot."""
        self.checkpoint_version = self._log_store.version
        self._checkpoint_index = index
        self._entries = self._bytes = 0

    def applied(self, size: int) -> None:
        self._entries += 1
        self._bytes += size

    @property
    def waits(self) -> bool:
        """True while a requested trim waits for members."""
        return self._trim_to > self._log_store.base_index

    def rewrite(self) -> None:
        """Write a checkpoint, and the hard state, with the next tick."""
        self._asked = True
        self._log_store.rewrite()

    def ask(self, index: int) -> None:
        self._trim_to = max(self._trim_to, index)
        self._asked = True

    def safe_trim_index(self, now: float) -> int:
        """Index up to which every member that counts on the log, as far as this node knows, can do without the log."""
        core, snapshot_sender = self._core, self._snapshot_sender
        if core.state != LEADER:
            return core.applied_index
        match = {node: core.match.get(member, 0) for node, member in self._membership.peers.items()}
        for node, index in match.items():
            snapshot_sender.joined(node, index)
        is_full, pinned = self._is_disk_full(), snapshot_sender.pinned_index(now)
        held = [index for node, index in match.items() if self._waits_for(node, now, is_full=is_full)]
        return min([core.applied_index, *held] if pinned is None or is_full else [core.applied_index, pinned, *held])

    def _waits_for(self, node: NodeId, now: float, *, is_full: bool) -> bool:
        """True if a member was heard lately and takes from the log what it lacks. Others come back by a snapshot."""
        member = self._membership.peers[node]
        if is_full and member not in self._membership.voting:
            return False
        silent_s = now - self._core.last_response.heard_at(member)
        return silent_s < self._options.trim_wait_s and not self._step.progress[node].behind

    def run(self, now: float) -> None:
        """Checkpoint and trim what is due; runs in a tick, after apply."""
        options, log_store = self._options, self._log_store
        trim_to = max(self._asked_for(now), self._outlived(now))
        trims = trim_to > log_store.base_index
        due = self._entries >= options.checkpoint_entries or self._bytes >= options.checkpoint_bytes
        if not (trims or due or self._asked):
            return
        self._checkpoint()
        if trims:
            log_store.trim(trim_to, self._core.applied_index)
            self._trim_to = 0

    def _asked_for(self, now: float) -> int:
        return min(self._trim_to, self.safe_trim_index(now)) if self._trim_to > self._log_store.base_index else 0

    def _outlived(self, now: float) -> int:
        """Index up to which old entries go; 0 until as many can go as are kept: fewer are not worth a checkpoint."""
        keep, base, applied = self._keep_entries, self._log_store.base_index, self._core.applied_index
        if keep is None or applied - base < 2 * keep:
            return 0
        index = min(applied - keep, self.safe_trim_index(now))
        return index if index - base >= keep else 0

    def _checkpoint(self) -> None:
        applied = self._core.applied_index
        self._log_store.put_checkpoint(applied, self._machine.checkpoint(self._log_store.version))
        self.installed(applied)
        self._asked = False

    def close(self) -> None:
        """Checkpoint, so that the next start has nothing to apply again."""
        if self._core.applied_index > self._checkpoint_index:
            self._checkpoint()
