"""Conversion between the values of `types.py` and their protobuf forms. Checkpoints are sorted and deterministic: equal
states are equal bytes, so replicas can be compared, and a checkpoint of a restored state is the one it was restored
from."""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

from google.protobuf.message import DecodeError

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.command_validation import METADATA, logs_fault
from cluster.metadata.moves import note_moving
from cluster.metadata.planning.settings import settings_from_pb, settings_to_pb
from cluster.metadata.shared_access_rules import rule_from_pb, rule_to_pb
from cluster.metadata.state import MetadataState
from cluster.metadata.types import (
    FIRST_BIRTH,
    UNCOMPRESSED,
    BalanceSettings,
    Code,
    CommandResult,
    ListenerAddress,
    LogRecord,
    MoveRecord,
    NodeRecord,
    Ok,
    PartitionRecord,
    Refusal,
)
from cluster.metadata.users_and_grants import AccessState, grant_from_pb, grant_to_pb, user_from_pb, user_to_pb
from cluster.raft.membership.configuration import FOUNDING_BIRTH, FOUNDING_VERSION, Replica
from cluster.stale_copy_detection import KnownStart
from cluster.versions import UNSET, Layouts, VersionRange

CHECKPOINT_VERSION = 7
CHECKPOINTS = Layouts({14: 6, 15: CHECKPOINT_VERSION})


class CheckpointUnreadable(ValueError):
    """The checkpoint is of another version, or damaged. The node must not start with an empty memory of the cluster."""


def log_to_pb(log: LogRecord) -> pb.Log:
    return pb.Log(
        name=log.name,
        id=log.id,
        replicas=log.replicas,
        retention_ms=log.retention_ms or 0,
        retention_bytes=log.retention_bytes or 0,
        created_ms=log.created_ms,
        partitions=[_partition_to_pb(partition) for partition in log.partitions],
        compression="" if log.compression == UNCOMPRESSED else log.compression,
    )


def log_from_pb(log: pb.Log) -> LogRecord:
    return LogRecord(
        name=log.name,
        id=log.id,
        replicas=log.replicas,
        retention_ms=log.retention_ms or None,
        retention_bytes=log.retention_bytes or None,
        created_ms=log.created_ms,
        partitions=tuple(_partition_from_pb(str(number), one) for number, one in enumerate(log.partitions)),
        compression=log.compression or UNCOMPRESSED,
    )


def _partition_to_pb(record: PartitionRecord) -> pb.Partition:
    version, move = record.configuration_version, record.move
    return pb.Partition(
        group=record.group,
        replicas=record.replicas,
        births=record.births,
        founding=record.founding,
        configuration_version=version if version != FOUNDING_VERSION else 0,
        target=record.target,
        move=None if move is None else _move_to_pb(move),
        reason=record.reason,
        plan=record.plan,
    )


def _partition_from_pb(name: str, record: pb.Partition) -> PartitionRecord:
    return PartitionRecord(
        name,
        record.group,
        tuple(record.replicas),
        tuple(record.births),
        tuple(record.founding),
        record.configuration_version or FOUNDING_VERSION,
        tuple(record.target),
        _move_from_pb(record.move) if record.HasField("move") else None,
        record.reason,
        record.plan,
    )


def _move_to_pb(move: MoveRecord) -> pb.Move:
    return pb.Move(
        id=move.id,
        version=move.version,
        add=None if move.add is None else pb.Replica(node=move.add.node, birth=move.add.birth),
        remove=None if move.remove is None else pb.Replica(node=move.remove.node, birth=move.remove.birth),
        cancel_asked=move.cancel_asked,
        stalled=move.stalled,
        reason=move.reason,
        plan=move.plan,
    )


def _move_from_pb(move: pb.Move) -> MoveRecord:
    return MoveRecord(
        move.id,
        move.version,
        Replica(move.add.node, move.add.birth) if move.HasField("add") else None,
        Replica(move.remove.node, move.remove.birth) if move.HasField("remove") else None,
        move.cancel_asked,
        move.stalled,
        move.reason,
        move.plan,
    )


def encode_result(result: CommandResult) -> bytes:
    if isinstance(result, Refusal):
        return pb.Result(code=result.code, message=result.message).SerializeToString()
    return pb.Result(log=None if result.log is None else log_to_pb(result.log)).SerializeToString()


def decode_result(data: bytes) -> CommandResult:
    """Decode a result. Raises DecodeError if it is none, or holds a value that cannot be."""
    result = pb.Result.FromString(data)
    fault = METADATA.fault(result) or logs_fault([result.log])
    if fault is not None:
        raise DecodeError(fault)
    if result.code:
        return Refusal(cast(Code, result.code), result.message)
    return Ok(log_from_pb(result.log) if result.HasField("log") else None)


