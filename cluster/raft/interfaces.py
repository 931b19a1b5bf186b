"""Interfaces that `cluster.raft` needs from its surroundings: disk, clock and state machine.

The problem: safety rests on the order of writes, syncs and sends, so the code that decides must not do any of
them itself. The rule: everything below is given from outside, has exactly two families of implementations
(production and simulation), and says in its docstring what a crash may forget.

Rejected: `async` methods. A turn of the host is one synchronous calculation; only the sync, which the caller
runs, waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

NodeId = int
"""A node of the cluster, >= 1, never reused for another data directory."""

GroupId = int
"""A Raft group, u64, never reused. 0 is the metadata group."""

METADATA_GROUP: GroupId = 0

ENTRY_REGULAR = b"\x00"
"""First byte of every proposal (pysyncobj's command kind). It is part of the entry; state machines decode
from offset 1."""


ENTRY_CONFIGURATION = b"\x02"
"""First byte of an entry that changes the members of its group. State machines are not given it."""


class DiskBatch(Protocol):
    """Writes of one turn, or of one group in it: atomic, and in the order of the calls."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete every key in [start, end)."""

    def extend(self, other: DiskBatch) -> None:
        """Put the writes of another batch of the same disk behind these."""


class Disk(Protocol):
    """One ordered key-value store for all groups of a node."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start <= key < end, lazily; from the end when `reverse`."""

    def batch(self) -> DiskBatch: ...

    def write(self, batch: DiskBatch) -> None:
        """Write the batch atomically, visible at once."""

    @property
    def must_drain(self) -> bool:
        """True if a write may not survive the death of the process before `drain`."""

    def drain(self) -> None:
        """Blocks. Everything written before the call survives the death of the process, if not the loss of power."""

    def sync(self) -> None:
        """Blocks. Everything written before the call is durable afterwards."""


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds, never going back; the zero point means nothing but is in the past (> 0)."""


class StateMachine(Protocol):
    """Replicated state of a group. All replicas see the same calls of `apply` in the same order."""

    def apply(self, index: int, term: int, data: bytes, batch: DiskBatch) -> object:
        """Apply one committed entry and return its result.

        Called in index order, once per index and process life; after a restart the entries after the last
        checkpoint come again, so what is put into `batch` is idempotent. A command that cannot be carried out
        is a result, not an exception. `data` begins with ENTRY_REGULAR.
        """

    def checkpoint(self, version: int) -> bytes:
        """The derived state at the last applied index, in the layout of this version."""

    def restore(self, index: int, data: bytes | None) -> None:
        """Start from a checkpoint taken at `index`; `data` is None for the empty state of a new group.

        Also called in a running group, between two applies, when a snapshot from the leader takes the place of a log
        that was left behind. What this raises puts the group into quarantine.
        """


class MachineWithRows(StateMachine, Protocol):
    """State machine that puts keys of its own into the batches of `apply`."""

    def rows(self) -> list[tuple[bytes, bytes]]:
        """Ranges [start, end) of those keys. They are copied to a replica that is rebuilt before the checkpoint they
        belong to is restored there, and may hold what was put for later entries as well: the same that a crash leaves
        behind."""

    def rows_copied(self, batch: DiskBatch) -> None:
        """The copy is complete and the checkpoint was restored: forget rows of an earlier state that are not of this
        one, in the same batch."""
