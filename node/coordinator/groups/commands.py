"""What the log of a coordinator can say of transaction groups, and what is answered.

The rules are in `writers.py`. A group is (writer, batch), and a run of the writer opens it; a member is named by the
producer id and epoch of its transaction, which no other ever has. `timestamp_ms` is the clock of the leader that
proposes.
"""

from __future__ import annotations

import msgspec

SERIALS = 1 << 32
"""Producer ids of one coordinator: group number * SERIALS + count."""

MEMBER_PREFIX = "$member-"
"""Of the transactional ids of members; clients' own do not begin with a dollar sign."""


def member_id(producer_id: int, epoch: int) -> str:
    """By which a member travels to whoever commits its group."""
    return f"{producer_id:x}-{epoch:x}"


def member_name(member: str) -> str:
    """The transactional id of a member."""
    return MEMBER_PREFIX + member


def coordinator_of(transactional_id: str) -> int:
    """The Raft group of the coordinator that keeps this member; 0: it is the id of no member."""
    if not transactional_id.startswith(MEMBER_PREFIX):
        return 0
    producer_id, _, _ = transactional_id.removeprefix(MEMBER_PREFIX).partition("-")
    try:
        return int(producer_id, 16) // SERIALS
    except ValueError:
        return 0


class OpenGroup(msgspec.Struct, frozen=True, array_like=True, tag=71):
    """A run of the writer is about to write this batch. `query`: whose batches these are, if the writer's name does
    not say so; "": the name says it. `once`: the writer's name was drawn for this batch, and never comes again."""

    writer: str
    batch: int
    run: str
    query: str
    timeout_ms: int
    timestamp_ms: int = 0
    once: bool = False


class JoinGroup(msgspec.Struct, frozen=True, array_like=True, tag=72):
    """A task attempt wants to write a part of the batch. `holder`: drawn by who asks, once; asking again with it is no
    second member."""

    writer: str
    batch: int
    run: str
    part: str
    attempt: str
    holder: str
    lease_ms: int
    timestamp_ms: int = 0


class PrepareMember(msgspec.Struct, frozen=True, array_like=True, tag=73):
    """The member has written everything: it waits for the decision of its group."""

    member: str
    timestamp_ms: int = 0


class CommitGroup(msgspec.Struct, frozen=True, array_like=True, tag=74):
    """Decide: these members commit, all others abort."""

    writer: str
    batch: int
    run: str
    winners: list[str]
    timestamp_ms: int = 0


class AbortGroup(msgspec.Struct, frozen=True, array_like=True, tag=75):
    """Nothing of the batch is to count. `by_operator`: whatever run has it open, and whatever batch if that is -1."""

    writer: str
    batch: int
    run: str
    by_operator: bool = False
    timestamp_ms: int = 0


class ExpireGroup(msgspec.Struct, frozen=True, array_like=True, tag=76):
    """Time has passed: the group, if it is still open and its time is over, aborts."""

    writer: str
    batch: int
    timestamp_ms: int = 0


class ExpireMember(msgspec.Struct, frozen=True, array_like=True, tag=77):
    """Its client has been silent for as long as its lease was: the member, if it is not prepared, aborts. The leader
    has measured that; nothing of it is in the state."""

    member: str
    timestamp_ms: int = 0


class ForgetWriter(msgspec.Struct, frozen=True, array_like=True, tag=80):
    """An operator knows that the writer will not come again: its name, and its last batch, are forgotten."""

    writer: str
    timestamp_ms: int = 0


GroupCommand = (
    OpenGroup | JoinGroup | PrepareMember | CommitGroup | AbortGroup | ExpireGroup | ExpireMember | ForgetWriter
)

# ---------------------------------------------------------------- answers


class WriterOpened(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """`already_done`: this batch, or a later one, was committed before: there is nothing to write. `known` False: the
    coordinator knew nothing of the writer: it is its first batch here, or it was forgotten."""

    already_done: bool
    closed: int  # the last batch that was committed; -1: none
    known: bool
    timeout_ms: int


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=82):
    member: str
    producer_id: int
    epoch: int
    lease_ms: int
    timeout_ms: int


class Prepared(msgspec.Struct, frozen=True, array_like=True, tag=83):
    member: str


class GroupDecided(msgspec.Struct, frozen=True, array_like=True, tag=84):
    """Nothing changes it any more. `complete`: every partition of its members has its marker."""

    committed: bool
    complete: bool


class WriterForgotten(msgspec.Struct, frozen=True, array_like=True, tag=87):
    closed: int  # the last batch that it had committed; -1: none
