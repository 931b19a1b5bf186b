"""The limits of a partition on this node, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

MAX_RECORD_BYTES = 16 * MIB + 64 * KIB
"""The largest message that a listener may be configured to take, and room for what the node adds. Half of the largest
Raft entry: a record always fits one."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    entry_bytes: int = 1 * MIB
    """Batches of one turn are gathered into entries of about this size. Larger ones gain nothing in the store, and
    delay what comes behind them on the way to the followers."""
    call_bytes: int = 31 * MIB
    """One batch is in one entry, and so is stored as a whole or not at all; a larger one is refused. Those larger than
    `entry_bytes` hold a single large message, or came in one transfer."""
    in_flight_bytes: int = 48 * MIB
    """Waiting here or for a majority; above it `append` answers "overloaded". Below the Raft group's own limit
    (64 MiB), so that its refusal is never met, and above what the credit of well-behaved links adds up to."""
    cache_bytes: int = 4 * MIB
    """Bytes of decoded batches kept for tail readers, so that N of them decode once. Only while there are readers."""
    owner_lease_s: float = 5.0
    """A consumer group's owner without a reader is taken for alive so long: an election (two seconds), a client's
    reconnection, and a busy machine."""
    rows_ahead: int = 64
    """Index rows that a reader of old data fetches at a time."""
