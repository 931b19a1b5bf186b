"""Interfaces that a node gives to the network between nodes, and those that it gets back.

The problem: a gateway node appends to and reads from partitions that other nodes lead, in the very words in which it
serves its own. Those words (`Appended`, `Failed`, `Earliest` ...) are the node's; this package lies below the node.
So it is given them: `PartitionTypes` is whatever has those names, in production the module that defines them, and
nothing needs to be converted at the border.

The rules never broken:
 - every append is answered exactly once, and an answer other than `Appended` tells whether the records may still turn
   up in the log (`kind == "unknown"`) or certainly will not (every other kind). A request counts as sent once the
   other node has accepted the stream and gRPC has been handed the bytes; before that it is `not_leader`, to be tried
   elsewhere;
 - a reader yields committed records once, in order, without a hole, until its `error` is set.

Rejected: a second set of dataclasses and a translation in the gateway (a copy of each batch for no gain), and one
exception type with a code (callers must decide between "try the next node" and "may have happened").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Protocol

from cluster.raft import FetchReply, FetchRequest, NotLeader
from cluster.rpc.admission_report import Callers
from cluster.rpc.load_report import LoadReport
from cluster.rpc.rpc_pb2 import AwaitedMove, ReplicaState

# ------------------------------------------------------------------ what the node provides


class PlacedBatch(Protocol):
    """Consecutive events of a partition in one sealed batch, which is passed on as it is."""

    @property
    def offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...  # bytes of the whole batch
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def check_content(self) -> None:
        """Raise ValueError if it is not what was sealed."""
        ...

    def open(self) -> object:
        """Have the events at hand. Raises ValueError."""
        ...

    def part(self, start: int, stop: int) -> PlacedBatch: ...
    def within(
        self, max_events: int, max_bytes: int, *, whole: bool, at_least_one: bool
    ) -> tuple[PlacedBatch | None, int]:
        """The part of the batch that the limits allow, and its bytes; `whole`: the batch is not cut."""
        ...


class SealedBatch(Protocol):
    """The records of one append, sealed: they are passed on without a look at them."""

    @property
    def size(self) -> int: ...  # of its bytes
    def pieces(self) -> tuple[bytes, memoryview]: ...  # which are the batch when they are joined


class ServedReader(Protocol):
    @property
    def error(self) -> Any: ...
    @property
    def position(self) -> int: ...
    def poll(self, max_events: int, max_bytes: int, whole: bool = False) -> Sequence[PlacedBatch]: ...
    def close(self) -> None: ...


class Partition(Protocol):
    """A replica on this node. What it cannot do (not leader, closed) its own answers say."""

    def append(
        self, batch: Any, done: Callable[[Any], None], begins: tuple[int, int] | None = None
    ) -> None: ...  # the batch: what `record_batch` gave
    def open_reader(
        self, start: Any, wake: Callable[[], None], owner: Any = None, *, uncommitted: bool = False
    ) -> ServedReader: ...
    async def info(self) -> Any: ...
    async def open_producer(self, wish: Any) -> Any: ...
    async def producers(self, after: int, limit: int) -> Sequence[Any]: ...
    async def ask(self, question: Any) -> Any: ...


class Answering(Protocol):
    """A replica on this node, of a partition or of a transaction coordinator."""

    async def ask(self, question: Any) -> Any: ...


class PartitionHost(Protocol):
    def partition(self, group: int) -> Partition | None:
        """The local replica of the partition, or None when this node has none."""
        ...

    def replica(self, group: int) -> Answering | None:
        """The local replica of the group, whatever it replicates, or None when this node has none."""
        ...


@dataclass(frozen=True, slots=True)
class Members:
    """A cluster and its nodes, as one that joins is told."""

    cluster_id: int
    addresses: Mapping[int, str]  # for other nodes, by node


class AdminHost(Protocol):
    async def execute(self, command: bytes) -> bytes:
        """Carries out a command of the metadata group here; raises `NotLeader` when another node must."""
        ...

    def registers(self, node: int, command: bytes) -> bool:
        """True of a command by which that node registers itself."""
        ...

    async def confirm(self) -> int:
        """Return the index up to which a reader must have applied the metadata, as leader; raises `NotLeader`."""
        ...

    def members(self) -> Members:
        """The cluster, as this node knows it."""
        ...

    def replica_states(self, groups: Sequence[int]) -> Sequence[ReplicaState]:
        """States of the named replicas of this node; none named: of those that are catching up or do not vote."""
        ...

    def report(self) -> LoadReport:
        """Report the bytes of this node's disk, and of the groups that it leads."""
        ...

    def hand_over(self, moves: Iterable[AwaitedMove], successors: Collection[int]) -> Sequence[int]:
        """Offer the leadership of groups that move to the successors, where the metadata here are not as far as
        awaited. Returns the groups of which it was offered."""
        ...


