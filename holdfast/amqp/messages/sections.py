"""The bytes of a message as sections: what a node does with a message without decoding it.

A node stores the encoded message as it came and hands it on as it was stored; only delivery annotations
(section 0x71, defined per hop) are dropped on the way in and put in front on the way out. AMQP forbids touching
the bare message (0x73-0x77), and decoding it would cost more than storing it. Rules: `ingest` of any bytes ends
in a stored form or MalformedMessage; a stored message never contains delivery annotations; its header, if any,
stays first.

The fast path looks at the first bytes only. Sections come in order of their codes, so a message that begins
with properties or a body cannot contain annotations; it is returned as the very object that came in. What lies
beyond the annotations is the producer's business: a node that never decodes a body does not vouch for it.

Section descriptors have three encodings. Messages that need the slow path leave it in the one-byte form (00 53
xx), the only one that some clients can read.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from holdfast.amqp.encoding.codec import (
    MAX_DEPTH,
    decode_value,
    encode_value,
    symbol,
)
from holdfast.amqp.encoding.counting import count_values
from holdfast.amqp.errors import MalformedMessage

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES = 0x70, 0x71, 0x72, 0x73
APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE, FOOTER = 0x74, 0x75, 0x76, 0x77, 0x78

MAX_VALUES = 65_536
"""Values in one message, counted one by one: looking at so many takes some 20 ms. An array of values of one width is
one value, however long, but in annotations, which are decoded."""

TARGET_PARTITION = "event-streams-target-partition"
GROUP_KEY = "event-streams-group-key"
OFFSET = "event-streams-offset"
TIMESTAMP = "event-streams-timestamp"
SOURCE_PARTITION = "event-streams-source-partition"

_NAMES = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}
_DESCRIPTORS = (0x80, 0xA3, 0xB3)
_LISTS, _MAPS, _BINARIES = (0x45, 0xC0, 0xD0), (0xC1, 0xD1), (0xA0, 0xB0)
_CONSTRUCTORS: dict[int, tuple[int, ...]] = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: _BINARIES,
    SEQUENCE: _LISTS,
    FOOTER: _MAPS,
}
_ANNOTATIONS = (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS)
_FIXED_WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
_U32 = Struct(">I")

REMEMBERED_MAPS, REMEMBERED_BYTES = 4096, 256
"""Annotation maps repeat: one per key, partition or producer. Recent ones are not decoded again; a few MiB at most."""

_target_hints: dict[bytes, str | None] = {}
_group_hints: dict[bytes, str | None] = {}


class Section(NamedTuple):
    """payload[start:end] is the section, payload[value:end] its value; canonical: its descriptor is 00 53 xx."""

    code: int
    start: int
    value: int
    end: int
    canonical: bool


class Ingested(NamedTuple):
    """An incoming message. stored: the part to keep. target_partition, group_key: the producer's routing hints."""

    stored: bytes
    target_partition: str | None
    group_key: str | None


class Entry(NamedTuple):
    """One pair of a map: its key, which begins at `start`, and the value's encoded form between `value` and `end`."""

    key: Any
    start: int
    value: int
    end: int


class AnnotationMap(NamedTuple):
    """The message annotations of a message: the whole section is message[start:end]."""

    start: int
    end: int
    entries: list[Entry]


def skip_value(data: bytes, pos: int, depth: int = MAX_DEPTH) -> int:
    """The position after the value at `pos`, found without decoding it."""
    size = len(data)
    if pos >= size or depth <= 0:
        raise MalformedMessage("value is missing, or nested too deeply")
    code = data[pos]
    width = code >> 4
    pos += 1
    if code == 0:
        return skip_value(data, skip_value(data, pos, depth - 1), depth - 1)
    if width in _FIXED_WIDTHS:
        pos += _FIXED_WIDTHS[width]
    elif width in (0xA, 0xC, 0xE):
        if pos >= size:
            raise MalformedMessage("size is cut off")
        pos += 1 + data[pos]
    elif width in (0xB, 0xD, 0xF):
        if pos + 4 > size:
            raise MalformedMessage("size is cut off")
        pos += 4 + _U32.unpack_from(data, pos)[0]
    else:
        raise MalformedMessage(f"unknown type 0x{code:02x}")
    if pos > size:
        raise MalformedMessage("value is longer than the message")
    return pos


def _descriptor(data: bytes, pos: int) -> tuple[int, int, bool]:
    """Return (section code, position of the value, canonical) of the section that begins at `pos`."""
    if data[pos : pos + 1] != b"\x00" or len(data) < pos + 3:
        raise MalformedMessage("a section does not begin with a descriptor")
    kind = data[pos + 1]
    if kind == 0x53:
        return data[pos + 2], pos + 3, True
    if kind not in _DESCRIPTORS:  # not looked at: it may be a list of a million
        raise MalformedMessage(f"a section's descriptor is of type 0x{kind:02x}, neither a ulong nor a symbol")
    value, after = decode_value(data, pos + 1)
    if kind in (0xA3, 0xB3):
        code = _NAMES.get(value.encode("ascii"), 0)
    else:
        code = int(value) if kind == 0x80 and value < 256 else 0
    return code, after, False


