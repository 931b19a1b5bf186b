"""The AMQP type system as Python values: `decode_value` and `encode_value`.

Why not proton's Data codec: it builds a tree in C that is then walked with one foreign call per node (about 150
ns each), hands out binary values as views of memory that it frees later, and lets an array of four billion
empty elements through. This codec reads the bytes once, copies what it returns and is bounded: every size is
checked against what is there, nesting is limited, so any input ends in a value or in MalformedMessage. The
*types* are proton's own (symbol, ulong, timestamp, Described, ...), so values can be passed to and from proton
programs unchanged.

Mapping: int <-> long, str <-> string, bytes <-> binary, float <-> double, bool, None, UUID, list, dict; the
other AMQP types are the subclasses exported below. Written integers take their smallest form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

from holdfast.amqp.encoding.decoder import MAX_DEPTH, decode_value
from holdfast.amqp.encoding.encoder import encode_value

__all__ = [
    "MAX_DEPTH",
    "Array",
    "Described",
    "byte",
    "char",
    "decimal32",
    "decimal64",
    "decimal128",
    "decode_value",
    "encode_symbol_map",
    "encode_value",
    "float32",
    "int32",
    "short",
    "symbol",
    "symbol_array",
    "symbols_of",
    "timestamp",
    "ubyte",
    "uint",
    "ulong",
    "ushort",
]


def encode_symbol_map(values: Mapping[str, Any]) -> bytes:
    """A map whose keys are written as symbols (`fields` and annotations in the specification's words)."""
    return encode_value({symbol(key): value for key, value in values.items()})


def symbol_array(names: Iterable[str]) -> bytes:
    """An array of symbols: how lists of capabilities travel."""
    undescribed: Any = UNDESCRIBED
    return encode_value(Array(undescribed, Data.SYMBOL, *[symbol(name) for name in names]))


def string_array(values: Iterable[str]) -> Array:
    """An array of strings, as a value."""
    undescribed: Any = UNDESCRIBED
    return Array(undescribed, Data.STRING, *map(str, values))


def symbols_of(value: Any) -> tuple[str, ...]:
    """Reads "one or many symbols": AMQP lets a peer send null, a single symbol or an array of them."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, Array)):
        return tuple(item for item in value if isinstance(item, str))
    return ()
