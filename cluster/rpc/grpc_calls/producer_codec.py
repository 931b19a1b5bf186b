"""Idempotent producers, and failures, on the wire: the node's words to messages and back, both sides in one place.

The rule: a message that is well formed makes a value; whether it makes sense is the partition's to say.
"""

from __future__ import annotations

from typing import Any

from cluster.rpc import rpc_pb2 as pb
from cluster.rpc.api import PartitionTypes


def failure_field(kind: str, retriable: bool, detail: str, leader: int | None = None) -> pb.Failure:
    return pb.Failure(kind=kind, retriable=retriable, detail=detail, leader=leader or 0)


def failure_of(failed: Any) -> pb.Failure:
    index, term = failed.entry or (0, 0)
    return pb.Failure(
        kind=failed.kind,
        retriable=failed.retriable,
        detail=failed.detail,
        leader=failed.leader or 0,
        known=failed.known,
        entry_index=index,
        entry_term=term,
    )


def failed(failure: pb.Failure, types: PartitionTypes) -> Any:
    entry = (failure.entry_index, failure.entry_term) if failure.entry_index else None
    return types.Failed(failure.kind, failure.retriable, failure.detail, failure.leader or None, failure.known, entry)


def open_request(group: int, wish: Any) -> pb.OpenProducerRequest:
    return pb.OpenProducerRequest(
        group=group,
        producer_id=wish.producer_id,
        epoch=wish.epoch,
        last_sequence=wish.last_sequence,
        renews=wish.renews,
    )


def producer_request_from(request: pb.OpenProducerRequest, types: PartitionTypes) -> Any:
    stated = [
        getattr(request, name) if request.HasField(name) else None for name in ("producer_id", "epoch", "last_sequence")
    ]
    return types.ProducerRequest(*stated, request.renews)


def opened_reply(opened: Any) -> pb.OpenProducerReply:
    return pb.OpenProducerReply(producer_id=opened.producer_id, epoch=opened.epoch, last_sequence=opened.last_sequence)


def opened(reply: pb.OpenProducerReply, types: PartitionTypes) -> Any:
    return types.ProducerOpened(reply.producer_id, reply.epoch, reply.last_sequence)


def info_field(info: Any) -> pb.ProducerInfo:
    return pb.ProducerInfo(
        producer_id=info.producer_id,
        epoch=info.epoch,
        last_sequence=info.last_sequence,
        last_offset=info.last_offset,
        last_active_ms=info.last_active_ms,
        remembered=info.remembered,
    )


def info_of(field: pb.ProducerInfo, types: PartitionTypes) -> Any:
    return types.ProducerInfo(
        producer_id=field.producer_id,
        epoch=field.epoch,
        last_sequence=field.last_sequence if field.HasField("last_sequence") else None,
        last_offset=field.last_offset if field.HasField("last_offset") else None,
        last_active_ms=field.last_active_ms,
        remembered=field.remembered,
    )