def section_at(payload: bytes, pos: int, previous: int) -> tuple[int, int]:
    """Return (code, position of the value) of the section at `pos`, after a section `previous` (0: none)."""
    if previous < DATA and payload[pos : pos + 2] == b"\x00S":  # as nearly everybody writes it, before there is a body
        code = payload[pos + 2]
        if max(previous, HEADER - 1) < code <= FOOTER:
            return code, pos + 3
    code, value, _ = _section_at(payload, pos, previous)
    return code, value


def _section_at(payload: bytes, pos: int, previous: int) -> tuple[int, int, bool]:
    code, value, canonical = _descriptor(payload, pos)
    if not HEADER <= code <= FOOTER:
        raise MalformedMessage(f"unknown section 0x{code:02x}")
    if code < previous or (code == previous and code not in (DATA, SEQUENCE)):
        raise MalformedMessage(f"section 0x{code:02x} out of order")
    if previous in (DATA, SEQUENCE) and previous < code < FOOTER:
        raise MalformedMessage("more than one kind of body")
    return code, value, canonical


def split(payload: bytes) -> list[Section]:
    """The sections of a message, in order, bodies unread. Raises MalformedMessage for what is not a sequence of
    sections."""
    if not isinstance(payload, bytes):
        payload = bytes(payload)
    sections: list[Section] = []
    pos, previous = 0, 0
    while pos < len(payload):
        code, value, canonical = _section_at(payload, pos, previous)
        end = skip_value(payload, value)
        if code != VALUE and payload[value] not in _CONSTRUCTORS[code]:
            raise MalformedMessage(f"section 0x{code:02x} holds type 0x{payload[value]:02x}")
        sections.append(Section(code, pos, value, end, canonical))
        previous, pos = code, end
    if not sections:
        raise MalformedMessage("an empty transfer is not a message")
    return sections


def _after_header(payload: bytes) -> int:
    """Find where the second section begins in a message that begins with 00 53 70; -1: that cannot be told cheaply."""
    code = payload[3]
    if code == 0x45:
        return 4
    if code == 0xC0:
        return 5 + payload[4]
    if code == 0xD0:
        return int(8 + _U32.unpack_from(payload, 4)[0])
    return -1


def ingest(payload: bytes) -> Ingested:
    """Return the part of an incoming message to store, and where its producer wants it."""
    if payload[:2] == b"\x00S" and len(payload) > 8:
        code, pos = payload[2], 0
        if code == HEADER:
            pos = _after_header(payload)
            code = payload[pos + 2] if 0 < pos < len(payload) - 3 and payload[pos : pos + 2] == b"\x00S" else 0
        if PROPERTIES <= code <= VALUE:
            return Ingested(payload, None, None)
        if code in _ANNOTATIONS:
            return _ingest_annotated(payload, pos, code)
    return _ingest_slowly(payload)


def _ingest_annotated(payload: bytes, header_end: int, code: int) -> Ingested:
    """A message whose annotations directly follow its header (or begin it), all with canonical descriptors."""
    pos, target_partition, group_key = header_end, None, None
    if code == DELIVERY_ANNOTATIONS:
        target_partition, pos = _hint(payload, pos + 3, TARGET_PARTITION, _target_hints)
        code = payload[pos + 2] if payload[pos : pos + 2] == b"\x00S" and pos + 2 < len(payload) else 0
    end = pos
    if code == MESSAGE_ANNOTATIONS:
        group_key, end = _hint(payload, pos + 3, GROUP_KEY, _group_hints)
        code = payload[end + 2] if payload[end : end + 2] == b"\x00S" and end + 2 < len(payload) else 0
    if not PROPERTIES <= code <= VALUE:
        return _ingest_slowly(payload)
    stored = payload if pos == header_end else payload[:header_end] + payload[pos:]
    return Ingested(stored, target_partition, group_key)


def _hint(payload: bytes, pos: int, name: str, seen: dict[bytes, str | None]) -> tuple[str | None, int]:
    """A text out of the annotations map at `pos`, and the position after the map. seen: maps read before."""
    kind = payload[pos : pos + 1]
    if kind == b"\xc1" and pos + 2 <= len(payload):
        end = pos + 2 + payload[pos + 1]
    elif kind == b"\xd1" and pos + 5 <= len(payload):
        end = pos + 5 + int(_U32.unpack_from(payload, pos + 1)[0])
    else:
        raise MalformedMessage("annotations are not a map")
    if end > len(payload):
        raise MalformedMessage("annotations are cut off")
    encoded = payload[pos:end]
    try:
        return seen[encoded], end
    except KeyError:
        if count_values(encoded, MAX_VALUES) > MAX_VALUES:
            raise MalformedMessage(f"annotations with more than {MAX_VALUES} values") from None
        hint = decode_value(encoded)[0].get(name)
    if hint is not None and not isinstance(hint, str):
        raise MalformedMessage(f"annotation {name} is not a text")
    hint = None if hint is None else str(hint)
    if len(encoded) <= REMEMBERED_BYTES:
        if len(seen) >= REMEMBERED_MAPS:
            seen.clear()
        seen[encoded] = hint
    return hint, end


