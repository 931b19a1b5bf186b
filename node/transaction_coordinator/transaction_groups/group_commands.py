"""Commands about transaction groups in the log of a coordinator, and their answers.

The rules are in `group_state_machine.py`. A group is (writer, batch), and a run of the writer opens it; a member is
named by the producer id and epoch of its transaction, which no other ever has. `timestamp_ms` is the clock of the
leader that proposes.
"""

from __future__ import annotations

import msgspec

SERIALS = 1 << 32
"""Producer ids of one coordinator: group number * SERIALS + count."""

MEMBER_PREFIX = "$member-"
"""Prefix of members' transactional ids; clients' own do not begin with a dollar sign."""


def member_id(producer_id: int, epoch: int) -> str:
    """Name of a member that travels to the client that commits its group."""
    return f"{producer_id:x}-{epoch:x}"


def member_name(member: str) -> str:
    """The transactional id of a member."""
    return MEMBER_PREFIX + member


def coordinator_of(transactional_id: str) -> int:
    """Raft group of the coordinator that keeps this member; 0: it is the id of no member."""
    if not transactional_id.startswith(MEMBER_PREFIX):
        return 0
    producer_id, _, _ = transactional_id.removeprefix(MEMBER_PREFIX).partition("-")
    try:
        return int(producer_id, 16) // SERIALS
    except ValueError:
        return 0


class OpenGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=71):
    """Open a batch for a run of the writer. `query`: the query of these batches, if the writer's name does not say it;
    "": the name says it. `once`: the writer's name was drawn for this batch, and never comes again."""

    writer: str
    batch: int
    run: str
    query: str
    timeout_ms: int
    timestamp_ms: int = 0
    once: bool = False


class JoinGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=72):
    """Join a group for a part of the batch, as a task attempt. `holder`: a name that the client draws once; repeating
    it makes no second member."""

    writer: str
    batch: int
    run: str
    part: str
    attempt: str
    holder: str
    lease_ms: int
    timestamp_ms: int = 0


class PrepareMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=73):
    """Prepare the member, which has written everything: it waits for the decision of its group."""

    member: str
    timestamp_ms: int = 0


class CommitGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=74):
    """Decide the group: these members commit, all others abort."""

    writer: str
    batch: int
    run: str
    winners: list[str]
    timestamp_ms: int = 0


class AbortGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=75):
    """Abort the batch. `by_operator`: whatever run has it open, and whatever batch if that is -1."""

    writer: str
    batch: int
    run: str
    by_operator: bool = False
    timestamp_ms: int = 0


class ExpireGroup(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=76):
    """Abort the group if it is still open and its time is over."""

    writer: str
    batch: int
    timestamp_ms: int = 0


class ExpireMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=77):
    """Abort the member if it is not prepared: its client has been silent for its lease. The leader has measured that;
    nothing of it is in the state."""

    member: str
    timestamp_ms: int = 0


class ForgetWriter(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=80):
    """Forget the writer's name and its last batch: an operator knows that it will not come again."""

    writer: str
    timestamp_ms: int = 0


GroupCommand = (
    OpenGroup | JoinGroup | PrepareMember | CommitGroup | AbortGroup | ExpireGroup | ExpireMember | ForgetWriter
)

# ---------------------------------------------------------------- answers


class WriterOpened(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """Success of `OpenGroup`. `already_done`: this batch, or a later one, was committed before: there is nothing to
    write. `known` False: the coordinator knew nothing of the writer: it is its first batch here, or it was
    forgotten."""

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
    """Final decision of a group. `complete`: every partition of its members has its marker."""

    committed: bool
    complete: bool


class WriterForgotten(msgspec.Struct, frozen=True, array_like=True, tag=87):
    closed: int  # the last batch that it had committed; -1: none
