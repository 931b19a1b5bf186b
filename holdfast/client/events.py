"""Events as a program sees them, and the bytes they travel as.

Problem: a full AMQP encoder or decoder costs more per event than everything else a client does with it.
Rule never broken: what is written here is a plain AMQP 1.0 message that any client can read, and what any client
wrote can be read here; the short cuts below are taken only where the bytes show that they apply, everything else goes
through the codec.
Rejected: an envelope of our own inside the body: other AMQP clients would see gibberish.

An event with a body and perhaps a key is the common case: message-annotations with `event-streams-group-key` (left
out without a key), then one data section. Application properties and the rest go through `holdfast.amqp.messages`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from holdfast import protocol
from holdfast.amqp.encoding.codec import decode_value
from holdfast.amqp.errors import MalformedMessage, Unencodable
from holdfast.amqp.messages.data_section import data_head as data_head
from holdfast.amqp.messages.message import (
    Message,
    Value,
    decode_message,
    encode_message,
)
from holdfast.amqp.messages.message_validation import check_message, ends_in_data
from holdfast.amqp.messages.sections import delivery_annotations_at
from holdfast.client.errors import ConfigurationError, DamagedEventError, ProtocolError

# Keys whose encoded annotation is remembered: a hit saves 1 us; 64 Ki entries are about 10 MiB.
KEY_CACHE_SIZE = 1 << 16
MAX_KEY_BYTES = 1024  # a key names a thing; more is a body in the wrong place

_ANNOTATIONS = b"\x00\x53\x72"
# A map's count of 2 (one pair), then the pair's name: what follows the size in an annotations section of ours.
_KEY_NAME = (
    b"\x00\x00\x00\x02\xa3" + bytes((len(protocol.ANNOTATION_GROUP_KEY),)) + protocol.ANNOTATION_GROUP_KEY.encode()
)
_KEY_NAME_AT = 8  # after descriptor, constructor and size
_DATA8 = b"\x00\x53\x75\xa0"
# Sections that come after message annotations: where one begins the content, there are none, so there is no key.
_KEYLESS = (b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x75", b"\x00\x53\x77")
_DATA32 = b"\x00\x53\x75\xb0"
_u32 = struct.Struct(">I")
_u64 = struct.Struct(">Q")


def check_key(key: object) -> None:
    if key is not None and not isinstance(key, str):
        raise ConfigurationError(f"a key is a str, not {key!r}")


def check_properties(properties: object) -> None:
    if properties is not None and not isinstance(properties, Mapping):
        raise ConfigurationError(f"properties are a mapping, not {properties!r}")


@lru_cache(maxsize=KEY_CACHE_SIZE)
def key_section(key: str) -> bytes:
    """Message-annotations {event-streams-group-key: key}; they stand in front of the content of an event with a key."""
    check_key(key)
    text = key.encode("utf-8")
    if len(text) > MAX_KEY_BYTES:
        raise ConfigurationError(f"a key has at most {MAX_KEY_BYTES} bytes, this one has {len(text)}")
    value = b"\xa1" + bytes((len(text),)) + text if len(text) < 256 else b"\xb1" + _u32.pack(len(text)) + text
    return _ANNOTATIONS + b"\xd1" + _u32.pack(len(_KEY_NAME) + len(value)) + _KEY_NAME + value


def encode_content(body: bytes, properties: Mapping[str, Any] | None = None) -> bytes:
    """The part of a message that does not depend on where and as what it is sent: all but the annotations."""
    if properties:
        check_properties(properties)
        try:
            return encode_message(Message(body=body, application_properties=dict(properties)))
        except Unencodable as error:
            raise ConfigurationError(f"the event's properties cannot be encoded: {error}") from error
    return data_head(len(body)) + body


def encode_event(body: bytes, key: str | None = None, properties: Mapping[str, Any] | None = None) -> bytes:
    """One event as an AMQP message. `properties` become application properties."""
    content = encode_content(body, properties)
    return content if key is None else key_section(key) + content


class Event:
    """An event to be sent. `key` chooses the partition where the call that sends it names none.

    `published_sequence_number` is set when an idempotent producer has published the event by `send` or as one of a
    list given to `send_batch`. A producer with `partition_options` does not publish it again.
    """

    __slots__ = ("being_published", "body", "key", "properties", "published_sequence_number")

    def __init__(
        self,
        body: bytes | bytearray | memoryview | str,
        *,
        key: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(body, bytes | bytearray | memoryview | str):
            raise ConfigurationError(f"a body is bytes or str, not {type(body).__name__}")
        check_key(key)
        check_properties(properties)
        self.body = body.encode("utf-8") if isinstance(body, str) else bytes(body)
        self.key = key
        self.properties = properties
        self.published_sequence_number: int | None = None
        self.being_published = False

    def __repr__(self) -> str:
        return f"Event({len(self.body)} bytes, key={self.key!r}, number={self.published_sequence_number})"


def as_event(event: Event | bytes | str, key: str | None, properties: Mapping[str, Any] | None) -> Event:
    """Make the event to be sent, with the key and properties of the call."""
    if not isinstance(event, Event):
        return Event(event, key=key, properties=properties)
    if not isinstance(event.body, bytes):
        raise ConfigurationError(
            f"the body of an event was changed to {type(event.body).__name__}, and is bytes", advice="make a new Event"
        )
    if key is None and properties is None:
        return event
    return Event(event.body, key=event.key if key is None else key, properties=properties or event.properties)


class ReceivedEvent:
    """An event that was read. The parts behind `payload` are decoded when they are asked for."""

    __slots__ = ("_content", "offset", "partition", "payload", "timestamp_ms")

    def __init__(self, partition: str, offset: str, timestamp_ms: int, payload: bytes, content: int) -> None:
        self.partition = partition
        self.offset = offset  # opaque; later events of the partition have greater ones
        self.timestamp_ms = timestamp_ms  # when the partition's leader took it in
        self.payload = payload  # the whole message, delivery annotations included
        self._content = content  # where the part that the producer wrote begins

    def __repr__(self) -> str:
        return f"ReceivedEvent(partition={self.partition!r}, offset={self.offset!r}, {len(self.payload)} bytes)"

    @property
    def body(self) -> bytes:
        """The body's bytes: the data sections, or a text value as UTF-8."""
        payload, start = self.payload, self._content
        if payload[start : start + 3] == _ANNOTATIONS and payload[start + 3 : start + 4] in (b"\xc1", b"\xd1"):
            start += _sized(payload, start + 3)
        head = payload[start : start + 4]
        if head == _DATA32 and start + 8 + int.from_bytes(payload[start + 4 : start + 8], "big") == len(payload):
            return payload[start + 8 :]
        if head == _DATA8 and start + 5 + int.from_bytes(payload[start + 4 : start + 5], "big") == len(payload):
            return payload[start + 5 :]
        body = self.message.body
        if isinstance(body, bytes):
            return body
        if isinstance(body, list):
            return b"".join(body)
        value = body.value if isinstance(body, Value) else body.values if body is not None else None
        return bytes(value) if isinstance(value, bytes) else b"" if value is None else str(value).encode("utf-8")

    @property
    def key(self) -> str | None:
        """The producer's key, if it gave one."""
        payload, start = self.payload, self._content
        head = payload[start : start + 3]
        if head in _KEYLESS:
            return None
        name_at = start + _KEY_NAME_AT
        value_at = name_at + len(_KEY_NAME)
        as_we_write_it = head == _ANNOTATIONS and payload[name_at:value_at] == _KEY_NAME
        if as_we_write_it and payload[start + 3] == 0xD1 and payload[value_at : value_at + 1] == b"\xa1":
            return payload[value_at + 2 : value_at + 2 + payload[value_at + 1]].decode("utf-8", "replace")
        value = self.message.message_annotations.get(protocol.ANNOTATION_GROUP_KEY)
        return value if isinstance(value, str) else None

    @property
    def properties(self) -> dict[str, Any]:
        """Application properties."""
        return dict(self.message.application_properties)

    @property
    def message(self) -> Message:
        """The whole message, decoded now."""
        try:
            return decode_message(self.payload)
        except MalformedMessage as error:
            raise DamagedEventError(self.partition, self.offset, str(error)) from error

    def check(self) -> None:
        """Raise DamagedEventError if some part of the event cannot be decoded."""
        if not ends_in_data(self.payload, self._content):
            try:
                check_message(self.payload)
            except MalformedMessage as error:
                raise DamagedEventError(self.partition, self.offset, str(error)) from error