def message_annotations(stored: bytes) -> AnnotationMap | None:
    """Find the annotations in a message, as `ingest` returned it; their values stay encoded. None: it has none."""
    start = _after_header(stored) if stored[:3] == b"\x00Sp" else 0
    if start < 0 or stored[start : start + 3] != b"\x00Sr":
        return None
    pos = start + 3
    end = skip_value(stored, pos)
    if stored[pos] not in _MAPS:
        raise MalformedMessage("annotations are not a map")
    wide = stored[pos] == 0xD1
    pos += 9 if wide else 3
    if pos > end:
        raise MalformedMessage("annotations are cut off")
    count = int(_U32.unpack_from(stored, pos - 4)[0]) if wide else stored[pos - 1]
    entries: list[Entry] = []
    while pos < end:
        key, value = decode_value(stored, pos, end)
        after = skip_value(stored, value)
        entries.append(Entry(key, pos, value, after))
        pos = after
    if pos != end or count != 2 * len(entries):
        raise MalformedMessage("annotations with an impossible number of elements")
    return AnnotationMap(start, end, entries)


def annotations_without(stored: bytes, found: AnnotationMap, names: frozenset[str]) -> bytes:
    """The section that is left when the entries of these names are taken out, the others as they are; b"" if none is
    left."""
    kept = [stored[entry.start : entry.end] for entry in found.entries if not _named(entry, names)]
    body = b"".join(kept)
    if not kept:
        return b""
    if len(body) < 255 and len(kept) < 128:
        return b"\x00Sr\xc1" + bytes((len(body) + 1, 2 * len(kept))) + body
    return b"\x00Sr\xd1" + _U32.pack(len(body) + 4) + _U32.pack(2 * len(kept)) + body


def _named(entry: Entry, names: frozenset[str]) -> bool:
    return isinstance(entry.key, str) and entry.key in names


def _ingest_slowly(payload: bytes) -> Ingested:
    kept: list[bytes] = []
    target_partition = group_key = None
    for code, start, value, end, canonical in split(payload):
        if code == DELIVERY_ANNOTATIONS:
            target_partition, _ = _hint(payload, value, TARGET_PARTITION, _target_hints)
            continue
        if code == MESSAGE_ANNOTATIONS:
            group_key, _ = _hint(payload, value, GROUP_KEY, _group_hints)
        kept.append(payload[start:end] if canonical else bytes((0, 0x53, code)) + payload[value:end])
    if not kept:
        raise MalformedMessage("a message of delivery annotations only")
    return Ingested(b"".join(kept), target_partition, group_key)


def splice(stored: bytes, delivery_annotations: bytes) -> bytes:
    """A message to send: fresh delivery annotations (a whole 0x71 section) in a message as `ingest` stored it. Of one
    that cannot be read (older logs may hold such) they go in front of everything: then its reader can say which it is.
    """
    if stored[:3] != b"\x00Sp":
        return delivery_annotations + stored
    after = _after_any_header(stored)
    if after < 0:
        return delivery_annotations + stored
    return stored[:after] + delivery_annotations + stored[after:]


def _after_any_header(payload: bytes) -> int:
    """Find where the second section begins, as `_after_header` does, in bytes that may be anything."""
    try:
        after = _after_header(payload)
    except (IndexError, StructError):
        return -1
    return after if after <= len(payload) else -1


def delivery_annotations_at(payload: bytes) -> tuple[int, int] | None:
    """Find where the value of the delivery annotations begins and ends in a message that a node sent; what follows is
    not looked at. None: there are none."""
    start = _after_any_header(payload) if payload[:3] == b"\x00Sp" else 0
    if start < 0 or payload[start : start + 3] != b"\x00Sq" or payload[start + 3 : start + 4] not in (b"\xc1", b"\xd1"):
        return None
    return start + 3, skip_value(payload, start + 3)


def annotated(message: bytes, name: str, encoded: bytes) -> bytes:
    """A message that goes out, with one more delivery annotation: the value is given encoded. Not for hot paths."""
    found = delivery_annotations_at(message)
    if found is None:
        raise MalformedMessage("a message without delivery annotations is not one that goes out")
    value, end = found
    wide = message[value] == 0xD1
    first = value + (9 if wide else 3)
    count = int(_U32.unpack_from(message, first - 4)[0]) if wide else message[first - 1]
    pairs = message[first:end] + encode_value(symbol(name)) + encoded
    head = b"\x00Sq\xd1" + _U32.pack(len(pairs) + 4) + _U32.pack(count + 2)
    return message[: value - 3] + head + pairs + message[end:]


def offset_text(offset: int) -> str:
    """An offset as it travels: 16 lowercase hex digits, so that order of texts is order of numbers."""
    return f"{offset:016x}"


def decode_section(payload: bytes, section: Section) -> Any:
    """The value of one section."""
    value, end = decode_value(payload, section.value, section.end)
    if end != section.end:
        raise MalformedMessage("section has bytes after its value")
    return value
