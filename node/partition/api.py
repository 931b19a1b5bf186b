"""The interface of a partition to the rest of a node: append records, read them back, ask how far it goes.

The problem: a link endpoint must serve a partition without knowing whether this node leads it (`partition_replica.py`)
or another node does (the gateway). Both speak these protocols; everything here is plain data, so it can cross a network
unchanged.

The rules never broken:
 - an `append` is answered exactly once, through `done`, and an answer other than `Appended` says whether the records
   may still turn up in the log (`kind == "unknown"`) or certainly never will (every other kind);
 - a batch with a producer's numbers is stored once however often it is appended, and `Appended` comes only after the
   first copy was committed;
 - a reader sees committed records only, each once, in offset order, without a hole above the partition's start offset;
 - callbacks (`done`, `wake`) only note what happened: they may be called from inside a Raft turn of the node, so they
   must not block, and must not raise.

Rejected: futures per append (a thousand a second per link, each a loop hop: callbacks cost a tenth), and async
iteration for readers (credit and socket back-pressure decide when to read; the reader must never hold data that nobody
has asked for).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.records.record_batch import RecordBatch
from node.partition.consumer_groups.group_queries import ReaderClaim
from node.partition.leader_queries import Answer, Question

__all__ = [
    "After", "AfterTime", "Answer", "AppendDone", "AppendOutcome", "Appended", "Begins", "Earliest", "Failed",
    "FailureKind", "Latest", "LogView", "PartitionDescription", "PartitionHandle", "ProducerInfo", "ProducerOpened",
    "ProducerRequest", "Question", "ReadError", "ReadErrorKind", "Reader", "ReaderClaim", "Start",
]  # fmt: skip

# ---------------------------------------------------------------- where a reader starts


@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest event that retention has left."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Events that are appended after the reader was opened."""


@dataclass(frozen=True, slots=True)
class After:
    """Events with an offset greater than this one. It may lie beyond the end: events before it are passed over."""

    offset: int


@dataclass(frozen=True, slots=True)
class AfterTime:
    """Events with a timestamp greater than this one (milliseconds since 1970), and an offset greater than `offset`.
    Either may lie beyond the end."""

    timestamp_ms: int
    offset: int = -1


Start = Earliest | Latest | After | AfterTime

# ---------------------------------------------------------------- what is read


ReadErrorKind = Literal[
    "not_leader",
    "damaged",
    "deleted",
    "unavailable",
    "defect",  # a defect of the reading node, or a question that it does not understand: asking again is no use
    "stolen",  # another claim is in force
    "lapsed",  # the reader's claim has ended, and no other is in force
    "revoked",  # its owner is asked to let go, so that another member of the group may have the partition
]


@dataclass(frozen=True, slots=True)
class ReadError:
    """Reason why a reader ended. `retriable`: opening a reader at the same position, here or at `leader`, may
    succeed."""

    kind: ReadErrorKind
    detail: str
    retriable: bool = True
    leader: int | None = None


class Reader(Protocol):
    """One position in one partition. Not for use by several links."""

    error: ReadError | None  # set once, then `wake` is called; the link must be closed or redirected

    @property
    def position(self) -> int:
        """The offset that the next event delivered will have, or exceed."""
        ...

    def poll(self, max_events: int, max_bytes: int, whole: bool = False) -> list[RecordBatch]:
        """The next batches, placed, and opened: at most `max_events` events, and `max_bytes` of them (at least one
        event, however big). `whole`: batches are neither cut nor opened, and the first one comes however big it is.
        `[]` means nothing now: `wake` will be called once when that has changed. Must not be called from `wake`."""
        ...

    def close(self) -> None:
        """Close the reader. Idempotent; `wake` is never called afterwards."""
        ...


# ---------------------------------------------------------------- idempotent producers


Begins = tuple[int, int]
"""A transaction that begins with a batch, which names its producer id and epoch: the Raft group of its coordinator, and
its timeout in milliseconds."""


@dataclass(frozen=True, slots=True)
class ProducerRequest:
    """Numbers that a producer states when it attaches; None: the partition chooses. `renews`: it goes on by itself when
    it is forgotten, so it may be forgotten before others."""

    producer_id: int | None = None
    epoch: int | None = None
    last_sequence: int | None = None
    renews: bool = False


@dataclass(frozen=True, slots=True)
class ProducerOpened:
    """Numbers granted to a producer: its next event has the number after `last_sequence`."""

    producer_id: int
    epoch: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    producer_id: int
    epoch: int
    last_sequence: int | None  # None: nothing of this epoch is stored
    last_offset: int | None  # None: not remembered
    last_active_ms: int  # when it last opened or sent, in the log's time
    remembered: int  # of its last events: those whose bytes are compared when they come again


# ---------------------------------------------------------------- what became of an append


