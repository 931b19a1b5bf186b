"""What the metadata group knows, as frozen values. Safe to keep: a change makes new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cluster.boot_counters import NEVER_STARTED, KnownStart

Code = Literal[
    "invalid-argument",
    "already-exists",
    "not-found",
    "not-enough-nodes",
    "not-allowed",
    "unavailable",  # no leader of the metadata group: certainly not done
    "unknown",  # may have been done: look before trying again
    "internal-error",
]

RETRIABLE: frozenset[str] = frozenset({"unavailable"})


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    name: str
    address: str  # host:port for AMQP clients


@dataclass(frozen=True, slots=True)
class NodeRecord:
    node: int
    rpc_address: str
    listeners: tuple[ListenerAddress, ...] = ()
    incarnation: int = 0  # of its data directory; 0: not told
    readmissions: int = 0  # times that it came back with an empty one
    lost_below_group: int = 0  # of groups below this one it may have lost what it knew
    former_incarnations: tuple[int, ...] = ()  # of directories that were given up for others
    start: KnownStart = NEVER_STARTED  # the latest of its directory that was registered


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    name: str  # "0", "1", ...
    group: int  # Raft group id, never used again
    replicas: tuple[int, ...]  # preferred leader first

    @property
    def preferred(self) -> int:
        return self.replicas[0]


@dataclass(frozen=True, slots=True)
class LogRecord:
    name: str
    id: int  # of this creation: a log that is deleted and made again has another
    replicas: int
    retention_ms: int | None  # None: for ever
    retention_bytes: int | None  # per partition; None: without limit
    created_ms: int
    partitions: tuple[PartitionRecord, ...]


@dataclass(frozen=True, slots=True)
class Ok:
    """Done. `log`: as it is now, for commands on a log (None after a deletion)."""

    log: LogRecord | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Not done (`unknown`: perhaps done); the message says why and what to do."""

    code: Code
    message: str

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


CommandResult = Ok | Refusal