class BareEvent(ReceivedEvent):
    """An event that is a body and nothing else, and came so, among others that are: nobody has to look for it in a
    message."""

    __slots__ = ("body",)

    def __init__(self, partition: str, offset: str, timestamp_ms: int, body: bytes) -> None:
        self.partition, self.offset, self.timestamp_ms, self.body = partition, offset, timestamp_ms, body  # type: ignore[misc]
        self._content = 0

    @property
    def payload(self) -> bytes:  # type: ignore[override]
        return data_head(len(self.body)) + self.body

    @property
    def key(self) -> None:
        return None

    @property
    def properties(self) -> dict[str, Any]:
        return {}

    def check(self) -> None:
        """Do nothing: a body may be any bytes."""


def readable(events: list[ReceivedEvent], on_damaged: Callable[[DamagedEventError], None]) -> list[ReceivedEvent]:
    """Events that can be decoded; `on_damaged` is told of the others."""
    found: list[ReceivedEvent] = []
    for event in events:
        try:
            event.check()
        except DamagedEventError as error:
            on_damaged(error)
        else:
            found.append(event)
    return found


def _sized(payload: bytes, at: int) -> int:
    """Length of a section, from its first byte on, whose value (constructor at `at`) states its size.
    More than there is, if the size is cut off: what looks there finds nothing, and the codec says what is wrong."""
    if len(payload) < at + 5:
        return len(payload) + 1
    return 3 + (2 + payload[at + 1] if payload[at] == 0xC1 else 5 + int(_u32.unpack_from(payload, at + 1)[0]))


