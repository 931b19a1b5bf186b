"""Values of the metadata group, frozen. Safe to keep: a change makes new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cluster.raft.membership.configuration import FOUNDING_BIRTH, FOUNDING_VERSION, Replica
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


NodeState = Literal["active", "leaving"]


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
    lost_below_birth: int = 0  # of replicas of births from 2 on and below this one it may have lost what it knew
    state: NodeState = "active"
    birth: int = FOUNDING_BIRTH  # of its replica of the metadata


FIRST_BIRTH = FOUNDING_BIRTH + 1
"""The first birth that is drawn."""


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move under way: at most one replica comes, and at most one goes."""

    id: int  # drawn like a birth; that of the replica which comes
    version: int  # of the configuration that it was planned for
    add: Replica | None
    remove: Replica | None
    cancel_asked: bool = False
    stalled: bool = False  # makes no progress, and takes no slot
    reason: str = ""
    plan: int = 0  # 0: none


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    name: str  # "0", "1", ...
    group: int  # Raft group id, never used again
    replicas: tuple[int, ...]  # settled ones; preferred leader first
    births: tuple[int, ...] = ()  # of the replicas, in their order; (): all are founding ones
    founding: tuple[int, ...] = ()  # nodes with which the group began; (): its replicas
    configuration_version: int = FOUNDING_VERSION  # of the configuration that brought the replicas
    target: tuple[int, ...] = ()  # nodes that are to keep it, preferred first; (): those that do
    move: MoveRecord | None = None
    reason: str = ""  # for the target
    plan: int = 0  # that brought the target; 0: none

    @property
    def preferred(self) -> int:
        return self.replicas[0]

    @property
    def wanted(self) -> tuple[int, ...]:
        """Nodes that keep it in the end."""
        return self.target or self.replicas

    @property
    def founders(self) -> tuple[int, ...]:
        """Nodes with which the group began, for ever."""
        return self.founding or self.replicas

    @property
    def was_moved(self) -> bool:
        """True if the group may be another than the one that began."""
        return self.configuration_version > FOUNDING_VERSION or self.move is not None

    @property
    def settled(self) -> tuple[Replica, ...]:
        """Replicas with their births, preferred leader first."""
        births = self.births or (FOUNDING_BIRTH,) * len(self.replicas)
        return tuple(Replica(node, birth) for node, birth in zip(self.replicas, births, strict=True))

    def replica_on(self, node: int) -> Replica | None:
        """The replica that the node is to have, settled or on its way; None: none."""
        coming = self.move.add if self.move is not None else None
        if coming is not None and coming.node == node:
            return coming
        if node not in self.replicas:
            return None
        return Replica(node, self.births[self.replicas.index(node)] if self.births else FOUNDING_BIRTH)


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


Balance = Literal["off", "repair", "on"]
BALANCES: tuple[Balance, ...] = ("off", "repair", "on")


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """Settings of the planner (`cluster/metadata/planning`) and of moves. Marks are percent of a node's disk."""

    balance: Balance = "repair"
    """What happens without an operator's word. `repair`: nodes that are lost or leave are emptied. `on`: all goals."""
    replace_after_s: int = 900
    """Seconds that a node must be away before its replicas are made elsewhere."""
    disk_high: int = 85
    """Mark of a disk above which replicas move away, down to `disk_low`."""
    disk_low: int = 75
    disk_target: int = 80
    """Mark that no target of a move exceeds, with all that is on its way there."""
    pace_bytes_per_s: int = 64 << 20
    """Limit of copies, out of a node and into one; they are slower while clients feel them."""


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
