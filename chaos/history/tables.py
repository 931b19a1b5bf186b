"""The tables of a history, each a kind of row. Times are nanoseconds of one monotonic clock."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

OK, FAIL, INFO = "ok", "fail", "info"
COMMITTED, UNCOMMITTED = "committed", "uncommitted"
READ, WRITE = "read", "write"
INITIAL = 0
"""The value of a register that nobody has written."""
LEADER_OF = "leader of "
"""Registers of this name, followed by a partition: nobody writes them but by leading."""


class OpRow(NamedTuple):
    """One call of one process. `f`: produce, poll, drain, commit, latest, txn-commit, txn-abort, alter, describe."""

    op_id: int
    process: str
    node: int | None  # that was asked, where it was one certain node
    f: str
    type: str
    t_inv_ns: int
    t_end_ns: int | None  # None: it was under way when the run ended
    error: str | None
    term: int | None
    deadline_ns: int | None = None  # by when it had promised to end


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
    """A position that a member of a group had committed; `txn`: under that transaction."""

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
    """One event as it lies in the store of one node, read after the node was stopped."""

    node: int
    partition: int
    offset: int
    term: int
    msg_id: str
    crc: int


class FaultRow(NamedTuple):
    """One thing that was done to the cluster. `leaves_majority`: by its nature, whoever was struck."""

    id: str
    kind: str
    target: str
    t_injecting_ns: int
    t_injected_ns: int | None  # None: it could not be done
    t_healing_ns: int | None
    t_healed_ns: int | None
    leaves_majority: bool = True


class TransactionRow(NamedTuple):
    """`decision`: what its process asked for. `outcome` ok: that is what was done; fail: the opposite; info: nobody
    knows. `op_id`: the call that decided."""

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
    """How far a partition reaches, as a node said that a majority has confirmed. Offsets are of the next event."""

    op_id: int
    process: str
    partition: int
    earliest: int
    latest: int
    stable: int | None


class LeaderRow(NamedTuple):
    """A node said in its log that it leads. `partition` None: of the metadata or of a coordinator."""

    group_id: int
    partition: int | None
    term: int
    node: int
    t_ns: int


class ComplaintRow(NamedTuple):
    """A node ended by itself, or wrote of a bug of its own to its log."""

    node: int
    t_ns: int
    text: str


class RegisterRow(NamedTuple):
    """A small thing that the cluster says of itself, as one call has written or read it. Each write has a value of its
    own. The times are those of the call: whoever judges registers needs no other table of calls."""

    op_id: int
    register: str
    f: str  # read, write
    value: int | None
    type: str
    t_inv_ns: int
    t_end_ns: int | None


class RegistrationRow(NamedTuple):
    """A node as one look into ZooKeeper has found it. `token`: of its data directory; `rpc`: where it says that other
    nodes reach it."""

    look: int
    t_ns: int
    node: int
    session: int
    token: str
    rpc: str


class MomentRow(NamedTuple):
    """Something rare that a run hopes for happened, so often."""

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