class DeliveryReader:
    """Offset and timestamp of the deliveries of one link.

    A node writes the same delivery annotations again and again with other numbers in them. The places found in one
    message are tried on the next: if every byte around them is the same, the numbers are where they were. Otherwise the
    message is read in full, and becomes the new pattern.
    """

    def __init__(self, partition: str | None) -> None:
        self.partition = partition  # None: an agnostic link, each delivery names its partition
        self._before = self._between = self._after = b"\xff"  # matches no message
        self._places = (0, 0, 0, 0, 0)

    def places(self, payload: bytes) -> tuple[int, int, int, int, int] | None:
        """Positions in this message and those like it: where the offset begins and ends, the timestamp begins and ends,
        and the producer's bytes begin. None: the numbers are not where they usually are."""
        self.read(payload)
        offset_at, offset_end, time_at, time_end, end = self._places
        head = payload[:offset_at], payload[offset_end:time_at], payload[time_end:end]
        return self._places if head == (self._before, self._between, self._after) else None

    def read(self, payload: bytes) -> ReceivedEvent:
        offset_at, offset_end, time_at, time_end, end = self._places
        if (
            payload[:offset_at] == self._before
            and payload[offset_end:time_at] == self._between
            and payload[time_end:end] == self._after
        ):
            return ReceivedEvent(
                self._seen_partition,
                payload[offset_at:offset_end].decode("latin-1"),
                _u64.unpack_from(payload, time_at)[0],
                payload,
                end,
            )
        return self._read_in_full(payload)

    _seen_partition: str = ""

    def _read_in_full(self, payload: bytes) -> ReceivedEvent:
        try:
            found = delivery_annotations_at(payload)  # what follows may be damaged: these say which event it is
            if found is None:
                annotations = decode_message(payload).delivery_annotations
            else:
                annotations = decode_value(payload, *found)[0]
        except MalformedMessage as error:
            raise ProtocolError(f"a delivery is not an AMQP message: {error}") from error
        offset, timestamp = annotations.get(protocol.ANNOTATION_OFFSET), annotations.get(protocol.ANNOTATION_TIMESTAMP)
        partition = str(annotations.get(protocol.ANNOTATION_SOURCE_PARTITION) or self.partition or "")
        if not isinstance(offset, str) or timestamp is None or not partition:
            raise ProtocolError(f"a delivery without offset, timestamp and partition (it has {sorted(annotations)})")
        if self.partition is not None and partition != self.partition:
            raise ProtocolError(f"a delivery from partition {partition} on a link bound to {self.partition}")
        content = _after_delivery_annotations(payload)
        if content is None:
            return ReceivedEvent(partition, str(offset), int(timestamp), payload, 0)
        self._remember(payload, str(offset), int(timestamp), partition, content)
        return ReceivedEvent(partition, str(offset), int(timestamp), payload, content)

    def _remember(self, payload: bytes, offset: str, timestamp_ms: int, partition: str, content: int) -> None:
        """Note where the numbers are, when they are where a search finds them, offset first."""
        if len(offset) > 255:
            return
        offset_at = payload.find(b"\xa3" + bytes((len(offset),)) + offset.encode("latin-1", "replace"), 0, content)
        time_at = payload.find(b"\x83" + _u64.pack(timestamp_ms), 0, content)
        if offset_at < 0 or time_at < 0 or time_at < offset_at:
            return
        offset_at, time_at = offset_at + 2, time_at + 1
        offset_end, time_end = offset_at + len(offset), time_at + 8
        self._places = (offset_at, offset_end, time_at, time_end, content)
        self._before, self._between = payload[:offset_at], payload[offset_end:time_at]
        self._after = payload[time_end:content]
        self._seen_partition = partition


def _after_delivery_annotations(payload: bytes) -> int | None:
    """Find where the section after the delivery annotations begins, if they come first and in the short form."""
    if payload[:3] != b"\x00\x53\x71" or len(payload) < 5 or payload[3] not in (0xC1, 0xD1):
        return None
    return _sized(payload, 3)
