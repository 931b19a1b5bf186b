"""Ranges of the integers in calls between nodes, beside those of Raft
(`cluster/raft/replication/message_validation.py`, which says why). A message outside of them is treated like bytes that
are no message at all: the call fails, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from cluster.raft.replication.message_validation import (
    ANY,
    COUNT,
    GROUP,
    INDEX,
    NODE,
    RAFT_RANGES,
    SEQUENCE,
    TERM,
    Range,
    RangeTable,
)

TIME_MS: Range = (-(1 << 63), (1 << 63) - 1)
"""Times of events, and times that readers look for: compared, never counted with."""
WISHED: Range = TIME_MS
"""A client's wish for its producer: the partition answers what is out of range, with a reason."""
MARK: Range = (0, (1 << 32) - 1)
PRODUCER: Range = (0, (1 << 63) - 1)
NUMBER: Range = (0, (1 << 31) - 1)
PLACE: Range = (-1, INDEX[1])
"""An offset, or that nobody remembers it."""

RPC_RANGES: dict[str, Range] = {
    "Hello.node": NODE,
    "Hello.dialled": NODE,
    "Hello.oldest": COUNT,
    "Hello.newest": COUNT,
    "Hello.protocol": COUNT,
    "Hello.incarnation": ANY,
    "Hello.expected": ANY,
    "Hello.members": NODE,
    "Hello.boot": SEQUENCE,
    "Hello.marks": MARK,
    "Hello.cluster_id": ANY,
    "LeaderHints.groups": GROUP,
    "LeaderHints.terms": TERM,
    "LeaderHints.leaders": NODE,
    "ActiveVersion.version": COUNT,
    "Clock.wall_ms": (0, 1 << 53),
    "StreamEnd.code": COUNT,
    "Failure.leader": NODE,
    "Failure.known": COUNT,
    "Failure.entry_index": INDEX,
    "Failure.entry_term": TERM,
    "AppendRequest.id": SEQUENCE,
    "AppendRequest.begins_for": GROUP,
    "AppendRequest.timeout_ms": NUMBER,
    "AppendFrame.group": GROUP,
    "AppendReply.id": SEQUENCE,
    "AppendReply.base_offset": PLACE,
    "AppendReply.timestamp_ms": TIME_MS,
    "AppendReply.duplicates": COUNT,
    "Row.records": COUNT,
    "Row.base_offset": PLACE,
    "ReadOpen.group": GROUP,
    "ReadOpen.after_offset": INDEX,
    "ReadOpen.after_time_ms": TIME_MS,
    "ReadOpen.window_bytes": INDEX,
    "ReadOpen.owner_claim": ANY,
    "ReadOpen.from_offset": INDEX,
    "ReadRequest.credit_bytes": INDEX,
    "ReadReply.next_offset": INDEX,
    "InfoRequest.group": GROUP,
    "InfoReply.earliest_offset": INDEX,
    "InfoReply.latest_offset": INDEX,
    "InfoReply.next_offset": INDEX,
    "InfoReply.events": INDEX,
    "InfoReply.bytes": INDEX,
    "InfoReply.leader": NODE,
    "InfoReply.replicas": NODE,
    "InfoReply.last_timestamp_ms": TIME_MS,
    "InfoReply.stable_offset": INDEX,
    "InfoReply.open_transactions": COUNT,
    "InfoReply.aborted_transactions": COUNT,
    "OpenProducerRequest.group": GROUP,
    "OpenProducerRequest.producer_id": WISHED,
    "OpenProducerRequest.epoch": WISHED,
    "OpenProducerRequest.last_sequence": WISHED,
    "OpenProducerReply.producer_id": PRODUCER,
    "OpenProducerReply.epoch": NUMBER,
    "OpenProducerReply.last_sequence": NUMBER,
    "ProducersRequest.group": GROUP,
    "ProducersRequest.after": WISHED,
    "ProducersRequest.limit": COUNT,
    "ProducerInfo.producer_id": PRODUCER,
    "ProducerInfo.epoch": NUMBER,
    "ProducerInfo.last_sequence": NUMBER,
    "ProducerInfo.last_offset": INDEX,
    "ProducerInfo.last_active_ms": TIME_MS,
    "ProducerInfo.remembered": COUNT,
    "GroupRequest.group": GROUP,
    "ConfirmReply.index": INDEX,
    "ReplicasRequest.groups": GROUP,
    "ReplicaState.group": GROUP,
    "ReplicaState.applied": INDEX,
    "ReplicaState.last": INDEX,
    "ReplicaState.fetch_first": INDEX,
    "ReplicaState.fetch_next": INDEX,
    "ReplicaState.fetch_last": INDEX,
    "ReplicaState.received_bytes": INDEX,
    "ReplicaState.refused_pieces": SEQUENCE,
    "ReplicaState.move_entries": SEQUENCE,
    "ReplicaState.move_entries_left": SEQUENCE,
    "ReplicaState.move_bytes_left": SEQUENCE,
    "ReportReply.capacity_bytes": INDEX,
    "ReportReply.used_bytes": INDEX,
    "ReportReply.garbage_bytes": INDEX,
    "ReportReply.groups": GROUP,
    "ReportReply.sizes": INDEX,
    "HandOverRequest.successors": NODE,
    "AwaitedMove.group": GROUP,
    "AwaitedMove.index": INDEX,
    "AwaitedMove.leaving": NODE,
    "HandOverReply.groups": GROUP,
    "CallersReply.accepted": NODE,
    "CallersReply.refused": NODE,
    "JoinReply.cluster_id": ANY,
    "NodeAddress.node": NODE,
}

RPC = RangeTable({**RAFT_RANGES, **RPC_RANGES})


class OutOfRange(DecodeError):
    """The bytes are a message, but hold a value that cannot be."""


def parsed(kind: Any, data: bytes) -> Any:
    """Parse and check a message. Raises DecodeError."""
    message = kind.FromString(data)
    fault = RPC.fault(message)
    if fault is not None:
        raise OutOfRange(fault)
    return message


def parser(kind: Any) -> Callable[[bytes], Any]:
    return lambda data: parsed(kind, data)
