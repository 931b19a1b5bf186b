"""What is asked of a coordinator's leader about groups, besides commands, and what it answers."""

from __future__ import annotations

import msgspec

LIST_LIMIT = 500
"""Writers, or members, in one answer: about 100 KiB."""


class RenewLeases(msgspec.Struct, frozen=True, array_like=True, tag=78):
    """The clients of these members are alive, says the node that they are connected to; those of the others have been
    silent, and it only wants to know whether they have their leases still."""

    members: list[str]
    silent: list[str] = []


class Renewed(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """`over`: those that have no lease any more, aborted or unknown."""

    over: list[str]


class ListWriters(msgspec.Struct, frozen=True, array_like=True, tag=79):
    """`name`: this one only, with members of what it has open, those behind `after_member` by number; "": those behind
    `after`, by name."""

    name: str = ""
    after: str = ""
    after_member: int = 0
    limit: int = LIST_LIMIT


class MemberRow(msgspec.Struct, frozen=True, array_like=True):
    id: str
    part: str
    attempt: str
    fate: str
    how: str  # it was aborted; "": it was not
    open_ms: int
    lease_ms: int
    groups: list[int]  # Raft groups of the partitions that it has written to


class WriterRow(msgspec.Struct, frozen=True, array_like=True):
    """`closed` -1: nothing was committed. `batch` -1: nothing is open, and the rest says nothing."""

    name: str
    run: str
    closed: int
    query: str  # of the batch that was closed last
    aborted: str  # how the last group ended, if not by a commit
    batch: int = -1
    state: str = ""
    open_ms: int = -1
    timeout_ms: int = 0
    members: int = 0
    prepared: int = 0
    oldest_member_ms: int = -1
    rows: list[MemberRow] = []


class WriterList(msgspec.Struct, frozen=True, array_like=True, tag=86):
    rows: list[WriterRow]
