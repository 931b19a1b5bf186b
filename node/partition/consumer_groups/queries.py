"""What a link, a gateway or an operator asks of a partition on behalf of a consumer group, and what it answers.

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
    Owned,
)

LIST_LIMIT = 1000
"""Groups in one answer: about 200 KiB."""


@dataclass(frozen=True, slots=True)
class Owner:
    """In whose name a reader reads."""

    key: str
    claim: int


class ListGroups(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """`key`: this one only; "": those behind `after`, by key, without termini."""

    key: str = ""
    after: str = ""
    limit: int = LIST_LIMIT


class Revoke(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Ask the owner to let go: its link is closed gracefully."""

    key: str
    claim: int


class Assign(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """A link of `member`, served by `node`, wants any partition of the log. Asked of the leader of the log's first
    partition, again and again while it waits: it is forgotten soon after the last time."""

    log: str
    key: str
    member: str
    identity: str
    node: int
    leaving: bool = False  # it does not wait any more


class AskFate(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """What became of the entry that a leader of `term` proposed at `index`: asked of a later leader, see `fate.py`."""

    index: int
    term: int


class Fate(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """`stored`: it is in the log; False: it is not, and never will be. None: nobody can tell any more, or (`pending`)
    not yet."""

    stored: bool | None
    pending: bool = False


class DumpEntries(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """The entries of the log behind index `after`; with an `offset`: from the one that holds this event on."""

    after: int
    limit: int
    offset: int = -1


class EntryRow(msgspec.Struct, frozen=True, array_like=True):
    """`kind`: of command, or of marker; `damaged`, `unreadable`. The rest is for record batches; -1: it has none."""

    index: int
    term: int
    kind: str
    size: int
    base_offset: int = -1
    stored: int = 0  # of its records: the others were stored before
    count: int = 0
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    first_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    detail: str = ""


class EntryList(msgspec.Struct, frozen=True, array_like=True, tag=19):
    entries: list[EntryRow]
    first_index: int  # of the log
    last_index: int  # that is applied


GroupQuestion = Claim | EndClaim | Commit | Delete | ListGroups | Revoke | Assign | AskFate | DumpEntries


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


class GroupList(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The leader's word. `next_offset`, `start_offset`: where the partition ends and begins."""

    groups: list[GroupRow]
    start_offset: int
    next_offset: int


class Assigned(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """`partition`: claim this one. Else wait and ask again: `entitled`, since another member is asked to let go of
    what it has too much; or not, since every partition has its owner, and nobody has too much."""

    partition: str | None = None
    entitled: bool = False


GroupAnswer = Owned | Done | Denied | GroupList | Assigned | Fate | EntryList

_ENCODER = msgspec.msgpack.Encoder()
_QUESTIONS = msgspec.msgpack.Decoder(GroupQuestion)
_ANSWERS = msgspec.msgpack.Decoder(GroupAnswer)


def encode_question(question: GroupQuestion) -> bytes:
    return _ENCODER.encode(question)


def decode_question(data: bytes) -> GroupQuestion:
    """Raises ValueError."""
    return _QUESTIONS.decode(data)


def encode_answer(answer: GroupAnswer) -> bytes:
    return _ENCODER.encode(answer)


def decode_answer(data: bytes) -> GroupAnswer:
    """Raises ValueError."""
    return _ANSWERS.decode(data)
