"""Check that bytes are a message that every reader can decode, made of each message before it is stored.

Problem: a log keeps what it accepted for ever, so one message that cannot be decoded would stop every reader of its
partition at the same place. And a quarter of a million messages a second are checked.
Rules never broken: what passes here, `decode_message` decodes (a test holds the two against each other); the cost of
an answer is bounded by `MAX_VALUES` and `MAX_DEPTH`, whatever the bytes say. A message of the usual shape costs
one comparison: a body of bytes, exactly as long as it says that it is.

Bodies are looked into as far as their types go: a reader that decodes the message meets nothing that it cannot read.
What they mean is the producer's business.

Rejected: decoding and dropping the result (ten times as slow, and a list of a million nulls would stop the node for a
second); and leaving the check to readers (each would need an answer to what it means that the log cannot be read).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from holdfast.amqp.encoding.decoder import MAX_DEPTH, MAX_EMPTY_ELEMENTS, UUID_CODE, Alike
from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MAX_VALUES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    section_at,
)

_SIZES_KNOWN = 4096
"""Sizes of messages whose beginning is remembered; some hundred bytes each."""

_SECTIONS_KNOWN = 8192
"""Message annotations that were found good, of at most 260 bytes: a keyed producer repeats its few keys for ever."""

_good_annotations: set[bytes] = set()
_ANNOTATIONS = b"\x00\x53\x72\xc1"
_HEAD_BYTES = 5  # with the size: what follows is at most 255 bytes

_U32 = Struct(">I")
_DATA8, _DATA32 = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"


class _DataHeads(dict[int, tuple[bytes, ...]]):
    """First bytes of a message that is one data section and nothing else, by its size."""

    def __missing__(self, size: int) -> tuple[bytes, ...]:
        if len(self) >= _SIZES_KNOWN:
            self.clear()
        heads: tuple[bytes, ...] = (_DATA8 + bytes((size - 5,)),) if 5 <= size <= 260 else ()
        heads += (_DATA32 + _U32.pack(size - 8),) if 8 <= size < 1 << 32 else ()
        self[size] = heads
        return heads


DATA_HEADS = _DataHeads()


def all_data(records: Sequence[bytes]) -> bool:
    """True if every message is one data section. The usual case, and the cheapest question."""
    heads = DATA_HEADS
    return all([record.startswith(heads[len(record)]) for record in records])  # noqa: C419 - faster than a generator


def ends_in_data(record: bytes, start: int) -> bool:
    """True if one data section follows `start`."""
    return record.startswith(DATA_HEADS[len(record) - start], start)


def check_message(message: bytes) -> None:
    """Raise MalformedMessage, with the reason, unless every reader can decode the message."""
    if message.startswith(DATA_HEADS[len(message)]):
        return
    annotations = b""
    if message[:4] == _ANNOTATIONS and len(message) > _HEAD_BYTES:
        annotations = message[: _HEAD_BYTES + message[4]]
        if annotations in _good_annotations and ends_in_data(message, len(annotations)):
            return
    _look(message)
    if annotations:
        if len(_good_annotations) >= _SECTIONS_KNOWN:
            _good_annotations.clear()
        _good_annotations.add(annotations)


def _look(message: bytes) -> None:
    pos, previous, left = 0, 0, MAX_VALUES
    end = len(message)
    try:
        while pos < end:
            code, value = section_at(message, pos, previous)
            previous, kind = code, message[value]
            if kind == 0x45 and code in _FIELDS:  # an empty header, no properties: what proton writes of neither
                pos = value + 1
            else:
                pos, left = _CHECKS[code](message, value, end, left)
    except IndexError:
        raise MalformedMessage("a value is cut off") from None
    if not previous:
        raise MalformedMessage("an empty transfer is not a message")


# ---------------------------------------------------------------- values

_FIXED: dict[int, int] = {
    0x40: 0, 0x41: 0, 0x42: 0, 0x43: 0, 0x44: 0, 0x45: 0,
    0x50: 1, 0x51: 1, 0x52: 1, 0x53: 1, 0x54: 1, 0x55: 1,
    0x60: 2, 0x61: 2,
    0x70: 4, 0x71: 4, 0x72: 4, 0x74: 4,
    0x80: 8, 0x81: 8, 0x82: 8, 0x83: 8, 0x84: 8,
    0x94: 16, 0x98: 16,
}  # fmt: skip
"""Bytes after the constructor, of types whose every value is one."""

_BOOLEAN, _CHAR = 0x56, 0x73
_TEXTS, _SYMBOLS, _BINARIES = (0xA1, 0xB1), (0xA3, 0xB3), (0xA0, 0xB0)
_LISTS, _MAPS, _ARRAYS = (0xC0, 0xD0), (0xC1, 0xD1), (0xE0, 0xF0)
_NO_KEYS = frozenset((0x00, 0x45, *_LISTS, *_MAPS, *_ARRAYS))
_NO_ELEMENTS = frozenset((0x00,))


def _skip(data: bytes, pos: int, end: int, left: int, depth: int) -> tuple[int, int]:
    """Return the position after the value at `pos`, and how many values more may follow."""
    if pos >= end:
        raise MalformedMessage("a value is missing")
    if left <= 0:
        raise MalformedMessage(f"it has more than {MAX_VALUES} values")
    if depth <= 0:
        raise MalformedMessage(f"nested deeper than {MAX_DEPTH} levels")
    code = data[pos]
    if code == 0:
        pos, left = _skip(data, pos + 1, end, left - 1, depth - 1)
        return _skip(data, pos, end, left, depth - 1)
    return _contents(code, data, pos + 1, end, left - 1, depth - 1)


def _contents(code: int, data: bytes, pos: int, end: int, left: int, depth: int) -> tuple[int, int]:
    """Do as `_skip`, for a value whose constructor was read."""
    size = _FIXED.get(code)
    if size is not None:
        if pos + size > end:
            raise MalformedMessage("a value is cut off")
        return pos + size, left
    if code == _BOOLEAN:
        if pos >= end or data[pos] > 1:
            raise MalformedMessage("a boolean is neither 0 nor 1")
        return pos + 1, left
    if code == _CHAR:
        return _char(data, pos, end), left
    start, after = _extent(data, pos, end, code >= 0xF0 or 0xB0 <= code < 0xC0 or 0xD0 <= code < 0xE0)
    if code in _TEXTS:
        try:
            data[start:after].decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedMessage("a string is not UTF-8") from None
    elif code in _SYMBOLS:
        if not data[start:after].isascii():
            raise MalformedMessage("a symbol is not ASCII")
    elif code in _LISTS or code in _MAPS:
        left = _elements(code, data, start, after, left, depth)
    elif code in _ARRAYS:
        left = _array(code, data, start, after, left, depth)
    elif code not in _BINARIES:
        raise MalformedMessage(f"unknown type 0x{code:02x}")
    return after, left


def _char(data: bytes, pos: int, end: int) -> int:
    if pos + 4 > end:
        raise MalformedMessage("a value is cut off")
    (character,) = _U32.unpack_from(data, pos)
    if character > 0x10FFFF or 0xD800 <= character <= 0xDFFF:
        raise MalformedMessage("a char is not a Unicode character")
    return pos + 4


def _extent(data: bytes, pos: int, end: int, wide: bool) -> tuple[int, int]:
    start = pos + (4 if wide else 1)
    if start > end:
        raise MalformedMessage("a size is cut off")
    after = start + (_U32.unpack_from(data, pos)[0] if wide else data[pos])
    if after > end:
        raise MalformedMessage("a value is longer than what holds it")
    return start, after


def _count(code: int, data: bytes, start: int, after: int) -> tuple[int, int]:
    """Return (position of the first element, elements) of a list, map or array."""
    wide = code >= 0xF0 or 0xD0 <= code < 0xE0
    first = start + (4 if wide else 1)
    if first > after:
        raise MalformedMessage("a count is cut off")
    return first, _U32.unpack_from(data, start)[0] if wide else data[start]


def _elements(code: int, data: bytes, start: int, after: int, left: int, depth: int) -> int:
    pos, count = _count(code, data, start, after)
    pairs = code in _MAPS
    if count > after - pos or (pairs and count % 2):
        raise MalformedMessage("a list or map with an impossible number of elements")
    if count > left:
        raise MalformedMessage(f"it has more than {MAX_VALUES} values")
    alike: Alike | None = None
    for index in range(count):
        kind = data[pos] if pos < after else 0x40  # what is missing is found missing below
        if kind == 0xA1 or kind == 0xA3:  # most keys and many values: short texts
            stop = pos + 2 + data[pos + 1]
            if stop <= after and depth > 0 and data[pos + 2 : stop].isascii():
                pos = stop
                left -= 1
                continue
        if pairs and index % 2 == 0 and kind in _NO_KEYS:
            raise MalformedMessage("the key of a map is a list, a map, an array or described")
        if kind == UUID_CODE and pairs and index % 2 == 0:
            alike = Alike() if alike is None else alike
            alike.add(data, pos + 1)
        pos, left = _skip(data, pos, after, left, depth)
    if pos != after:
        raise MalformedMessage("a list or map has bytes behind its last element")
    return left


def _array(code: int, data: bytes, start: int, after: int, left: int, depth: int) -> int:
    pos, count = _count(code, data, start, after)
    if pos >= after:
        raise MalformedMessage("an array without the type of its elements")
    kind = data[pos]
    pos += 1
    if kind == 0:
        pos, left = _skip(data, pos, after, left, depth)
        if pos >= after:
            raise MalformedMessage("an array without the type of its elements")
        kind = data[pos]
        pos += 1
        if kind in _NO_ELEMENTS:
            raise MalformedMessage("an array of unknown type 0x00")
    if count > (MAX_EMPTY_ELEMENTS if kind < 0x50 else after - pos):
        raise MalformedMessage("an array counts more elements than it has bytes")
    size = _FIXED.get(kind)
    if size is not None:
        pos += size * count
    else:
        if count > left:
            raise MalformedMessage(f"it has more than {MAX_VALUES} values")
        if not count:
            _known(kind)
        for _ in range(count):
            pos, left = _contents(kind, data, pos, after, left - 1, depth - 1)
    if pos != after:
        raise MalformedMessage("an array has bytes behind its last element")
    return left


def _known(kind: int) -> None:
    if kind not in (_BOOLEAN, _CHAR, *_TEXTS, *_SYMBOLS, *_BINARIES, *_LISTS, *_MAPS, *_ARRAYS):
        raise MalformedMessage(f"an array of unknown type 0x{kind:02x}")


# ---------------------------------------------------------------- sections

_Check = Callable[[bytes, int, int, int], tuple[int, int]]
"""(message, position of the section's value, end, values that may follow) -> the last two of what is after it."""

_INTEGERS = frozenset((0x41, 0x42, 0x43, 0x44, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, _BOOLEAN, 0x60, 0x61, 0x70, 0x71,
                       0x80, 0x81, 0x83))  # fmt: skip
_STRINGS = frozenset((*_TEXTS, *_SYMBOLS))
_BYTES = frozenset(_BINARIES)
_BOOLEANS = frozenset((0x41, 0x42, _BOOLEAN))
_IDS = _INTEGERS | _STRINGS | _BYTES | {0x98}

_HEADER_TYPES = (_BOOLEANS, _INTEGERS, _INTEGERS, _BOOLEANS, _INTEGERS)
_PROPERTY_TYPES = (
    _IDS, _BYTES, _STRINGS, _STRINGS, _STRINGS, _IDS, _STRINGS, _STRINGS, _INTEGERS, _INTEGERS, _STRINGS, _INTEGERS,
    _STRINGS,
)  # fmt: skip


def _fields(types: tuple[frozenset[int], ...], name: str) -> _Check:
    def check(data: bytes, pos: int, end: int, left: int) -> tuple[int, int]:
        code = data[pos]
        if code == 0x45:
            return pos + 1, left
        if code not in _LISTS:
            raise MalformedMessage(f"the {name} are no list, but of type 0x{code:02x}")
        start, after = _extent(data, pos + 1, end, code == 0xD0)
        pos, count = _count(code, data, start, after)
        if count > len(types):
            raise MalformedMessage(f"the {name} have {count} fields, not {len(types)} at most")
        for allowed in types[:count]:
            if pos >= after:
                raise MalformedMessage("a value is missing")
            kind = data[pos]
            if kind != 0x40 and kind not in allowed:
                raise MalformedMessage(f"a field of the {name} is of type 0x{kind:02x}")
            pos, left = _contents(kind, data, pos + 1, after, left - 1, MAX_DEPTH - 2)
        if pos != after:
            raise MalformedMessage(f"the {name} have bytes behind their last field")
        return after, left

    return check


def _of(types: tuple[int, ...], name: str) -> _Check:
    def check(data: bytes, pos: int, end: int, left: int) -> tuple[int, int]:
        if data[pos] not in types:
            raise MalformedMessage(f"the {name} section holds type 0x{data[pos]:02x}")
        return _skip(data, pos, end, left, MAX_DEPTH)

    return check


def _anything(data: bytes, pos: int, end: int, left: int) -> tuple[int, int]:
    return _skip(data, pos, end, left, MAX_DEPTH)


_FIELDS = (HEADER, PROPERTIES)
_CHECKS: dict[int, _Check] = {
    HEADER: _fields(_HEADER_TYPES, "fields of the header"),
    DELIVERY_ANNOTATIONS: _of(_MAPS, "delivery-annotations"),
    MESSAGE_ANNOTATIONS: _of(_MAPS, "message-annotations"),
    PROPERTIES: _fields(_PROPERTY_TYPES, "properties"),
    APPLICATION_PROPERTIES: _of(_MAPS, "application-properties"),
    DATA: _of(_BINARIES, "data"),
    SEQUENCE: _of((0x45, *_LISTS), "sequence"),
    VALUE: _anything,
    FOOTER: _of(_MAPS, "footer"),
}
