"""Fields out of an encoded message, decoded one by one.

Problem: a filter that rejects nearly everything is all cost, and most of a message is its body. Rule: sections are
stepped over by their sizes; only those with a wanted field are looked into; in them only wanted values are decoded; and
nothing is read after the last section that matters. A malformed message is unreadable (`UNREADABLE`), never half read.

Rejected: decoding each section into a dict (three times the cost), and remembering decoded sections by their bytes (the
application properties of two events are rarely equal).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any

from holdfast.amqp import MalformedMessage, decode_value, split
from holdfast.amqp.messages.message import skip_value
from node.filters import vocabulary
from node.filters.functions import MAX_TEXT, NUMBERS, TOO_LONG, TooLong, plain
from node.filters.syntax_tree import Field, Section

UNREADABLE = (MalformedMessage, IndexError, StructError, UnicodeDecodeError)
"""Errors of reading bytes that are not a message."""

Loader = Callable[[bytes], Sequence[Any]]
"""Function from a message to the wanted values, in order, and then for each whether it is there."""

_CODES: dict[Section, int] = {"h": 0x70, "m": 0x72, "p": 0x73, "a": 0x74, "f": 0x78}
_DATA, _VALUE = 0x75, 0x77
_U32 = Struct(">I")
_NARROW, _WIDE = frozenset({0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0}), frozenset({0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0})
_EMPTY_LIST = 0x45
_FIXED = {code: 1 + size for high, size in ((4, 0), (5, 1), (6, 2), (7, 4), (8, 8), (9, 16)) for code in
          range(high << 4, (high << 4) + 16)}  # fmt: skip
"""Constructor -> bytes of the whole value, for values of fixed size."""

_MOST_HEAD = 5
"""Bytes in front of a text or a binary: its constructor and its size."""

Reader = Callable[[bytes, int, int, list[Any]], None]
"""(message, where the section's value begins and ends, values to fill)."""


def loader(fields: Sequence[Field]) -> Loader:
    """Make a function that reads `fields`: result[i] is the value of fields[i] (None: not there, or null), result[n +
    i] tells whether the message has it. It raises one of UNREADABLE for bytes that are no message."""
    count = len(fields)
    template: list[Any] = [None] * count + [False] * count
    readers: dict[int, Reader] = {}
    for section, code in _CODES.items():
        wanted = [(field.name, slot) for slot, field in enumerate(fields) if field.section == section]
        if wanted:
            readers[code] = _reader(section, wanted, count)
        if section == "h":
            for name, slot in wanted:
                template[slot] = vocabulary.HEADER_DEFAULTS[vocabulary.HEADER_FIELDS.index(name)]
    body = next((slot for slot, field in enumerate(fields) if field.section == "b"), None)
    if body is not None:
        readers[_DATA], readers[_VALUE] = _data_reader(body, count), _value_reader(body, count)
    last = max(readers, default=0)

    def load(data: bytes) -> list[Any]:
        values = template.copy()
        pos, size = 0, len(data)
        while pos < size:
            if data[pos] or data[pos + 1] != 0x53:
                return _load_slowly(data, template, readers)
            code = data[pos + 2]
            if code > last:
                break
            if code < 0x70:
                raise MalformedMessage(f"unknown section 0x{code:02x}")
            start = pos + 3
            kind = data[start]
            if kind in _NARROW:
                pos = start + 2 + data[start + 1]
            elif kind in _WIDE:
                pos = start + 5 + _U32.unpack_from(data, start + 1)[0]
            elif kind == _EMPTY_LIST:
                pos = start + 1
            else:
                pos = skip_value(data, start)
            if pos > size:
                raise MalformedMessage("a section is longer than its message")
            if code in readers:
                readers[code](data, start, pos, values)
        return values

    return load if body is None else lambda data: _with_body(load(data), body)


def _load_slowly(data: bytes, template: list[Any], readers: dict[int, Reader]) -> list[Any]:
    """Read a message whose descriptors may be in their long forms."""
    values = template.copy()
    for section in split(data):
        if section.code in readers:
            readers[section.code](data, section.value, section.end, values)
    return values


def _reader(section: Section, wanted: Iterable[tuple[str, int]], count: int) -> Reader:
    if section in ("h", "p"):
        names = vocabulary.KNOWN_FIELDS[section]
        return _list_reader({names.index(name): slot for name, slot in wanted}, count)
    return _map_reader({name.encode(): slot for name, slot in wanted}, count)


def _data_reader(slot: int, count: int) -> Reader:
    """Make a reader that collects the data sections, of which there may be many, and decodes none that is longer than
    texts may be."""

    def read(data: bytes, start: int, end: int, values: list[Any]) -> None:
        value: Any = TOO_LONG if end - start > MAX_TEXT + _MOST_HEAD else decode_value(data, start, end)[0]
        if not isinstance(value, bytes | TooLong):
            raise MalformedMessage("a data section without binary data")
        if values[slot] is None:
            values[slot], values[count + slot] = [], True
        values[slot].append(value)

    return read


def _value_reader(slot: int, count: int) -> Reader:
    def read(data: bytes, start: int, end: int, values: list[Any]) -> None:
        value = TOO_LONG if end - start > MAX_TEXT + _MOST_HEAD else decode_value(data, start, end)[0]
        values[slot], values[count + slot] = [value], True

    return read


def _with_body(values: list[Any], slot: int) -> list[Any]:
    """The values with the body as clients show it: its text, or its bytes where they are none."""
    parts = values[slot]
    if parts is None:
        return values
    if len(parts) == 1 and not isinstance(parts[0], bytes):
        value = plain(parts[0])
        values[slot] = value if value.__class__ not in NUMBERS else str(value)
    elif TOO_LONG in parts:
        values[slot] = TOO_LONG
    else:
        values[slot] = _text(b"".join(parts))
    return values


def _text(body: bytes) -> Any:
    try:
        return plain(body.decode())
    except UnicodeDecodeError:
        return plain(body)


def _list_reader(wanted: dict[int, int], count: int) -> Reader:
    last = max(wanted)

    def read(data: bytes, start: int, end: int, values: list[Any]) -> None:
        kind = data[start]
        if kind == 0xC0:
            elements, pos = data[start + 2], start + 3
        elif kind == 0xD0:
            elements, pos = _U32.unpack_from(data, start + 5)[0], start + 9
        elif kind == _EMPTY_LIST:
            return
        else:
            raise MalformedMessage(f"a list of fields is a 0x{kind:02x}")
        for index in range(min(elements, last + 1)):
            slot = wanted.get(index)
            if slot is None:
                size = _FIXED.get(data[pos])
                pos = pos + size if size is not None else skip_value(data, pos)
            else:
                value, pos = decode_value(data, pos, end)
                if value is not None:  # null is the default, hence not there
                    values[slot] = plain(value)
                    values[count + slot] = True

    return read


def _map_reader(wanted: dict[bytes, int], count: int) -> Reader:
    keys = list(wanted)

    def read(data: bytes, start: int, end: int, values: list[Any]) -> None:
        for key in keys:
            if data.find(key, start, end) >= 0:
                break
        else:
            return  # at the speed of memory: no key's letters are anywhere in the section
        kind = data[start]
        if kind == 0xC1:
            pos = start + 3
        elif kind == 0xD1:
            pos = start + 9
        else:
            raise MalformedMessage(f"a section of pairs is a 0x{kind:02x}")
        while pos < end:
            kind = data[pos]
            if kind == 0xA1 or kind == 0xA3:
                after = pos + 2 + data[pos + 1]
                slot = wanted.get(data[pos + 2 : after])
            elif kind == 0xB1 or kind == 0xB3:
                after = pos + 5 + _U32.unpack_from(data, pos + 1)[0]
                slot = wanted.get(data[pos + 5 : after])
            else:  # an annotation may be keyed by a number
                after, slot = skip_value(data, pos), None
            if slot is None:
                size = _FIXED.get(data[after])
                if size is not None:
                    pos = after + size
                elif data[after] == 0xA1:
                    pos = after + 2 + data[after + 1]
                else:
                    pos = skip_value(data, after)
            else:
                value, pos = decode_value(data, after, end)
                values[slot] = plain(value)
                values[count + slot] = True
        if pos != end:
            raise MalformedMessage("a section of pairs with an odd end")

    return read
