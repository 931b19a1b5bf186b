"""Questions to a partition about consumer groups, from a link, a gateway or an operator, and their answers.

The rule: plain data that crosses a network unchanged; the commands among the questions are those of the replicated
state machine (`group_state.py`), stamped with the time by the leader that proposes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from node.partition.consumer_groups.group_state import (
    Claim,
    Commit,
    Delete,
    Denied,
    Done,
    EndClaim,
    NoteCheckpoint,
    NoteOwner,
    Owned,
    OwnerNoted,
)

LIST_LIMIT = 1000
"""Groups in one answer: about 200 KiB."""


@dataclass(frozen=True, slots=True)
class ReaderClaim:
    """The claim in whose name a reader reads. `claim` 0: none, and the reader may read while none is in force."""

    key: str
    claim: int


class ListGroups(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """List groups. `key`: this one only; "": those after `after`, by key, without termini. `confirm`: a majority
    confirms the leader first. The adviser does not need that: it asks twice a second, which would wake a quiet
    group."""

    key: str = ""
    after: str = ""
    limit: int = LIST_LIMIT
    confirm: bool = True


class Revoke(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Ask the owner to let go: its link is closed gracefully."""

    key: str
    claim: int


class Assign(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Ask for any partition of the log, for a link of `member`, served by `node`. It goes to the leader of the log's
    first partition, repeated while the link waits: the link is forgotten soon after the last time."""

    log: str
    key: str
    member: str
    identity: str
    node: int
    leaving: bool = False  # it does not wait any more


GroupQuestion = Claim | EndClaim | Commit | Delete | NoteOwner | NoteCheckpoint | ListGroups | Revoke | Assign


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    key: str
    epoch: int
    claim: int
    active: bool
    present: bool  # the leader has a reader for the claim in force
    member: str
    identity: str
    position: int  # -1: nothing was committed
    position_ms: int
    touched_ms: int
    owner: str = ""  # the processor of Event Hubs that owns the partition
    owner_revision: int = 0  # of that ownership; 0: there is none
    owner_ms: int = 0


class GroupList(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Groups, by the leader's word. `start_offset` and `next_offset` are those of the partition."""

    groups: list[GroupRow]
    start_offset: int
    next_offset: int


class Assigned(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Answer to `Assign`. `partition`: claim this one. Else wait and ask again: `entitled`, since another member is
    asked to let go of one; or not, since every partition has its owner, and none has too many."""

    partition: str | None = None
    entitled: bool = False


GroupAnswer = Owned | Done | OwnerNoted | Denied | GroupList | Assigned
