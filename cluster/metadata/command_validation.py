"""Ranges and lengths of the values in a command of the metadata group, in its result, and in a checkpoint.

The problem: what is committed is applied on every node, kept in every checkpoint and counted with; protobuf gives
whatever 64 bits hold, and texts of any length. The rule: every integer has a range here, every text a length, and a
command is judged in each place where it enters: by the node that proposes it, by the leader that a peer asks, and by
the state machine, since an entry may come from another program. What a person may get wrong (how many partitions, how
long retention) is in range here, and refused by the state machine with a reason.

The test that goes over all descriptors fails when a field is added and not listed.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.types import COMPRESSIONS
from cluster.raft.replication.message_validation import ANY, COUNT, GROUP, NODE, SEQUENCE, Range, RangeTable

TIME_MS: Range = (0, 1 << 53)
"""Milliseconds since 1970: 285,000 years, and whole in every program's numbers."""

WISHED: Range = (-(1 << 63), (1 << 63) - 1)
"""A person's wish: the state machine says what is wrong with it."""

SIZE: Range = (0, 1 << 62)
"""Limits of retention, in milliseconds or bytes."""

BIRTH: Range = (1, 1 << 62)

METADATA_RANGES: dict[str, Range] = {
    "RegisterNode.node": NODE,
    "RegisterNode.incarnation": ANY,
    "RegisterNode.boot": SEQUENCE,
    "RegisterNode.marks": COUNT,
    "RegisterNode.cluster_id": ANY,
    "RegisterNode.oldest": COUNT,
    "RegisterNode.newest": COUNT,
    "AddNode.node": NODE,
    "LeaveNode.node": NODE,
    "StayNode.node": NODE,
    "RemoveNode.node": NODE,
    "Tombstone.node": NODE,
    "Tombstone.incarnations": ANY,
    "Node.birth": SEQUENCE,
    "Checkpoint.announced": NODE,
    "ActivateVersion.version": COUNT,
    "NodeStart.node": NODE,
    "NodeStart.incarnation": ANY,
    "NodeStart.boot": SEQUENCE,
    "SetRack.node": NODE,
    "ReadmitNode.node": NODE,
    "ReadmitNode.incarnation": ANY,
    "CreateLog.partitions": WISHED,
    "CreateLog.replicas": WISHED,
    "CreateLog.retention_ms": WISHED,
    "CreateLog.retention_bytes": WISHED,
    "CreateLog.now_ms": TIME_MS,
    "AlterLog.partitions": WISHED,
    "AlterLog.retention_ms": WISHED,
    "AlterLog.retention_bytes": WISHED,
    "AlterLog.replicas": WISHED,
    "AlterLog.away": NODE,
    "ScramKeys.iterations": COUNT,
    "Partition.group": GROUP,
    "Partition.replicas": NODE,
    "Partition.births": BIRTH,
    "Partition.founding": NODE,
    "Partition.configuration_version": SEQUENCE,
    "Partition.target": NODE,
    "Partition.plan": ANY,
    "Replica.node": NODE,
    "Replica.birth": BIRTH,
    "Move.id": BIRTH,
    "Move.version": SEQUENCE,
    "Move.plan": ANY,
    "Target.group": GROUP,
    "Target.version": SEQUENCE,
    "Target.replicas": NODE,
    "Reassign.plan": ANY,
    "CancelMoves.groups": GROUP,
    "FinishMove.group": GROUP,
    "FinishMove.move": BIRTH,
    "FinishMove.version": SEQUENCE,
    "StallMove.group": GROUP,
    "StallMove.move": BIRTH,
    "SetBalance.replace_after_s": WISHED,
    "SetBalance.disk_high": WISHED,
    "SetBalance.disk_low": WISHED,
    "SetBalance.disk_target": WISHED,
    "SetBalance.pace_bytes_per_s": WISHED,
    "Balance.replace_after_s": COUNT,
    "Balance.disk_high": COUNT,
    "Balance.disk_low": COUNT,
    "Balance.disk_target": COUNT,
    "Balance.pace_bytes_per_s": SEQUENCE,
    "Node.lost_below_birth": SEQUENCE,
    "Checkpoint.next_birth": SEQUENCE,
    "Log.id": SEQUENCE,
    "Log.replicas": COUNT,
    "Log.retention_ms": SIZE,
    "Log.retention_bytes": SIZE,
    "Log.created_ms": TIME_MS,
    "Node.node": NODE,
    "Node.incarnation": ANY,
    "Node.readmissions": COUNT,
    "Node.lost_below_group": GROUP,
    "Node.former_incarnations": ANY,
    "Node.boot": SEQUENCE,
    "Node.mark": COUNT,
    "Node.oldest": COUNT,
    "Node.newest": COUNT,
    "Checkpoint.version": COUNT,
    "Checkpoint.next_group": GROUP,
    "Checkpoint.next_log_id": SEQUENCE,
    "Checkpoint.cluster_id": ANY,
    "Checkpoint.active_version": COUNT,
}

