"""AMQP values into bytes, in their smallest form; codec.py has the theory."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
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

from holdfast.amqp.errors import Unencodable

_U16, _U32, _U64 = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")
_I8, _I16, _I32, _I64 = struct.Struct(">b"), struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_F32, _F64 = struct.Struct(">f"), struct.Struct(">d")

Encoder = Callable[[Any], bytes]


def _sized(short_code: int, long_code: int, raw: bytes) -> bytes:
    size = len(raw)
    if size < 256:
        return bytes((short_code, size)) + raw
    return bytes((long_code,)) + _U32.pack(size) + raw


def _compound(short_code: int, long_code: int, count: int, body: bytes) -> bytes:
    if count < 256 and len(body) < 255:
        return bytes((short_code, len(body) + 1, count)) + body
    return bytes((long_code,)) + _U32.pack(len(body) + 4) + _U32.pack(count) + body


def _encode_long(value: int) -> bytes:
    if -128 <= value <= 127:
        return b"\x55" + _I8.pack(value)
    try:
        return b"\x81" + _I64.pack(value)
    except struct.error:
        raise Unencodable(f"{value} does not fit an AMQP long") from None


def _encode_uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < 256 else b"\x70" + _U32.pack(value)


def _encode_ulong(value: int) -> bytes:
    if value == 0:
        return b"\x44"
    return bytes((0x53, value)) if value < 256 else b"\x80" + _U64.pack(value)


def _encode_int32(value: int) -> bytes:
    return b"\x54" + _I8.pack(value) if -128 <= value <= 127 else b"\x71" + _I32.pack(value)


def _encode_symbol(value: str) -> bytes:
    try:
        return _sized(0xA3, 0xB3, value.encode("ascii"))
    except UnicodeEncodeError:
        raise Unencodable(f"{value!r} cannot be a symbol: symbols are ASCII") from None


def _encode_string(value: str) -> bytes:
    try:
        return _sized(0xA1, 0xB1, value.encode("utf-8"))
    except UnicodeEncodeError:
        raise Unencodable("a string with lone surrogates has no UTF-8 form") from None


def _encode_list(values: Iterable[Any]) -> bytes:
    parts = [encode_value(value) for value in values]
    return _compound(0xC0, 0xD0, len(parts), b"".join(parts)) if parts else b"\x45"


def _encode_map(values: Mapping[Any, Any]) -> bytes:
    parts = [encode_value(part) for pair in values.items() for part in pair]
    return _compound(0xC1, 0xD1, len(parts), b"".join(parts))


def _encode_described(value: Described) -> bytes:
    return b"\x00" + encode_value(value.descriptor) + encode_value(value.value)


_ARRAY_FORMS: dict[int, tuple[int, Callable[[Any], bytes]]] = {
    Data.NULL: (0x40, lambda value: b""),
    Data.BOOL: (0x56, lambda value: b"\x01" if value else b"\x00"),
    Data.UBYTE: (0x50, lambda value: bytes((value,))),
    Data.USHORT: (0x60, _U16.pack),
    Data.UINT: (0x70, _U32.pack),
    Data.ULONG: (0x80, _U64.pack),
    Data.BYTE: (0x51, _I8.pack),
    Data.SHORT: (0x61, _I16.pack),
    Data.INT: (0x71, _I32.pack),
    Data.LONG: (0x81, _I64.pack),
    Data.FLOAT: (0x72, _F32.pack),
    Data.DOUBLE: (0x82, _F64.pack),
    Data.DECIMAL32: (0x74, _U32.pack),
    Data.DECIMAL64: (0x84, _U64.pack),
    Data.DECIMAL128: (0x94, bytes),
    Data.CHAR: (0x73, lambda value: _U32.pack(ord(value))),
    Data.TIMESTAMP: (0x83, _I64.pack),
    Data.UUID: (0x98, lambda value: value.bytes),
    Data.BINARY: (0xB0, lambda value: _U32.pack(len(value)) + bytes(value)),
    Data.STRING: (0xB1, lambda value: _wide(value.encode("utf-8"))),
    Data.SYMBOL: (0xB3, lambda value: _wide(value.encode("ascii"))),
    Data.LIST: (0xD0, lambda value: _wide_compound(value)),
    Data.MAP: (0xD1, lambda value: _wide_compound([part for pair in value.items() for part in pair])),
    Data.ARRAY: (0xF0, lambda value: _array_body(value)),
}


def _wide(raw: bytes) -> bytes:
    return _U32.pack(len(raw)) + raw


def _wide_compound(values: list[Any]) -> bytes:
    body = b"".join([encode_value(value) for value in values])
    return _U32.pack(len(body) + 4) + _U32.pack(len(values)) + body


def _array_body(array: Array) -> bytes:
    try:
        code, encode = _ARRAY_FORMS[array.type]
        elements = b"".join([encode(element) for element in array.elements])
    except (KeyError, struct.error, AttributeError, TypeError, ValueError) as problem:
        raise Unencodable(f"array element does not fit the array's type: {problem}") from None
    head = bytes((code,))
    if array.descriptor is not UNDESCRIBED:
        head = b"\x00" + encode_value(array.descriptor) + head
    return _U32.pack(4 + len(head) + len(elements)) + _U32.pack(len(array.elements)) + head + elements


_ENCODERS: dict[type, Encoder] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    int: _encode_long,
    str: _encode_string,
    bytes: lambda value: _sized(0xA0, 0xB0, value),
    bytearray: lambda value: _sized(0xA0, 0xB0, bytes(value)),
    memoryview: lambda value: _sized(0xA0, 0xB0, bytes(value)),
    float: lambda value: b"\x82" + _F64.pack(value),
    symbol: _encode_symbol,
    ubyte: lambda value: bytes((0x50, value)),
    ushort: lambda value: b"\x60" + _U16.pack(value),
    uint: _encode_uint,
    ulong: _encode_ulong,
    byte: lambda value: b"\x51" + _I8.pack(value),
    short: lambda value: b"\x61" + _I16.pack(value),
    int32: _encode_int32,
    float32: lambda value: b"\x72" + _F32.pack(value),
    decimal32: lambda value: b"\x74" + _U32.pack(value),
    decimal64: lambda value: b"\x84" + _U64.pack(value),
    decimal128: lambda value: b"\x94" + bytes(value),
    char: lambda value: b"\x73" + _U32.pack(ord(value)),
    timestamp: lambda value: b"\x83" + _I64.pack(value),
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    list: _encode_list,
    tuple: _encode_list,
    dict: _encode_map,
    Described: _encode_described,
    Array: lambda value: b"\xf0" + _array_body(value),
}


def encode_value(value: Any) -> bytes:
    """The AMQP encoding of a Python value; raises Unencodable for a value that has none."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        encoder = next((_ENCODERS[base] for base in type(value).__mro__ if base in _ENCODERS), None)
        if encoder is None:
            if isinstance(value, Mapping):
                encoder = _encode_map
            else:
                raise Unencodable(f"a {type(value).__name__} has no AMQP form")
    try:
        return encoder(value)
    except (struct.error, ValueError, TypeError, OverflowError) as problem:
        raise Unencodable(f"{value!r} does not fit {type(value).__name__}: {problem}") from None
    except RecursionError:
        raise Unencodable("the value contains itself or is nested too deeply") from None
