"""What the rest of a node sees of a partition: append records, read them back, ask how far it goes.

The problem: a link endpoint must serve a partition without knowing whether this node leads it (`replica.py`) or another
node does (the gateway). Both speak these protocols; everything here is plain data, so it can cross a network unchanged.

The rules never broken:
 - an `append` is answered exactly once, through `done`, and an answer other than `Appended` says whether the records
   may still turn up in the log (`kind == "unknown"`) or certainly never will (every other kind);
 - a reader sees committed records only, each once, in offset order, without a hole above the partition's start offset;
 - callbacks (`done`, `wake`) only note what happened: they may be called from inside a turn of the Raft host, so they
   must not block, and must not raise.

Rejected: futures per append (a thousand a second per link, each a loop hop: callbacks cost a tenth), and async
iteration for readers (credit and socket back-pressure decide when to read; the reader must never hold data nobody
asked for).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

# ---------------------------------------------------------------- where a reader starts


@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest event that retention has left."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Only what is appended after the reader was opened."""


@dataclass(frozen=True, slots=True)
class After:
    """Events with an offset greater than this one. It may lie beyond the end: what comes before it is passed over."""

    offset: int


@dataclass(frozen=True, slots=True)
class AfterTime:
    """Events with a timestamp greater than this one (milliseconds since 1970). It may lie in the future."""

    timestamp_ms: int


Start = Earliest | Latest | After | AfterTime

# ---------------------------------------------------------------- what is read


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Consecutive events: `records[i]` has offset `base_offset + i`. All share the timestamp their leader gave them."""

    base_offset: int
    timestamp_ms: int
    records: list[bytes]

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.records)


ReadErrorKind = Literal["not_leader", "damaged", "deleted", "unavailable"]


@dataclass(frozen=True, slots=True)
class ReadError:
    """Why a reader ended. `retriable`: opening a reader at the same position, here or at `leader`, may succeed."""

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

    def poll(self, max_events: int, max_bytes: int) -> list[StoredBatch]:
        """The next batches: at most `max_events` events, and about `max_bytes` (at least one event, however big).
        `[]` means nothing now: `wake` will be called once when that has changed. Must not be called from `wake`."""
        ...

    def close(self) -> None:
        """Idempotent. `wake` is never called afterwards."""
        ...


# ---------------------------------------------------------------- what became of an append


@dataclass(frozen=True, slots=True)
class Appended:
    """The records of one `append` call are committed at `base_offset ...`, without a gap between them."""

    base_offset: int
    timestamp_ms: int


FailureKind = Literal[
    "not_leader",  # this node does not lead the partition (any more): certainly not appended
    "unknown",  # leadership was lost meanwhile: appended or not, only the log can tell
    "overloaded",  # too much is waiting to be replicated: slow down, then try again
    "disk_full",  # this node keeps its last space for its own survival: free some, or lead elsewhere
    "too_large",  # a record exceeds the largest entry: never retry
    "rejected",  # the replicated state machine refused it: never retry
    "deleted",  # the log is gone
]


@dataclass(frozen=True, slots=True)
class Failed:
    kind: FailureKind
    retriable: bool
    detail: str
    leader: int | None = None

    @property
    def certainly_not_appended(self) -> bool:
        return self.kind != "unknown"


AppendOutcome = Appended | Failed
AppendDone = Callable[[AppendOutcome], None]

# ---------------------------------------------------------------- the partition


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: str
    earliest_offset: int | None  # None: no event is stored
    latest_offset: int | None
    next_offset: int
    events: int  # stored now (retention subtracts)
    bytes: int  # of the stored batches, headers included
    leader: int | None
    replicas: Sequence[int] = field(default_factory=tuple)
    last_timestamp_ms: int | None = None


class PartitionHandle(Protocol):
    partition: str

    def append(self, records: list[bytes], done: AppendDone) -> None:
        """Append `records` in this order, without a gap. Ownership of the list passes to the partition.
        `done` is called exactly once, possibly before `append` returns."""
        ...

    def open_reader(self, start: Start, wake: Callable[[], None]) -> Reader: ...

    async def info(self) -> PartitionInfo: ...
