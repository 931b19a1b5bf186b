"""Commands in the log of a coordinator, and their answers.

The rules are in `state_machine.py`. `timestamp_ms` is the clock of the leader that proposes; a transaction is (producer
id, epoch) of a transactional id.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from node.transaction_coordinator.transaction_groups.group_commands import (
    GroupCommand,
    GroupDecided,
    Joined,
    Prepared,
    WriterForgotten,
    WriterOpened,
)

MAX_ID_CHARACTERS = 256
"""Characters of a transactional id: it is written with each of its commands."""

MAX_HOLDER_CHARACTERS = 64
"""Characters of the name that a holder of an id may draw."""


class NodeStart(msgspec.Struct, frozen=True, array_like=True):
    """Start of a node. `boot`: the number of starts on the data of this incarnation."""

    node: int
    incarnation: int
    boot: int


class Register(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=51):
    """Register a holder of the transactional id; earlier ones are fenced (Kafka's InitProducerId). `holder`: a name
    that the client draws once; repeating it is no second registration, until the pair is used."""

    transactional_id: str
    holder: str
    timeout_ms: int
    timestamp_ms: int = 0
    lost: tuple[int, int] | None = None  # the holder's transaction that ended without it: it asks for the next pair
    succeeds: str = ""  # only if no other holder has had the id since this one: it comes back under a new name
    at: NodeStart | None = None  # start of the node that holds the id; when that is gone, its open transactions abort


class AddPartitions(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=52):
    """Add the partitions of these Raft groups, before the transaction writes there or stages offsets. The first command
    begins the transaction, and its time."""

    transactional_id: str
    producer_id: int
    epoch: int
    groups: list[int]
    timestamp_ms: int = 0


class EndTransaction(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=53):
    """Decide the transaction. Idempotent: an existing decision is returned unchanged."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    timestamp_ms: int = 0
    by_operator: bool = False


class Complete(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=54):
    """Note that every partition of the transaction has its marker."""

    transactional_id: str
    producer_id: int
    epoch: int
    timestamp_ms: int = 0


class Expire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=55):
    """Abort the transaction if it is still open and its time is over. `gone`: abort it whatever its time, if it is held
    at this start of a node, which a majority takes for gone."""

    transactional_id: str
    producer_id: int
    epoch: int
    timestamp_ms: int = 0
    gone: NodeStart | None = None


class FenceTransaction(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=60):
    """End a transaction that has not begun here, before it begins late: a partition has waited for its end for longer
    than its time, or the start of the node that holds it is `gone`."""

    transactional_id: str
    producer_id: int
    epoch: int
    timestamp_ms: int = 0
    gone: NodeStart | None = None


class ForgetIdle(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=56):
    """Forget the ids that were idle too long."""

    timestamp_ms: int = 0


Command = Register | AddPartitions | EndTransaction | Complete | Expire | FenceTransaction | ForgetIdle | GroupCommand

# ---------------------------------------------------------------- answers

How = Literal["client", "timeout", "fenced", "operator", "lease", "group", "node"]
"""Reason why a transaction ended: its client said so, its time was over, another holder came, an operator ended it,
or its client's node was gone; for a member of a group also: its client fell silent, or the group was committed
without it."""


class LastEnd(msgspec.Struct, frozen=True, array_like=True):
    """End of the transaction before the present one."""

    producer_id: int
    epoch: int
    committed: bool
    how: How


class Registered(msgspec.Struct, frozen=True, array_like=True, tag=61):
    """Grant of the pair (`producer_id`, `epoch`) for the id's next transaction."""

    producer_id: int
    epoch: int
    timeout_ms: int
    last: LastEnd | None = None


class Added(msgspec.Struct, frozen=True, array_like=True, tag=62):
    """Success of `AddPartitions`: the transaction may begin there. `timeout_ms`: its time, from its first partition
    on."""

    timeout_ms: int


class Decided(msgspec.Struct, frozen=True, array_like=True, tag=63):
    """Final decision of a transaction. `complete`: every partition has its marker, and (`producer_id`, `epoch`) is the
    next transaction. An earlier holder gets its own pair again, which is over."""

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
    "forgotten",  # it has ended long ago, and its outcome is not known any more
    "invalid",
    "too-many",
    "in-use",  # of a writer of groups: it has a batch open
    "not-prepared",  # of a group: a winner is not, and nothing was decided
    "another-query",  # of a group: its batch would be taken for done, and is another query's
]


class Declined(msgspec.Struct, frozen=True, array_like=True, tag=64):
    """Refusal of a command: nothing was done."""

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
    """Decode a command. Raises msgspec.DecodeError, a ValueError."""
    return _DECODER.decode(data)


def stamped(command: Command, now_ms: int) -> Command:
    """The command with the clock of the leader that proposes it."""
    return msgspec.structs.replace(command, timestamp_ms=now_ms)