@dataclass(frozen=True, slots=True)
class Appended:
    """Outcome of an append: the records of the batch are committed, in their order. The first `duplicates` of them were
    stored by an earlier append. `places`: (records, offset of the first) of each run of consecutive records; empty when
    there is one run, at `base_offset ...`. An offset may be FORGOTTEN: the record is stored, and its offset is not
    remembered."""

    base_offset: int
    timestamp_ms: int
    duplicates: int = 0
    places: tuple[tuple[int, int], ...] = ()

    def rows(self, count: int) -> tuple[tuple[int, int], ...]:
        """(records, offset of the first) of each run, for an append of `count` records."""
        return self.places or ((count, self.base_offset),)


FailureKind = Literal[
    "not_leader",  # this node does not lead the partition (any more): certainly not appended
    "unknown",  # leadership was lost meanwhile: appended or not, only the log can tell
    "overloaded",  # no room is left but for this node's own survival: free some, or lead elsewhere
    "disk_full",  # this node keeps its last space for its own survival: free some, or lead elsewhere
    "too_large",  # a record exceeds the largest entry: never retry
    "malformed",  # it is no record batch, or one that no reader could decode: never retry
    "rejected",  # the replicated state machine refused it: never retry
    "deleted",  # the log is gone
    # of batches with numbers, and only as the outcome of a committed entry: certainly not appended, never retry
    "producer_stolen",  # a higher epoch of the producer was opened
    "out_of_order",  # the number is neither the next one nor known with the same bytes
    "producer_unknown",  # it was not opened here, or was silent too long
    "producer_invalid",  # its numbers are nonsense
    "transaction_ended",  # it is not open here (any more), or may not write more
]


@dataclass(frozen=True, slots=True)
class Failed:
    kind: FailureKind
    retriable: bool
    detail: str
    leader: int | None = None
    known: int = 0  # records at the front that an earlier append with numbers has stored
    entry: tuple[int, int] | None = None  # of "unknown": (index, term) of the one Raft entry; of it `AskFate` may tell

    @property
    def certainly_not_appended(self) -> bool:
        return self.kind != "unknown"


AppendOutcome = Appended | Failed
AppendDone = Callable[[AppendOutcome], None]

# ---------------------------------------------------------------- the partition


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: str
    earliest_offset: int | None  # None: no event is stored
    latest_offset: int | None
    next_offset: int
    events: int  # stored now (retention subtracts)
    bytes: int  # of the stored batches, headers included
    leader: int | None
    replicas: Sequence[int] = field(default_factory=tuple)
    last_timestamp_ms: int | None = None
    stable_offset: int = 0  # the last stable offset: committed readers see what lies below
    open_transactions: int = 0
    aborted_transactions: int = 0  # with stored events; a producer's without a commit between them are one


class Unconfirmed(ConnectionError):
    """Raised when the asked node led the partition and cannot confirm that it still does, or when it closes its
    replica. It did nothing; ask again."""


@dataclass(frozen=True, slots=True)
class LogView:
    """A log as its links see it."""

    name: str
    partitions: Sequence[str]  # in order: the place in it is what a group key hashes to
    created_ms: int = 0


class PartitionHandle(Protocol):
    partition: str

    def append(self, batch: RecordBatch, done: AppendDone, begins: Begins | None = None) -> None:
        """Store the records of a batch in this order, without a gap, as they came; the leader stamps the time. `done`
        is called exactly once, possibly before `append` returns. Records that the producer's numbers show to be stored
        are not stored again; the rest is stored as a whole or not at all."""
        ...

    async def open_producer(self, wish: ProducerRequest) -> ProducerOpened | Failed:
        """Agree with a producer, on all replicas, on the numbers that it goes on with. Repeating it does no harm."""
        ...

    def watch_producer(self, producer_id: int, stolen: Callable[[int], None]) -> Callable[[], None]:
        """Call `stolen(epoch)` when this node sees the producer opened with a higher epoch: soon if it has a replica,
        else never. Returns the function that ends that. A courtesy: appends of lower epochs are refused in any case."""
        ...

    async def producers(self, after: int, limit: int) -> list[ProducerInfo]:
        """List producers with an id above `after`, by id, at most `limit`. Raises NotLeader (a RaftError),
        ConnectionError or LookupError when the leader cannot be asked."""
        ...

    async def ask(self, question: Question) -> Answer | Failed:
        """Ask or command the partition: for consumer groups see `consumer_groups/group_queries.py`, for transactions
        `transactions/transaction_queries.py`. Repeating a question whose outcome is unknown does no harm."""
        ...

    def open_reader(
        self, start: Start, wake: Callable[[], None], owner: ReaderClaim | None = None, *, uncommitted: bool = False
    ) -> Reader:
        """Open a reader. `owner`: it reads in the name of this claim, and only while that is in force. `uncommitted`:
        also events of transactions that are open or aborted."""
        ...

    async def info(self) -> PartitionDescription:
        """Ask the leader, confirmed by a majority: not older than any earlier answer. Raises ConnectionError or
        LookupError while there is no leader that can be asked."""
        ...
