"""What the log of a coordinator can say, and what is answered.

The rules are in `machine.py`. `timestamp_ms` is the clock of the leader that proposes; a transaction is (producer id,
epoch) of a transactional id.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from node.coordinator.groups.commands import (
    GroupCommand,
    GroupDecided,
    Joined,
    Prepared,
    WriterForgotten,
    WriterOpened,
)

MAX_ID_CHARACTERS = 256
"""Of a transactional id: it is written with each of its commands."""

MAX_HOLDER_CHARACTERS = 64
"""The longest name that a holder of an id may draw."""


class NodeStart(msgspec.Struct, frozen=True, array_like=True):
    """A start of a node. `boot`: how many starts there were of the data of this incarnation."""

    node: int
    incarnation: int
    boot: int


class Register(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """Somebody wants to write under this transactional id, and nobody else is to from now on (Kafka's InitProducerId).
    `holder`: drawn by who asks, once; asking again with it is no second registration, until the pair is used."""

    transactional_id: str
    holder: str
    timeout_ms: int
    timestamp_ms: int = 0
    lost: tuple[int, int] | None = None  # of the holder's transaction that ended without it: it asks for the next pair
    succeeds: str = ""  # only if this holder, and nobody else, has had the id until now: it comes back as another
    at: NodeStart | None = None  # whose transaction manager holds it; when that is gone, what it had open aborts


class AddPartitions(msgspec.Struct, frozen=True, array_like=True, tag=52):
    """The transaction is about to write to the partitions of these Raft groups, or to stage offsets there. The first
    one begins it, and its time."""

    transactional_id: str
    producer_id: int
    epoch: int
    groups: list[int]
    timestamp_ms: int = 0


class EndTransaction(msgspec.Struct, frozen=True, array_like=True, tag=53):
    """Decide. What it finds decided it leaves so, and says."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    timestamp_ms: int = 0
    by_operator: bool = False


class Complete(msgspec.Struct, frozen=True, array_like=True, tag=54):
    """Every partition of the transaction has its marker."""

    transactional_id: str
    producer_id: int
    epoch: int
    timestamp_ms: int = 0


class Expire(msgspec.Struct, frozen=True, array_like=True, tag=55):
    """Time has passed: the transaction, if it is still open and its time is over, aborts. `gone`: so it does, whatever
    its time, if it is held at this start of a node, which a majority takes for gone."""

    transactional_id: str
    producer_id: int
    epoch: int
    timestamp_ms: int = 0
    gone: NodeStart | None = None


class FenceTransaction(msgspec.Struct, frozen=True, array_like=True, tag=60):
    """A partition has waited for the end of this transaction for longer than its time, or the start of a node that it
    is held at is `gone`, and nothing has begun it here: it is over, before it begins late."""

    transactional_id: str
    producer_id: int
    epoch: int
    timestamp_ms: int = 0
    gone: NodeStart | None = None


class ForgetIdle(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """Time has passed: ids that were idle too long are forgotten."""

    timestamp_ms: int = 0


Command = Register | AddPartitions | EndTransaction | Complete | Expire | FenceTransaction | ForgetIdle | GroupCommand

# ---------------------------------------------------------------- answers

How = Literal["client", "timeout", "fenced", "operator", "lease", "group", "node"]
"""Why a transaction ended: its client said so, its time was over, another holder came, an operator ended it, or its
client's node was gone; of a member of a group also: its client fell silent, or the group was committed without it."""


class LastEnd(msgspec.Struct, frozen=True, array_like=True):
    """How the transaction before the present one ended."""

    producer_id: int
    epoch: int
    committed: bool
    how: How


class Registered(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """The next transaction of the id is (`producer_id`, `epoch`)."""

    producer_id: int
    epoch: int
    timeout_ms: int
    last: LastEnd | None = None


class Added(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """The transaction may begin there. `timeout_ms`: what it has, from its first partition on."""

    timeout_ms: int


class Decided(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """Nothing changes it any more. `complete`: every partition has its marker, and (`producer_id`, `epoch`) is the next
    transaction; to who is not the holder any more it is the one that is over."""

    committed: bool
    complete: bool
    how: How
    producer_id: int
    epoch: int


Code = Literal[
    "busy",  # the id's last transaction is decided, and its markers are under way: try again
    "fenced",  # another holder has the id now
    "unknown-id",  # the coordinator does not know the id (any more), or not this transaction of it
    "ended",  # the transaction has ended another way, or cannot take part in anything any more
    "expired",  # it was aborted, since its time was over
    "forgotten",  # it has ended, long ago, and nobody knows how
    "invalid",
    "too-many",
    "in-use",  # of a writer of groups: it has a batch open
    "not-prepared",  # of a group: a winner is not, and nothing was decided
    "another-query",  # of a group: its batch would be taken for done, and is another query's
]


class Declined(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Nothing was done."""

    code: Code
    detail: str

    @property
    def retriable(self) -> bool:
        return self.code == "busy"


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=65):
    ids: int
    writers: list[str] = []  # of groups


GroupResult = WriterOpened | Joined | Prepared | GroupDecided | WriterForgotten
Result = Registered | Added | Decided | Declined | Forgotten | GroupResult

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Command)


def encode(command: Command) -> bytes:
    return _ENCODER.encode(command)


def decode(data: bytes) -> Command:
    """Raises msgspec.DecodeError, a ValueError."""
    return _DECODER.decode(data)


def stamped(command: Command, now_ms: int) -> Command:
    """With the clock of the leader that proposes it."""
    return msgspec.structs.replace(command, timestamp_ms=now_ms)
