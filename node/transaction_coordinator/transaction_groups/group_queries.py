"""Questions to a coordinator's leader about groups, besides commands, and their answers."""

from __future__ import annotations

import msgspec

LIST_LIMIT = 500
"""Writers, or members, in one answer: about 100 KiB."""


class RenewLeases(msgspec.Struct, frozen=True, array_like=True, tag=78):
    """Renew the leases of `members`, whose clients are alive, by the word of the node that they are connected to. The
    clients of `silent` ones are not heard; the node only asks whether they have their leases still."""

    members: list[str]
    silent: list[str] = []


class Renewed(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """Answer to `RenewLeases`. `over`: members that have no lease any more, aborted or unknown."""

    over: list[str]


class ListWriters(msgspec.Struct, frozen=True, array_like=True, tag=79):
    """List writers. `name`: this one only, with the members of its open batch, those after `after_member` by number;
    "": those after `after`, by name."""

    name: str = ""
    after: str = ""
    after_member: int = 0
    limit: int = LIST_LIMIT


class MemberRow(msgspec.Struct, frozen=True, array_like=True):
    id: str
    part: str
    attempt: str
    fate: str
    how: str  # reason of its abort; "": it was not aborted
    open_ms: int
    lease_ms: int
    groups: list[int]  # Raft groups of the partitions that it has written to


class WriterRow(msgspec.Struct, frozen=True, array_like=True):
    """Row of a writer. `closed` -1: nothing was committed. `batch` -1: nothing is open, and the fields after it say
    nothing."""

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
