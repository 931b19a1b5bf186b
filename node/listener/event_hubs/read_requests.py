"""READ of a hub and of a partition by `$management`, as SDKs of Event Hubs ask.

Rule never broken: each value has the very type that the SDKs expect: some take an array for a list, a long for an int,
and no other. A request that can be read gets one answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import protocol
from holdfast.amqp import Message, Value, encode_message, int32, symbol, timestamp
from holdfast.amqp.encoding.codec import string_array
from holdfast.amqp.errors import Error
from node.listener.broker_interface import Broker
from node.listener.errors import Refused
from node.listener.event_hubs import hub_errors
from node.listener.event_hubs.addresses import HubAddress
from node.listener.event_hubs.hub_plan import find_hub
from node.partition.api import PartitionDescription
from node.security.authorisation import Need
from node.security.connection_identity import Visitor

HUB, PARTITION = "com.microsoft:eventhub", "com.microsoft:partition"

NO_REPLICATION = -1
"""Epoch of sequence numbers where no other region has a copy. The Rust SDK takes no answer without it."""

STATUS = {protocol.ARGUMENT_OUT_OF_RANGE: 400, "amqp:not-found": 404, "amqp:unauthorized-access": 401}
"""Status codes of errors. All others are 500."""


def is_read(message: Message) -> bool:
    said = message.application_properties
    return said.get(protocol.TYPE) in (HUB, PARTITION) and said.get(protocol.OPERATION) == "READ"


async def answer_read(message: Message, broker: Broker, visitor: Visitor) -> bytes:
    """Answer a READ."""
    said = message.application_properties
    correlation = message.message_id if message.message_id is not None else message.correlation_id
    name, partition = str(said.get(protocol.NAME) or ""), said.get("partition")
    wants_partition = said.get(protocol.TYPE) == PARTITION
    address = HubAddress(name, None, str(partition) if wants_partition else None)
    try:
        if not visitor.may(Need("describe", "log", name)):
            raise Refused(hub_errors.unauthorized("Send, Listen, Manage", name))
        body = await (_partition(address, broker) if wants_partition else _hub(address, broker))
    except Refused as refusal:
        return _failure(correlation, STATUS.get(refusal.error.condition, 500), refusal.error)
    except (ConnectionError, LookupError, TimeoutError) as problem:
        text = f"The service was unable to process the request; please retry the operation. ({problem})"
        return _failure(correlation, 503, Error("com.microsoft:server-busy", text))
    properties = {protocol.STATUS_CODE: int32(200), protocol.STATUS_DESCRIPTION: "OK"}
    return encode_message(
        Message(correlation_id=correlation, application_properties=properties, body=Value(dict(body)))
    )


def _failure(correlation: Any, status: int, error: Error) -> bytes:
    properties = {
        protocol.STATUS_CODE: int32(status),
        protocol.STATUS_DESCRIPTION: error.description or "",
        "error-condition": symbol(error.condition),
    }
    return encode_message(Message(correlation_id=correlation, application_properties=properties, body=Value(None)))


async def _hub(address: HubAddress, broker: Broker) -> Mapping[str, Any]:
    await _known(address, broker)
    view = broker.describe(address.hub)
    if view is None:
        raise Refused(hub_errors.hub_not_found(address.hub))
    return {
        "name": address.hub,
        "type": HUB,
        "created_at": timestamp(view.created_ms),
        "partition_count": int32(len(view.partitions)),
        "partition_ids": string_array(view.partitions),
        "georeplication_factor": int32(1),
    }


async def _partition(address: HubAddress, broker: Broker) -> Mapping[str, Any]:
    await _known(address, broker)
    assert address.partition is not None
    info = await broker.handle(address.hub, address.partition).info()
    last = info.stable_offset - 1
    return {
        "name": address.hub,
        "type": PARTITION,
        "partition": address.partition,
        "begin_sequence_number": _first(info),
        "last_enqueued_sequence_number": last,
        "last_enqueued_offset": str(last),
        "last_enqueued_time_utc": timestamp(info.last_timestamp_ms or 0),
        "last_enqueued_sequence_number_epoch": int32(NO_REPLICATION),
        "is_partition_empty": info.earliest_offset is None or info.earliest_offset > last,
    }


def _first(info: PartitionDescription) -> int:
    if info.earliest_offset is not None:
        return info.earliest_offset
    return info.next_offset if info.next_offset else -1


async def _known(address: HubAddress, broker: Broker) -> None:
    """Raise Refused if the hub or partition is not there, after this node has heard the latest."""
    try:
        find_hub(address, broker)
    except Refused:
        if not await broker.current():
            raise ConnectionError("this node hears no majority of the nodes") from None
        find_hub(address, broker)
