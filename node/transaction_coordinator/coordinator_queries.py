"""Questions to a transaction coordinator's leader, and their answers. Plain data that crosses a network unchanged; the
leader that proposes a command stamps it with the time.
"""

from __future__ import annotations

import msgspec

from node.transaction_coordinator.coordinator_commands import (
    Added,
    AddPartitions,
    Decided,
    Declined,
    EndTransaction,
    GroupResult,
    How,
    Register,
    Registered,
)
from node.transaction_coordinator.transaction_groups.group_commands import (
    AbortGroup,
    CommitGroup,
    ForgetWriter,
    JoinGroup,
    OpenGroup,
    PrepareMember,
)
from node.transaction_coordinator.transaction_groups.group_queries import ListWriters, Renewed, RenewLeases, WriterList

LIST_LIMIT = 500
"""Transactional ids in one answer: about 100 KiB."""


class AskOutcome(msgspec.Struct, frozen=True, array_like=True, tag=57):
    """Ask for a partition about the outcome of a transaction whose marker does not come. `overdue`: its time is over
    there, so if it has not begun at its coordinator, it never may."""

    producer_id: int
    epoch: int
    overdue: bool = False


class TransactionOutcome(msgspec.Struct, frozen=True, array_like=True, tag=66):
    """Outcome of a transaction; None: it is not decided. `coordinator_epoch`: the term of the leader that says so.
    `soon`: ask again soon, since the node that holds it is not heard now, and may be gone."""

    committed: bool | None
    coordinator_epoch: int
    soon: bool = False


class AskLost(msgspec.Struct, frozen=True, array_like=True, tag=88):
    """Ask another member of the group, leader or not, whether it has been out of touch with this node for a while,
    too."""

    node: int


class Lost(msgspec.Struct, frozen=True, array_like=True, tag=89):
    """Answer to `AskLost`."""

    is_lost: bool


class DecideTransaction(msgspec.Struct, frozen=True, array_like=True, tag=69):
    """End a transaction as `EndTransaction`, which it becomes, and answer as soon as it is decided."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool


class NoteAndEnd(msgspec.Struct, frozen=True, array_like=True, tag=70):
    """Add partitions and end the transaction, as `AddPartitions` and `EndTransaction`: two adjacent entries in one
    round of replication. `decide`: answered as `DecideTransaction` is. A node that does not know the question has done
    nothing."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    groups: list[int]
    decide: bool = False


class AwaitEnd(msgspec.Struct, frozen=True, array_like=True, tag=68):
    """Wait for the markers of a decided transaction; its holder needs them for its next one. The answer is `Decided`;
    if that is not complete, it took too long: ask again."""

    transactional_id: str
    producer_id: int
    epoch: int


class ListIds(msgspec.Struct, frozen=True, array_like=True, tag=58):
    """List ids. `name`: this one only; "": those after `after`, by name."""

    name: str = ""
    after: str = ""
    limit: int = LIST_LIMIT


class IdRow(msgspec.Struct, frozen=True, array_like=True):
    """Row of an id. `open_ms` -1: no transaction is under way. `groups`: Raft groups of the partitions that take
    part."""

    name: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    open_ms: int
    groups: list[int]
    last: str  # how the transaction before ended; "": there was none


class IdList(msgspec.Struct, frozen=True, array_like=True, tag=67):
    rows: list[IdRow]


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=59):
    """Abort the id's open transaction, for an operator."""

    transactional_id: str


GroupQuestion = (
    OpenGroup | JoinGroup | PrepareMember | CommitGroup | AbortGroup | ForgetWriter | RenewLeases | ListWriters
)
CoordinatorQuestion = (
    Register
    | AddPartitions
    | EndTransaction
    | DecideTransaction
    | NoteAndEnd
    | AwaitEnd
    | AskOutcome
    | ListIds
    | Abort
    | GroupQuestion
)
CoordinatorAnswer = (
    Registered | Added | Decided | Declined | TransactionOutcome | IdList | GroupResult | Renewed | WriterList
)

__all__ = [
    "Abort", "AskLost", "AskOutcome", "AwaitEnd", "CoordinatorAnswer", "CoordinatorQuestion", "DecideTransaction",
    "GroupQuestion", "How", "IdList", "IdRow", "ListIds", "Lost", "NoteAndEnd", "TransactionOutcome",
]  # fmt: skip
