"""Whole messages as values: for programs that produce and consume, not for the node's hot path (see sections.py).

A `Message` is plain data. Its body is bytes (one data section), a list of bytes (several), a `Value` (anything AMQP can
say) or a `Sequence`. Decoding any bytes ends in a Message or in MalformedMessage.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.amqp.encoding.codec import (
    encode_symbol_map,
    encode_value,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
)
from holdfast.amqp.errors import MalformedMessage, Unencodable
from holdfast.amqp.messages.delivery_annotations import DeliveryPrefix, PublisherPrefix
from holdfast.amqp.messages.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    AnnotationMap,
    Ingested,
    Section,
    annotated,
    annotations_without,
    decode_section,
    ingest,
    message_annotations,
    offset_text,
    skip_value,
    splice,
    split,
)

__all__ = [
    "AnnotationMap",
    "DeliveryPrefix",
    "Ingested",
    "Message",
    "PublisherPrefix",
    "Section",
    "Sequence",
    "Value",
    "annotated",
    "annotations_without",
    "decode_message",
    "encode_message",
    "ingest",
    "message_annotations",
    "offset_text",
    "skip_value",
    "splice",
    "split",
]

MessageId = int | str | bytes | uuid.UUID
"""An int is written as ulong, the only integer that AMQP allows here."""


@dataclass(frozen=True, slots=True)
class Value:
    """A body of one AMQP value (amqp-value section)."""

    value: Any


@dataclass(frozen=True, slots=True)
class Sequence:
    """A body of one amqp-sequence section."""

    values: list[Any]


@dataclass(slots=True)
class Message:
    """One AMQP message. Annotation maps have symbols as keys, application_properties strings; times are ms
    since 1970."""

    body: bytes | list[bytes] | Value | Sequence | None = b""
    application_properties: Mapping[str, Any] = field(default_factory=dict)
    message_annotations: Mapping[str, Any] = field(default_factory=dict)
    delivery_annotations: Mapping[str, Any] = field(default_factory=dict)
    footer: Mapping[str, Any] = field(default_factory=dict)
    message_id: MessageId | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: MessageId | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


_HEADER_FIELDS: tuple[tuple[str, type], ...] = (
    ("durable", bool),
    ("priority", ubyte),
    ("ttl", uint),
    ("first_acquirer", bool),
    ("delivery_count", uint),
)
_PROPERTY_FIELDS: tuple[tuple[str, type], ...] = (
    ("message_id", object),
    ("user_id", bytes),
    ("to", str),
    ("subject", str),
    ("reply_to", str),
    ("correlation_id", object),
    ("content_type", symbol),
    ("content_encoding", symbol),
    ("absolute_expiry_time", timestamp),
    ("creation_time", timestamp),
    ("group_id", str),
    ("group_sequence", uint),
    ("reply_to_group_id", str),
)
_ACCEPTED_TYPES: dict[type, type | tuple[type, ...]] = {
    bool: bool,
    ubyte: int,
    uint: int,
    timestamp: int,
    symbol: str,
    str: str,
    bytes: bytes,
    object: (int, str, bytes, uuid.UUID),
}


def _encode_fields(code: int, message: Message, fields: tuple[tuple[str, type], ...]) -> bytes:
    values: list[Any] = []
    for name, kind in fields:
        value = getattr(message, name)
        if value is not None:
            if not isinstance(value, _ACCEPTED_TYPES[kind]):
                raise Unencodable(f"{name} cannot be a {type(value).__name__}")
            try:
                value = ulong(value) if kind is object and isinstance(value, int) else value
                value = kind(value) if kind not in (object, bool) else value
            except AssertionError:
                raise Unencodable(f"{name} cannot be negative") from None
        values.append(value)
    while values and values[-1] is None:
        values.pop()
    return bytes((0, 0x53, code)) + encode_value(values) if values else b""


def _encode_data(body: bytes) -> bytes:
    size = len(body)
    if size < 256:
        return b"\x00Su\xa0" + bytes((size,)) + body
    return b"\x00Su\xb0" + size.to_bytes(4, "big") + body


def encode_message(message: Message) -> bytes:
    """The bytes of a message. Raises Unencodable for values that have no AMQP form."""
    parts = [_encode_fields(HEADER, message, _HEADER_FIELDS)]
    if message.delivery_annotations:
        parts.append(b"\x00Sq" + encode_symbol_map(message.delivery_annotations))
    if message.message_annotations:
        parts.append(b"\x00Sr" + encode_symbol_map(message.message_annotations))
    parts.append(_encode_fields(PROPERTIES, message, _PROPERTY_FIELDS))
    if message.application_properties:
        named = {str(key): value for key, value in message.application_properties.items()}
        parts.append(b"\x00St" + encode_value(named))
    body = message.body
    if isinstance(body, bytes):
        parts.append(_encode_data(body))
    elif isinstance(body, Value):
        parts.append(b"\x00Sw" + encode_value(body.value))
    elif isinstance(body, Sequence):
        parts.append(b"\x00Sv" + encode_value(body.values))
    elif isinstance(body, list) and all(isinstance(part, bytes) for part in body):
        parts.extend(_encode_data(part) for part in body)
    elif body is None:
        parts.append(b"\x00Sw\x40")
    else:
        raise Unencodable(f"a body cannot be a {type(body).__name__}: wrap it in Value or encode it to bytes")
    if message.footer:
        parts.append(b"\x00Sx" + encode_symbol_map(message.footer))
    return b"".join(parts)


def _read_fields(message: Message, values: Any, fields: tuple[tuple[str, type], ...]) -> None:
    if not isinstance(values, list) or len(values) > len(fields):
        raise MalformedMessage("a section has the wrong number of fields")
    for (name, kind), value in zip(fields, values, strict=False):
        if value is None:
            continue
        if not isinstance(value, _ACCEPTED_TYPES[kind]):
            raise MalformedMessage(f"field {name} holds a {type(value).__name__}")
        setattr(message, name, value)


_MAP_FIELDS = {
    DELIVERY_ANNOTATIONS: "delivery_annotations",
    MESSAGE_ANNOTATIONS: "message_annotations",
    APPLICATION_PROPERTIES: "application_properties",
    FOOTER: "footer",
}


def decode_message(payload: bytes) -> Message:
    """Reads a whole message. Raises MalformedMessage for anything that is not one."""
    message = Message(body=None)
    data: list[bytes] = []
    for section in split(payload):
        code = section.code
        if code == DATA:
            data.append(decode_section(payload, section))
            continue
        value = decode_section(payload, section)
        if code in _MAP_FIELDS:
            setattr(message, _MAP_FIELDS[code], value)
        elif code == PROPERTIES:
            _read_fields(message, value, _PROPERTY_FIELDS)
        elif code == HEADER:
            _read_fields(message, value, _HEADER_FIELDS)
        elif code == VALUE:
            message.body = Value(value)
        elif code == SEQUENCE:
            more = message.body.values if isinstance(message.body, Sequence) else []
            message.body = Sequence(more + value)
    if data:
        message.body = data[0] if len(data) == 1 else data
    return message