METADATA = RangeTable(METADATA_RANGES)

MAX_REQUEST_ID_BYTES = 64
"""256 of them stand in each checkpoint; ours have 16."""

MAX_ADDRESS_CHARACTERS = 300
"""A host has 253, and there is a port."""

MAX_LISTENERS = 16
MAX_LISTENER_NAME_CHARACTERS = 200
MAX_MARKS = 1024
MAX_RACK_CHARACTERS = 63
MAX_BALANCE_CHARACTERS = 40

MAX_TARGETS = 20_000
"""Partitions of one reassignment: as many as a cluster has."""

MAX_AWAY = 64
"""Nodes that are named as away: more than a cluster has."""

MAX_REASON_CHARACTERS = 200


def command_fault(command: pb.Command) -> str | None:
    """Fault of a command that somebody asks for; None: it has none."""
    if is_of_later_version(command):
        return "this program does not know all of the command: install the same release on all nodes"
    return entry_fault(command)


def is_of_later_version(message: Message) -> bool:
    """Tell whether the message, or one in it, has a field that this program does not know."""
    if len(UnknownFieldSet(message)):
        return True
    for descriptor, value in message.ListFields():
        if descriptor.type == descriptor.TYPE_MESSAGE:
            parts = value if descriptor.is_repeated else (value,)
            if any(map(is_of_later_version, parts)):
                return True
    return False


def entry_fault(command: pb.Command) -> str | None:
    """Fault of a command that stands in the log; None: it has none."""
    if command.WhichOneof("command") is None:
        return "it asks for nothing"
    return METADATA.fault(command) or _first(_too_long(command))


def logs_fault(logs: Iterable[pb.Log]) -> str | None:
    """Name a log whose batches this program cannot compress as it should, and perhaps not read; or one whose replicas
    are not told apart."""
    for log in logs:
        if log.compression and log.compression not in COMPRESSIONS:
            return f"Log.compression of {log.name!r} is {log.compression[:40]!r}"
        for partition in log.partitions:
            if partition.births and len(partition.births) != len(partition.replicas):
                return f"Partition.births of group {partition.group} are not as many as its replicas"
    return None


def _too_long(command: pb.Command) -> Iterable[str]:
    if len(command.request_id) > MAX_REQUEST_ID_BYTES:
        yield f"Command.request_id has {len(command.request_id)} bytes, {MAX_REQUEST_ID_BYTES} at most"
    if len(command.set_balance.balance) > MAX_BALANCE_CHARACTERS:
        yield f"SetBalance.balance has more than {MAX_BALANCE_CHARACTERS} characters"
    if len(command.set_rack.rack) > MAX_RACK_CHARACTERS:
        yield f"SetRack.rack has more than {MAX_RACK_CHARACTERS} characters"
    if len(command.reassign.items) > MAX_TARGETS:
        yield f"Reassign.items are {len(command.reassign.items)}, {MAX_TARGETS} at most"
    if len(command.reassign.reason) > MAX_REASON_CHARACTERS:
        yield f"Reassign.reason has more than {MAX_REASON_CHARACTERS} characters"
    if len(command.alter_log.away) > MAX_AWAY:
        yield f"AlterLog.away are {len(command.alter_log.away)}, {MAX_AWAY} at most"
    if len(command.cancel_moves.groups) > MAX_TARGETS:
        yield f"CancelMoves.groups are {len(command.cancel_moves.groups)}, {MAX_TARGETS} at most"
    if command.WhichOneof("command") != "register_node":
        return
    node = command.register_node
    if len(node.listeners) > MAX_LISTENERS:
        yield f"RegisterNode.listeners are {len(node.listeners)}, {MAX_LISTENERS} at most"
    if len(node.marks) > MAX_MARKS:
        yield f"RegisterNode.marks are {len(node.marks)}, {MAX_MARKS} at most"
    if any(len(listener.name) > MAX_LISTENER_NAME_CHARACTERS for listener in node.listeners):
        yield f"a name of a listener has more than {MAX_LISTENER_NAME_CHARACTERS} characters"
    if any(len(address) > MAX_ADDRESS_CHARACTERS for address in (node.rpc_address, *_addresses(node))):
        yield f"an address has more than {MAX_ADDRESS_CHARACTERS} characters"


def _addresses(node: pb.RegisterNode) -> Iterable[str]:
    return (listener.address for listener in node.listeners)


def _first(faults: Iterable[str]) -> str | None:
    return next(iter(faults), None)
