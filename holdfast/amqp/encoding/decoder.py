"""AMQP values out of bytes, every size checked against what is there; codec.py says why it is written in Python."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from sys import hash_info
from typing import Any

from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Described,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

from holdfast.amqp.errors import MalformedMessage

MAX_DEPTH = 32
"""Levels of nesting: more than any real message has, and far below Python's recursion limit."""

MAX_EMPTY_ELEMENTS = 1024
"""Elements of an array whose type takes no bytes (null, true, ulong0): the one case where bytes do not bound
the count."""

MAX_ALIKE = 8
"""UUIDs of one hash among the keys of a map. Python's hash of a UUID is its number modulo a prime, so a peer that
chooses them makes all alike, and a map of 8,000 took 8 s. Of honest ones hardly two are."""

UUID_CODE = 0x98
UUID_BYTES = 16

_U16, _U32, _U64 = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")
_I8, _I16, _I32, _I64 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_F32, _F64 = struct.Struct(">f"), struct.Struct(">d")

Decoder = Callable[[bytes, int, int, int], tuple[Any, int]]
"""(buffer, position after the constructor, end, depth) -> (value, position after the value)."""


def _fixed(codec: struct.Struct, make: Callable[[Any], Any] | None = None) -> Decoder:
    size, unpack = codec.size, codec.unpack_from

    def decode(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        after = pos + size
        if after > end:
            raise MalformedMessage("value is cut off")
        (raw,) = unpack(data, pos)
        return (raw if make is None else make(raw)), after

    return decode


def _raw(size: int, make: Callable[[bytes], Any]) -> Decoder:
    def decode(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        after = pos + size
        if after > end:
            raise MalformedMessage("value is cut off")
        return make(data[pos:after]), after

    return decode


def _constant(value: Any) -> Decoder:
    def decode(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        return value, pos

    return decode


def _variable(wide: bool, make: Callable[[bytes], Any]) -> Decoder:
    def decode(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        start, after = _extent(data, pos, end, wide)
        return make(data[start:after]), after

    return decode


def _extent(data: bytes, pos: int, end: int, wide: bool) -> tuple[int, int]:
    """Return where the contents of a value with a size prefix begin and end."""
    start = pos + (4 if wide else 1)
    if start > end:
        raise MalformedMessage("size is cut off")
    after = start + (_U32.unpack_from(data, pos)[0] if wide else data[pos])
    if after > end:
        raise MalformedMessage("value is longer than its container")
    return start, after


def _to_bool(data: bytes) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    raise MalformedMessage("boolean is neither 0 nor 1")


def _to_char(code: int) -> char:
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise MalformedMessage("char is not a Unicode character")
    return char(chr(code))


def _to_str(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedMessage("string is not UTF-8") from None


def _to_symbol(data: bytes) -> symbol:
    try:
        return symbol(data.decode("ascii"))
    except UnicodeDecodeError:
        raise MalformedMessage("symbol is not ASCII") from None


def _counted(data: bytes, pos: int, end: int, wide: bool) -> tuple[int, int, int]:
    """Return (first element, end of the contents, count) of a list, map or array."""
    start, after = _extent(data, pos, end, wide)
    first = start + (4 if wide else 1)
    if first > after:
        raise MalformedMessage("count is cut off")
    return first, after, (_U32.unpack_from(data, start)[0] if wide else data[start])


def _list(wide: bool) -> Decoder:
    def decode(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        pos, after, count = _counted(data, pos, end, wide)
        if count > after - pos:  # each element takes at least its constructor byte
            raise MalformedMessage("list counts more elements than it has bytes")
        values = []
        for _ in range(count):
            value, pos = _decode(data, pos, after, depth)
            values.append(value)
        if pos != after:
            raise MalformedMessage("list has bytes after its last element")
        return values, after

    return decode


class Alike(dict[int, int]):
    """Number of UUIDs with the same hash among the keys of a map, by the hash."""

    __slots__ = ()

    def add(self, data: bytes, pos: int) -> None:
        """Count the UUID at `pos`. Raises MalformedMessage if there are too many like it."""
        number = int.from_bytes(data[pos : pos + UUID_BYTES], "big") % hash_info.modulus
        self[number] = self.get(number, 0) + 1
        if self[number] > MAX_ALIKE:
            raise MalformedMessage(f"more than {MAX_ALIKE} keys of a map are UUIDs of one hash")


def _map(wide: bool) -> Decoder:
    def decode(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        pos, after, count = _counted(data, pos, end, wide)
        if count % 2 or count > after - pos:
            raise MalformedMessage("map with an impossible number of elements")
        values: dict[Any, Any] = {}
        alike: Alike | None = None
        for _ in range(count // 2):
            if pos < after and data[pos] == UUID_CODE:
                alike = Alike() if alike is None else alike
                alike.add(data, pos + 1)
            key, pos = _decode(data, pos, after, depth)
            value, pos = _decode(data, pos, after, depth)
            try:
                values[key] = value
            except TypeError:
                raise MalformedMessage("map key is a list, map or array") from None
        if pos != after:
            raise MalformedMessage("map has bytes after its last element")
        return values, after

    return decode


def _array(wide: bool) -> Decoder:
    def decode(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        pos, after, count = _counted(data, pos, end, wide)
        if pos >= after:
            raise MalformedMessage("array without element type")
        descriptor: Any = UNDESCRIBED
        code = data[pos]
        pos += 1
        if code == 0:
            descriptor, pos = _decode(data, pos, after, depth)
            if pos >= after:
                raise MalformedMessage("array without element type")
            code = data[pos]
            pos += 1
        element, kind = _DECODERS[code], _ARRAY_TYPES.get(code)
        if element is None or kind is None:
            raise MalformedMessage(f"array of unknown type 0x{code:02x}")
        if count > (MAX_EMPTY_ELEMENTS if code < 0x50 else after - pos):
            raise MalformedMessage("array counts more elements than it has bytes")
        values = []
        for _ in range(count):
            value, pos = element(data, pos, after, depth - 1)
            values.append(value)
        if pos != after:
            raise MalformedMessage("array has bytes after its last element")
        return Array(descriptor, kind, *values), after

    return decode


def _described(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    descriptor, pos = _decode(data, pos, end, depth)
    value, pos = _decode(data, pos, end, depth)
    return Described(descriptor, value), pos


def _decode(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    if pos >= end:
        raise MalformedMessage("value is missing")
    decoder = _DECODERS[data[pos]]
    if decoder is None:
        raise MalformedMessage(f"unknown type 0x{data[pos]:02x}")
    if depth <= 0:
        raise MalformedMessage(f"nested deeper than {MAX_DEPTH} levels")
    return decoder(data, pos + 1, end, depth - 1)


_DECODERS: list[Decoder | None] = [None] * 256
_ARRAY_TYPES: dict[int, int] = {}


def _register() -> None:
    table: list[tuple[int, int | None, Decoder]] = [
        (0x00, None, _described),
        (0x40, Data.NULL, _constant(None)),
        (0x41, Data.BOOL, _constant(True)),
        (0x42, Data.BOOL, _constant(False)),
        (0x56, Data.BOOL, _raw(1, _to_bool)),
        (0x50, Data.UBYTE, _raw(1, lambda raw: ubyte(raw[0]))),
        (0x60, Data.USHORT, _fixed(_U16, ushort)),
        (0x70, Data.UINT, _fixed(_U32, uint)),
        (0x52, Data.UINT, _raw(1, lambda raw: uint(raw[0]))),
        (0x43, Data.UINT, _constant(uint(0))),
        (0x80, Data.ULONG, _fixed(_U64, ulong)),
        (0x53, Data.ULONG, _raw(1, lambda raw: ulong(raw[0]))),
        (0x44, Data.ULONG, _constant(ulong(0))),
        (0x51, Data.BYTE, _fixed(_I8, byte)),
        (0x61, Data.SHORT, _fixed(_I16, short)),
        (0x71, Data.INT, _fixed(_I32, int32)),
        (0x54, Data.INT, _fixed(_I8, int32)),
        (0x81, Data.LONG, _fixed(_I64)),
        (0x55, Data.LONG, _fixed(_I8)),
        (0x72, Data.FLOAT, _fixed(_F32, float32)),
        (0x82, Data.DOUBLE, _fixed(_F64)),
        (0x74, Data.DECIMAL32, _fixed(_U32, decimal32)),
        (0x84, Data.DECIMAL64, _fixed(_U64, decimal64)),
        (0x94, Data.DECIMAL128, _raw(16, decimal128)),
        (0x73, Data.CHAR, _fixed(_U32, _to_char)),
        (0x83, Data.TIMESTAMP, _fixed(_I64, timestamp)),
        (UUID_CODE, Data.UUID, _raw(UUID_BYTES, lambda raw: uuid.UUID(bytes=raw))),
        (0xA0, Data.BINARY, _variable(False, bytes)),
        (0xB0, Data.BINARY, _variable(True, bytes)),
        (0xA1, Data.STRING, _variable(False, _to_str)),
        (0xB1, Data.STRING, _variable(True, _to_str)),
        (0xA3, Data.SYMBOL, _variable(False, _to_symbol)),
        (0xB3, Data.SYMBOL, _variable(True, _to_symbol)),
        (0x45, Data.LIST, lambda data, pos, end, depth: ([], pos)),
        (0xC0, Data.LIST, _list(False)),
        (0xD0, Data.LIST, _list(True)),
        (0xC1, Data.MAP, _map(False)),
        (0xD1, Data.MAP, _map(True)),
        (0xE0, Data.ARRAY, _array(False)),
        (0xF0, Data.ARRAY, _array(True)),
    ]
    for code, kind, decoder in table:
        _DECODERS[code] = decoder
        if kind is not None:
            _ARRAY_TYPES[code] = kind


_register()


def decode_value(data: bytes, pos: int = 0, end: int | None = None) -> tuple[Any, int]:
    """The value that begins at `pos`, and the position after it. Raises MalformedMessage for anything else."""
    return _decode(data, pos, len(data) if end is None else end, MAX_DEPTH)
