"""Values: what is written is read again, here and by proton; any bytes end in a value or in MalformedMessage."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import UNDESCRIBED, Data

from holdfast.amqp import (
    Array,
    Described,
    MalformedMessage,
    Unencodable,
    byte,
    char,
    decode_value,
    encode_value,
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
from holdfast.amqp.encoding.codec import MAX_DEPTH, symbol_array, symbols_of

texts = st.text(max_size=300)
symbols = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300).map(symbol)
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 255).map(ubyte),
    st.integers(0, 2**16 - 1).map(ushort),
    st.integers(0, 2**32 - 1).map(uint),
    st.integers(0, 2**64 - 1).map(ulong),
    st.integers(-128, 127).map(byte),
    st.integers(-(2**15), 2**15 - 1).map(short),
    st.integers(-(2**31), 2**31 - 1).map(int32),
    st.integers(-(2**63), 2**63 - 1).map(timestamp),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(float32),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, symbols, st.binary(max_size=300), st.uuids())
chars = st.characters(codec="utf-8").map(char)
symbol_arrays = st.lists(symbols, max_size=5).map(lambda names: Array(UNDESCRIBED, Data.SYMBOL, *names))
keys = st.one_of(texts, symbols, st.integers(0, 99).map(ulong))
values = st.recursive(
    st.one_of(scalars, chars, symbol_arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(keys, inner, max_size=5),
        st.builds(Described, st.one_of(symbols, st.integers(0, 2**64 - 1).map(ulong)), inner),
    ),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in AMQP type, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left), list(right)) and same(list(left.values()), list(right.values()))
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array):
        return left.type == right.type and same(list(left.elements), list(right.elements))
    return left == right


@given(values)
def test_a_value_survives_the_way_there_and_back(value: Any) -> None:
    encoded = encode_value(value)
    decoded, end = decode_value(encoded)
    assert end == len(encoded)
    assert same(decoded, value)


def doubly_described(value: Any) -> bool:
    """Whether a described value directly holds another: proton's codec gets lost behind those."""
    if isinstance(value, Described):
        return isinstance(value.value, Described) or doubly_described(value.value)
    if isinstance(value, dict):
        return any(map(doubly_described, value.values()))
    return isinstance(value, list) and any(map(doubly_described, value))


@given(values.filter(lambda value: not doubly_described(value)))
def test_proton_reads_what_we_write(value: Any) -> None:
    encoded = encode_value(value)
    data = Data()
    assert data.decode(encoded) == len(encoded)
    data.rewind()
    data.next()
    reencoded = data.encode()
    assert same(decode_value(bytes(reencoded))[0], value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    try:
        _, end = decode_value(data)
    except MalformedMessage:
        return
    assert 0 < end <= len(data)


@given(values, st.data())
def test_damaged_values_are_read_or_malformed(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode_value(value))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, end = decode_value(bytes(encoded))
    except MalformedMessage:
        return
    assert end <= len(encoded)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",  # four billion nulls
        b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff",  # a list of four billion without bytes
        b"\xd1\x00\x00\x00\x05\x00\x00\x00\x01\x40",  # a map with a key only
        b"\xc1\x04\x02\x45\x40",  # a map whose key is a list
        b"\xa1\x02\xff\xfe",  # not UTF-8
        b"\xa3\x01\xe9",  # not ASCII
        b"\x73\x00\x11\x00\x00",  # beyond Unicode
        b"\x56\x02",
        b"\xc0\x03\x01\x40\x40",  # bytes after the last element
        b"\xe0\x02\x01\x00",  # an array that ends in its descriptor
        b"\xa0\x05abc",
        b"\x3f",
    ],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_value(data)


def test_nesting_is_bounded_in_both_directions() -> None:
    value: Any = None
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert decode_value(encode_value(value))[0] == value
    with pytest.raises(MalformedMessage):
        decode_value(encode_value([value]))
    with pytest.raises(MalformedMessage):
        decode_value(b"\x00" * 100_000)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unencodable):
        encode_value(loop)


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, object(), symbol("é"), "\ud800", ubyte(300), Described(symbol("x"), {1, 2}), 1j]
)
def test_what_has_no_amqp_form_is_refused(value: Any) -> None:
    with pytest.raises(Unencodable):
        encode_value(value)


def test_subclasses_travel_as_their_base() -> None:
    class Name(str):
        pass

    assert encode_value(Name("x")) == encode_value("x")
    assert encode_value((1, 2)) == encode_value([1, 2])
    assert encode_value(bytearray(b"x")) == encode_value(memoryview(b"x")) == encode_value(b"x")


def test_arrays_of_every_type_are_read() -> None:
    for kind, elements in (
        (Data.BOOL, [True, False]),
        (Data.UINT, [uint(0), uint(1), uint(300)]),
        (Data.ULONG, [ulong(0), ulong(2**60)]),
        (Data.LONG, [-1, 2**40]),
        (Data.STRING, ["a", "é" * 200]),
        (Data.BINARY, [b"", b"x" * 300]),
        (Data.LIST, [[1, "a"], []]),
        (Data.MAP, [{"k": 1}, {}]),
        (Data.TIMESTAMP, [timestamp(5)]),
        (Data.UUID, [uuid.UUID(int=5)]),
        (Data.CHAR, [char("x")]),
        (Data.NULL, [None, None]),
    ):
        array = Array(UNDESCRIBED, kind, *elements)
        decoded, _ = decode_value(encode_value(array))
        assert same(decoded, array)
    described = Array(symbol("x:y"), Data.INT, int32(1))
    decoded, _ = decode_value(encode_value(described))
    assert decoded.descriptor == "x:y"
    with pytest.raises(Unencodable):
        encode_value(Array(UNDESCRIBED, Data.INT, "no number"))


def test_one_or_many_symbols() -> None:
    assert symbols_of(None) == ()
    assert symbols_of(symbol("a")) == ("a",)
    assert symbols_of(decode_value(symbol_array(["a", "b"]))[0]) == ("a", "b")
    assert symbols_of(5) == ()
