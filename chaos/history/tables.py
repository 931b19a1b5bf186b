"""Tables of a history, each with its own type of row. Times are nanoseconds of one monotonic clock."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

OK, FAIL, INFO = "ok", "fail", "info"
COMMITTED, UNCOMMITTED = "committed", "uncommitted"
READ, WRITE = "read", "write"
INITIAL = 0
"""Value of a register before its first write."""
LEADER_OF = "leader of "
"""Prefix of registers that name the leader of a partition; no call writes them."""


class OpRow(NamedTuple):
    """One call of one process. `f`: produce, poll, drain, commit, latest, txn-commit, txn-abort, alter, describe."""

    op_id: int
    process: str
    node: int | None  # the node that was asked, if the call went to a certain one
    f: str
    type: str
    t_inv_ns: int
    t_end_ns: int | None  # None: it was under way when the run ended
    error: str | None
    term: int | None
    deadline_ns: int | None = None  # the time by which the call promised to end


class SendRow(NamedTuple):
    """One value that a call sent. A value that is sent again has a row for each attempt."""

    op_id: int
    msg_id: str
    partition: int
    producer: str
    epoch: int | None
    seq: int | None
    txn: str | None
    outcome: str
    offset: int | None


class ReadRow(NamedTuple):
    """One value that a call returned. `pos` counts within a session, which is one connection's worth of reading."""

    op_id: int
    msg_id: str
    crc_ok: bool
    partition: int
    offset: int
    reader: str
    session: int
    group: str | None
    generation: int | None
    isolation: str
    pos: int
    node: int | None


class CommitRow(NamedTuple):
    """A position that a member of a group committed, in the transaction `txn` if it is set."""

    op_id: int
    group: str
    member: str
    generation: int
    partition: int
    offset: int
    txn: str | None = None


class OwnerRow(NamedTuple):
    """A claim on a partition. `t_close_ns` None: to the end of the run."""

    group: str
    partition: int
    member: str
    generation: int
    t_open_ns: int
    t_close_ns: int | None


class ReplicaDumpRow(NamedTuple):
    """One event in the store of one node, read after the node was stopped."""

    node: int
    partition: int
    offset: int
    term: int
    msg_id: str
    crc: int


class FaultRow(NamedTuple):
    """One fault of the cluster. `leaves_majority`: this kind of fault always leaves a majority of nodes alive."""

    id: str
    kind: str
    target: str
    t_injecting_ns: int
    t_injected_ns: int | None  # None: the fault could not strike
    t_healing_ns: int | None
    t_healed_ns: int | None
    leaves_majority: bool = True


class TransactionRow(NamedTuple):
    """One transaction. `decision`: what its process asked for. `op_id`: the call that asked.

    `outcome`: ok if the cluster did that, fail if it did the opposite, info if the outcome is unknown."""

    txn: str
    process: str
    op_id: int
    decision: str  # commit, abort
    outcome: str
    t_begin_ns: int


class InputRow(NamedTuple):
    """A value that a transaction took from a log, and the value that it made of it."""

    txn: str
    msg_id: str
    source_partition: int
    source_offset: int
    source_msg_id: str


class WatermarkRow(NamedTuple):
    """The begin and the ends of a partition, as a node reported them after a majority had confirmed it.

    `latest` and `stable` are the offsets of the next event."""

    op_id: int
    process: str
    partition: int
    earliest: int
    latest: int
    stable: int | None


class LeaderRow(NamedTuple):
    """Begin of a leadership, from a node's log. `partition` None: the group of the metadata or of a coordinator."""

    group_id: int
    partition: int | None
    term: int
    node: int
    t_ns: int


class ComplaintRow(NamedTuple):
    """A failure of a node that no fault explains: it ended by itself, or logged a bug."""

    node: int
    t_ns: int
    text: str


class RegisterRow(NamedTuple):
    """One write or read of a setting that the cluster reports. Each write has a value of its own.

    The row repeats the times of the call, so that the checker of registers needs no other table."""

    op_id: int
    register: str
    f: str  # read, write
    value: int | None
    type: str
    t_inv_ns: int
    t_end_ns: int | None


class RegistrationRow(NamedTuple):
    """Registration of a node, as one look into ZooKeeper found it.

    `token`: identity of its data directory; `rpc`: its address for other nodes."""

    look: int
    t_ns: int
    node: int
    session: int
    token: str
    rpc: str


class MomentRow(NamedTuple):
    """Count of a rare moment that a run hopes for."""

    name: str
    times: int


TABLES: Final[dict[str, type[tuple[Any, ...]]]] = {
    "ops": OpRow,
    "sends": SendRow,
    "reads": ReadRow,
    "commits": CommitRow,
    "owners": OwnerRow,
    "replica_dump": ReplicaDumpRow,
    "faults": FaultRow,
    "transactions": TransactionRow,
    "inputs": InputRow,
    "watermarks": WatermarkRow,
    "leaders": LeaderRow,
    "complaints": ComplaintRow,
    "moments": MomentRow,
    "registrations": RegistrationRow,
    "registers": RegisterRow,
}
ADDED_LATER: Final = frozenset({"registrations", "registers"})
"""Tables that histories of earlier versions do not have."""
