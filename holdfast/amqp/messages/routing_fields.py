"""Texts in a message's properties that route it, read without decoding the rest, and a key written for a message.

All functions take a message as `ingest` returned it: its sections up to the properties have descriptors of the short
form. Most messages have too few properties to hold a group-id, which their count tells: they cost half a microsecond.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from holdfast.amqp.encoding.codec import decode_value, encode_value, symbol
from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.sections import (
    GROUP_KEY,
    PROPERTIES,
    annotations_without,
    message_annotations,
    skip_value,
)

TO, GROUP_ID = 2, 10
"""Places of fields in the properties."""

_U32 = Struct(">I")
_TEXTS = (0xA1, 0xB1, 0xA3, 0xB3)
_KEY = encode_value(symbol(GROUP_KEY))
_KEYS = frozenset((GROUP_KEY,))


def text_property(stored: bytes, place: int) -> str | None:
    """The text in a field of the properties; None: there is none. Raises MalformedMessage."""
    try:
        return _text(stored, place)
    except (IndexError, StructError):
        raise MalformedMessage("its properties are cut off") from None


def _text(stored: bytes, place: int) -> str | None:
    pos = 0
    while stored[pos : pos + 2] == b"\x00S" and pos + 3 < len(stored):
        code = stored[pos + 2]
        if code == PROPERTIES:
            return _field(stored, pos + 3, place)
        if code > PROPERTIES:
            return None
        pos = skip_value(stored, pos + 3)
    return None


def _field(stored: bytes, pos: int, place: int) -> str | None:
    if stored[pos] == 0xC0:
        count, pos = stored[pos + 2], pos + 3
    elif stored[pos] == 0xD0:
        count, pos = _U32.unpack_from(stored, pos + 5)[0], pos + 9
    else:
        return None
    if count <= place:
        return None
    for _ in range(place):
        pos = skip_value(stored, pos)
    return str(decode_value(stored, pos)[0]) if stored[pos] in _TEXTS else None


def with_group_key(stored: bytes, key: str) -> bytes:
    """The message with a group key among its annotations; one that it has is replaced."""
    found = message_annotations(stored)
    pair = _KEY + encode_value(key)
    if found is None:
        at = skip_value(stored, 3) if stored[:3] == b"\x00Sp" else 0
        return stored[:at] + _section(pair, 2) + stored[at:]
    kept = annotations_without(stored, found, _KEYS)
    if not kept:
        return stored[: found.start] + _section(pair, 2) + stored[found.end :]
    pairs, count = (kept[6:], kept[5]) if kept[3] == 0xC1 else (kept[12:], _U32.unpack_from(kept, 8)[0])
    return stored[: found.start] + _section(pairs + pair, count + 2) + stored[found.end :]


def _section(pairs: bytes, count: int) -> bytes:
    """A section of message annotations."""
    if len(pairs) < 255 and count < 256:
        return b"\x00Sr\xc1" + bytes((len(pairs) + 1, count)) + pairs
    return b"\x00Sr\xd1" + _U32.pack(len(pairs) + 4) + _U32.pack(count) + pairs
