"""Annotations of events in the two dialects: what is stored is that of the Event Stream Extensions.

| stored, or told by the extension      | Event Hubs, message annotations | type             |
| ------------------------------------- | ------------------------------- | ---------------- |
| offset of the event                   | `x-opt-sequence-number`         | long             |
| the same                              | `x-opt-offset`                  | string, decimal  |
| time of append                        | `x-opt-enqueued-time`           | timestamp        |
| annotation `event-streams-group-key`  | `x-opt-partition-key`           | string           |

Rule never broken: an event that came through one dialect reads the same through the other, and everything else of it
passes unchanged. The three that the service writes are dropped where a producer sends them: it forwards an event.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from struct import Struct

from holdfast import protocol
from holdfast.amqp import encode_value, message_annotations, symbol
from holdfast.amqp.messages.delivery_annotations import DeliveryPrefix, Publisher
from holdfast.amqp.messages.sections import HEADER, MESSAGE_ANNOTATIONS, AnnotationMap, Section, split
from node.partition.api import PartitionDescription

_OURS = frozenset({protocol.HUB_SEQUENCE, protocol.HUB_OFFSET, protocol.HUB_ENQUEUED})
_HINT = b"x-opt-"
_KEY, _HUB_KEY = (encode_value(symbol(name)) for name in (protocol.ANNOTATION_GROUP_KEY, protocol.HUB_PARTITION_KEY))
_U32, _I64 = Struct(">I"), Struct(">q")

MAPS_KEPT = 8192
"""Maps of stored annotations that are remembered as they go out, by all links together: keys repeat."""

MAP_BYTES = 256
"""Longest map that is remembered."""

_ANNOTATED = (b"p", b"r")
"""Third bytes of messages that begin with a header, or with annotations."""

_known: dict[bytes, list[bytes]] = {}


def as_stored(message: bytes) -> bytes:
    """A message of an Event Hubs producer as it is stored. Raises MalformedMessage."""
    if _HINT not in message:
        return message
    section = next((one for one in split(message) if one.code == MESSAGE_ANNOTATIONS), None)
    if section is None:
        return message
    found = _annotations(message, section)
    kept, has_key = [], any(entry.key == protocol.ANNOTATION_GROUP_KEY for entry in found.entries)
    for entry in found.entries:
        name, value = entry.key, message_part(message, section, entry.value, entry.end)
        if name == protocol.HUB_PARTITION_KEY and not has_key:
            kept.append(_KEY + value)
        elif name not in _OURS and name != protocol.HUB_PARTITION_KEY:
            kept.append(message_part(message, section, entry.start, entry.end))
    body = _map(kept) if kept else b""
    return message[: section.start] + body + message[section.end :]


def _annotations(message: bytes, section: Section) -> AnnotationMap:
    """The annotations of a section, with places that count from its map."""
    found = message_annotations(b"\x00Sr" + message[section.value : section.end])
    assert found is not None
    return found


def message_part(message: bytes, section: Section, start: int, end: int) -> bytes:
    """The bytes between two places of `_annotations`."""
    shift = section.value - 3
    return message[start + shift : end + shift]


def _map(pairs: Sequence[bytes]) -> bytes:
    """A section of message annotations."""
    body = b"".join(pairs)
    if len(body) < 255 and len(pairs) < 128:
        return b"\x00Sr\xc1" + bytes((len(body) + 1, 2 * len(pairs))) + body
    return b"\x00Sr\xd1" + _U32.pack(len(body) + 4) + _U32.pack(2 * len(pairs)) + body


class LastEvent:
    """The last event of a partition, as deliveries tell it."""

    def __init__(self) -> None:
        self.offset = -1
        self.time_ms = 0

    def is_at_least(self, offset: int, time_ms: int) -> None:
        if offset > self.offset:
            self.offset, self.time_ms = offset, time_ms

    def heard(self, info: PartitionDescription) -> None:
        """Take the leader's word."""
        self.is_at_least(info.stable_offset - 1, info.last_timestamp_ms or 0)

    def section(self) -> bytes:
        """The delivery annotations that tell it."""
        pairs = (
            _LAST_SEQUENCE + _I64.pack(self.offset),
            _LAST_OFFSET + _text(str(self.offset)),
            _LAST_TIME + _I64.pack(self.time_ms),
            _ASKED + _I64.pack(time.time_ns() // 1_000_000),
        )
        body = b"".join(pairs)
        return b"\x00Sq\xc1" + bytes((len(body) + 1, 2 * len(pairs))) + body


def _text(text: str) -> bytes:
    return b"\xa1" + bytes((len(text),)) + text.encode()


def _named(name: str, kind: bytes) -> bytes:
    return encode_value(symbol(name)) + kind


_SEQUENCE, _ENQUEUED = _named(protocol.HUB_SEQUENCE, b"\x81"), _named(protocol.HUB_ENQUEUED, b"\x83")
_OFFSET = _named(protocol.HUB_OFFSET, b"")
_LAST_SEQUENCE, _LAST_OFFSET, _LAST_TIME, _ASKED = (
    _named(name, kind) for name, kind in zip(protocol.HUB_LAST_EVENT, (b"\x81", b"", b"\x83", b"\x83"), strict=True)
)


class HubPrefix(DeliveryPrefix):
    """Delivery prefix of this dialect: message annotations, and delivery annotations for whoever is told the end."""

    __slots__ = ("_last",)

    def __init__(self, partition: str, last: LastEvent | None) -> None:
        """`last`: told with each delivery; None: it was not asked for."""
        super().__init__(partition)
        self._last = last

    def splice_batch(
        self, base_offset: int, timestamp_ms: int, records: Sequence[bytes], publisher: Publisher | None = None
    ) -> list[bytes]:
        return self.splice_chosen(base_offset, timestamp_ms, records, range(len(records)), publisher)

    def splice_chosen(
        self,
        base_offset: int,
        timestamp_ms: int,
        records: Sequence[bytes],
        indexes: Sequence[int],
        publisher: Publisher | None = None,
    ) -> list[bytes]:
        when = _ENQUEUED + _I64.pack(timestamp_ms)
        front = b""
        if self._last is not None and records:
            self._last.is_at_least(base_offset + len(records) - 1, timestamp_ms)
            front = self._last.section()
        form, fits, messages = b"", 0, list[bytes]()
        for index in indexes:
            record, offset = records[index], base_offset + index
            if record[2:3] in _ANNOTATED:
                messages.append(self._splice(record, offset, when, front))
                continue
            if offset >= fits:
                digits = len(str(offset))
                form, fits = _format(front, when, digits), 10**digits
            messages.append(form % (_I64.pack(offset), offset, record))
        return messages

    def _splice(self, record: bytes, offset: int, when: bytes, front: bytes) -> bytes:
        pairs = [_SEQUENCE + _I64.pack(offset), _OFFSET + _text(str(offset)), when]
        at, own, end = self._own(record)
        return record[:at] + front + _map(pairs + own) + record[end:]

    def _own(self, record: bytes) -> tuple[int, list[bytes], int]:
        """Find the stored annotations: their begin, the pairs of them that go out, and their end."""
        header = annotations = None
        for section in split(record):
            if section.code == HEADER:
                header = section
            elif section.code == MESSAGE_ANNOTATIONS:
                annotations = section
                break
            else:
                break
        at = 0 if header is None else header.end
        if annotations is None:
            return at, [], at
        encoded = record[annotations.value : annotations.end]
        known = _known.get(encoded)
        if known is None:
            known = _going_out(record, annotations)
            if len(encoded) <= MAP_BYTES:
                if len(_known) >= MAPS_KEPT:
                    _known.clear()
                _known[encoded] = known
        return annotations.start, known, annotations.end


def _format(front: bytes, when: bytes, digits: int) -> bytes:
    """The format of messages without header and annotations whose offsets have so many digits: it leaves the offset
    open, as bytes and as a number, and the record."""
    size = len(_SEQUENCE) + 8 + len(_OFFSET) + 2 + digits + len(when)
    head = front + b"\x00Sr\xc1" + bytes((size + 1, 6)) + _SEQUENCE
    offset = _OFFSET + b"\xa1" + bytes((digits,))
    return head.replace(b"%", b"%%") + b"%b" + offset.replace(b"%", b"%%") + b"%d" + when.replace(b"%", b"%%") + b"%b"


def _going_out(record: bytes, section: Section) -> list[bytes]:
    found = _annotations(record, section)
    named = {entry.key for entry in found.entries if isinstance(entry.key, str)}
    pairs: list[bytes] = []
    for entry in found.entries:
        if entry.key in _OURS:
            continue
        if entry.key == protocol.ANNOTATION_GROUP_KEY and protocol.HUB_PARTITION_KEY not in named:
            pairs.append(_HUB_KEY + message_part(record, section, entry.value, entry.end))
        else:
            pairs.append(message_part(record, section, entry.start, entry.end))
    return pairs