def encode_checkpoint(state: MetadataState, version: int = UNSET) -> bytes:
    """Encode a checkpoint in the layout of a version."""
    checkpoint = pb.Checkpoint(
        version=CHECKPOINTS.at(version),
        next_group=state.next_group,
        next_log_id=state.next_log_id,
        nodes=[
            pb.Node(
                node=node.node,
                rpc_address=node.rpc_address,
                listeners=[pb.Listener(name=item.name, address=item.address) for item in node.listeners],
                incarnation=node.incarnation,
                readmissions=node.readmissions,
                lost_below_group=node.lost_below_group,
                former_incarnations=node.former_incarnations,
                boot=node.start.boot,
                mark=node.start.mark,
                oldest=node.versions.oldest,
                newest=node.versions.newest,
                rack=node.rack,
                lost_below_birth=node.lost_below_birth,
                leaving=node.state == "leaving",
                birth=node.birth if node.birth != FOUNDING_BIRTH else 0,
            )
            for _, node in sorted(state.nodes.items())
        ],
        logs=[log_to_pb(log) for _, log in sorted(state.logs.items())],
        remembered=[
            pb.Remembered(
                request_id=request_id,
                code=rejected.code if rejected else "",
                message=rejected.message if rejected else "",
                log=log,
            )
            for request_id, (rejected, log) in state.remembered.items()
        ],
        users=[user_to_pb(user) for _, user in sorted(state.access.users.items())],
        grants=[grant_to_pb(grant) for grant in sorted(state.access.grants)],
        access_secret=state.access.secret,
        rules=[rule_to_pb(rule) for _, rule in sorted(state.access.rules.items())],
        cluster_id=state.cluster_id,
        active_version=state.active_version,
        announced=sorted(state.announced),
        tombstones=[pb.Tombstone(node=node, incarnations=known) for node, known in sorted(state.tombstones.items())],
        next_birth=state.next_birth if state.next_birth != FIRST_BIRTH else 0,
        balance=settings_to_pb(state.balance),
    )
    return checkpoint.SerializeToString(deterministic=True)


def decode_checkpoint(data: bytes) -> MetadataState:
    checkpoint = pb.Checkpoint.FromString(data)
    if checkpoint.version not in CHECKPOINTS:
        raise CheckpointUnreadable(
            f"metadata checkpoint of version {checkpoint.version}; this program reads {CHECKPOINTS}: "
            "start the version that wrote it"
        )
    fault = METADATA.fault(checkpoint) or logs_fault(checkpoint.logs)
    if fault is not None:
        raise CheckpointUnreadable(f"the metadata checkpoint says what cannot be: {fault}")
    state = MetadataState(
        next_group=checkpoint.next_group,
        next_log_id=checkpoint.next_log_id,
        nodes={
            node.node: NodeRecord(
                node.node,
                node.rpc_address,
                tuple(ListenerAddress(item.name, item.address) for item in node.listeners),
                node.incarnation,
                node.readmissions,
                node.lost_below_group,
                tuple(node.former_incarnations),
                KnownStart(node.boot, node.mark),
                VersionRange(node.oldest, node.newest),
                node.rack,
                node.lost_below_birth,
                "leaving" if node.leaving else "active",
                node.birth or FOUNDING_BIRTH,
            )
            for node in checkpoint.nodes
        },
        logs={log.name: log_from_pb(log) for log in checkpoint.logs},
        remembered=OrderedDict(
            (item.request_id, (Refusal(cast(Code, item.code), item.message) if item.code else None, item.log))
            for item in checkpoint.remembered
        ),
        access=AccessState(
            users={user.name: user_from_pb(user) for user in checkpoint.users},
            grants={grant_from_pb(grant): None for grant in checkpoint.grants},
            rules={rule.name: rule_from_pb(rule) for rule in checkpoint.rules},
            secret=checkpoint.access_secret,
        ),
        cluster_id=checkpoint.cluster_id,
        active_version=checkpoint.active_version,
        next_birth=checkpoint.next_birth or FIRST_BIRTH,
        announced=dict.fromkeys(checkpoint.announced),
        tombstones={one.node: tuple(one.incarnations) for one in checkpoint.tombstones},
        balance=settings_from_pb(checkpoint.balance) if checkpoint.HasField("balance") else BalanceSettings(),
    )
    for log in state.logs.values():
        for partition in log.partitions:
            note_moving(state, log.name, partition)
    return state
