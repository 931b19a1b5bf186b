"""Values of the metadata group, frozen. Safe to keep: a change makes new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cluster.stale_copy_detection import NEVER_STARTED, KnownStart
from cluster.versions import VersionRange

COORDINATORS = "$transactions"
"""The log whose partitions are no partitions but transaction coordinators. It is made when the first transactional id
is used, and can be neither altered nor deleted: which of them keeps an id follows from how many there are."""

COORDINATOR_COUNT = 8
"""Enough to share them among the nodes of a cluster; each costs a node what a quiet partition does."""

INTERNAL_PREFIX = "$"

UNCOMPRESSED = "none"
COMPRESSIONS = (UNCOMPRESSED, "gzip", "zstd")
"""Ways in which a log's record batches may be compressed."""

NOT_TOLD = VersionRange(0, 0)
"""Versions of a node that did not say which it knows (in tests)."""

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
    versions: VersionRange = NOT_TOLD  # that the program of that start knows
    rack: str = ""  # where it stands; "": not told


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
    compression: str = UNCOMPRESSED  # one of COMPRESSIONS; of batches that are yet to come


ADMIN_ROLE = "admin"
"""A user with this role may do everything."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """Keys and parameters kept of a password, for one hash function (RFC 5802)."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True)
class UserRecord:
    name: str
    sha256: ScramKeys
    sha512: ScramKeys
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class GrantRecord:
    """Grant of an operation. `principal`: a name, `role:` and a name, or `*`. `prefix`: all resources whose names begin
    so."""

    principal: str
    allow: bool
    operation: str
    kind: str
    name: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """Shared access rule. Keys are sealed: only a node that has the cluster's secret can open them. `scope`: the log
    that it is for; "": all."""

    name: str
    primary: bytes
    secondary: bytes
    claims: tuple[str, ...]
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Ok:
    """The command was done. `log`: as it is now, for commands on a log (None after a deletion)."""

    log: LogRecord | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The command was not done (`unknown`: perhaps done); the message says why and what to do."""

    code: Code
    message: str

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


class CommandRefused(Exception):
    """Raised inside the state machine to leave a command; becomes `Refusal`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.rejected = Refusal(code, message)


CommandResult = Ok | Refusal