class PartitionTypes(Protocol):
    """The node's words: data types by name, and the constructor arguments this package uses."""

    @property
    def Earliest(self) -> type: ...
    @property
    def Latest(self) -> type: ...
    @property
    def After(self) -> type: ...  # (offset)
    @property
    def AfterTime(self) -> type: ...  # (timestamp_ms, offset)
    @property
    def placed_batch(self) -> Callable[[bytes], PlacedBatch]: ...  # from its bytes; raises ValueError
    @property
    def ReadError(self) -> type: ...  # (kind, detail, retriable, leader)
    @property
    def Appended(self) -> type: ...  # (base_offset, timestamp_ms, duplicates, places)
    @property
    def Failed(self) -> type: ...  # (kind, retriable, detail, leader, known, entry)
    @property
    def record_batch(self) -> Callable[[bytes], SealedBatch]: ...  # raises ValueError
    @property
    def ProducerRequest(self) -> type: ...  # (producer_id, epoch, last_sequence, renews)
    @property
    def ProducerOpened(self) -> type: ...  # (producer_id, epoch, last_sequence)
    @property
    def ProducerInfo(self) -> type: ...  # see node.partition.api
    @property
    def ReaderClaim(self) -> type: ...  # (key, claim)
    @property
    def encode_question(self) -> Callable[[Any], bytes]: ...
    @property
    def decode_question(self) -> Callable[[bytes], Any]: ...  # raises ValueError
    @property
    def encode_answer(self) -> Callable[[Any], bytes]: ...
    @property
    def decode_answer(self) -> Callable[[bytes], Any]: ...  # raises ValueError
    @property
    def PartitionDescription(self) -> type: ...  # see node.partition.api


# ------------------------------------------------------------------ what can go wrong with a question


class NotLeaderHere(NotLeader):
    """The asked node does not lead the group, and did nothing. `leader`: the node that does, as far as it knows."""


class GroupUnknown(LookupError):
    """The asked node has no replica of the group: not yet, or not any more. Look up the placement again."""

    def __init__(self, group: int, node: int) -> None:
        super().__init__(f"node {node} has no replica of group {group}: look up the placement again, then retry")
        self.group = group
        self.node = node


class Unavailable(ConnectionError):
    """The node did not answer. `sent`: the request may have been carried out; else it certainly was not."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.sent = sent


class AddressInUse(OSError):
    """Another process listens on the configured address."""


# ------------------------------------------------------------------ what the node gets


class RemoteReader(ServedReader, Protocol):
    """A reader on another node, with a byte window: it holds no more than its window, on both sides."""

    @property
    def resolved(self) -> bool:
        """False: the start has not been turned into a position yet. A reader that replaces a failed one begins
        at `After(position - 1)` when resolved, else at the original start."""
        ...


class PeerClient(Protocol):
    """Asks one other node. One per node, kept for ever; reconnects by itself."""

    node: int

    def append(
        self, group: int, batch: SealedBatch, done: Callable[[Any], None], begins: tuple[int, int] | None = None
    ) -> None:
        """Like a partition's own `append`; pipelined, many requests may be unanswered. `done` may be called at once."""
        ...

    def open_reader(
        self, group: int, start: Any, wake: Callable[[], None], owner: Any = None, *, uncommitted: bool = False
    ) -> RemoteReader: ...

    async def info(self, group: int) -> Any:
        """The node's PartitionDescription; raises GroupUnknown, Unavailable."""
        ...

    async def open_producer(self, group: int, wish: Any) -> Any:
        """The node's ProducerOpened or Failed: `not_leader` when certainly nothing was done, `unknown` when it
        may have been."""
        ...

    async def producers(self, group: int, after: int, limit: int) -> Sequence[Any]:
        """The node's ProducerInfo of each; raises GroupUnknown, Unavailable."""
        ...

    async def ask(self, group: int, question: Any) -> Any:
        """The node's answer or Failed: `not_leader` when certainly nothing was done, `unknown` when it may have
        been."""
        ...

    async def execute(self, command: bytes, timeout_s: float = 10.0) -> bytes:
        """A metadata command, at its leader; raises NotLeaderHere, Unavailable (see `sent`)."""
        ...

    async def confirm(self, timeout_s: float) -> int:
        """The metadata leader's word on how far the metadata go; raises NotLeaderHere, Unavailable."""
        ...

    async def replicas(self, groups: Sequence[int]) -> Sequence[ReplicaState]:
        """Ask for the states of the node's replicas; raises Unavailable."""
        ...

    async def join(self) -> Members:
        """Ask for the members of the cluster, as a node that joins it; raises Unavailable, also if it may not."""
        ...

    async def callers(self, known: AbstractSet[int]) -> Callers:
        """Ask which of the known nodes the node lets in, and which not; raises Unavailable."""
        ...

    async def report(self) -> LoadReport:
        """Ask how full the node is, and how large the groups that it leads; raises Unavailable."""
        ...

    async def hand_over(self, moves: Iterable[AwaitedMove], successors: Iterable[int]) -> list[int]:
        """Have the leadership of groups that move handed to successors, where the node's metadata are not as far as
        awaited. Returns the groups of which it was offered; raises Unavailable."""
        ...

    async def fetch(self, request: FetchRequest) -> FetchReply:
        """A piece of a snapshot, over a connection that carries nothing else; raises Unavailable."""
        ...
