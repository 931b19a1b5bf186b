"""Packed batches: what went in comes out, within the receiver's bounds, or nothing does."""

from __future__ import annotations

import struct
import zlib

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import MalformedMessage, Message, decode_message, encode_message
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import table_of
from holdfast.records.lengths import LENGTH_BYTES
from holdfast.records.packed_batch import (
    HEAD_BYTES,
    MAX_MESSAGES,
    PackedNumbers,
    digests_of,
    pack,
    pack_joined,
    unpack,
)

PLENTY = 1 << 20
CODECS = list(Codec)


def content_of(batch: bytes) -> bytes:
    return decode_message(batch).body


def wrapped(content: bytes) -> bytes:
    return encode_message(Message(body=content))


def batch_of(body: bytes, *, version: int = 2, checksum: int | None = None) -> bytes:
    """`body`: all behind the checksum, which is right unless it is given."""
    return wrapped(struct.pack(">BI", version, crc32c(body) if checksum is None else checksum) + body)


def body_of(
    codec: int,
    lengths: list[int],
    rest: bytes,
    *,
    count: int | None = None,
    form: int = 0,
    numbers: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """`rest`: digests and all that follows."""
    head = struct.pack(">BBIqhi", codec, form, len(lengths) if count is None else count, *numbers)
    return head + struct.pack(f">{len(lengths)}I", *lengths) + rest


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=50))
def test_what_went_in_comes_out(codec: Codec, messages: list[bytes]) -> None:
    packed = pack(messages, codec)
    assert unpack(packed, sum(map(len, messages))) == (messages, None)
    assert len(packed) <= HEAD_BYTES + sum(LENGTH_BYTES + len(one) for one in messages)


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=50), st.none() | st.integers(0, (1 << 31) - 1))
def test_bodies_come_out_as_the_messages_that_have_them_and_with_their_numbers(
    codec: Codec, bodies: list[bytes], first: int | None
) -> None:
    messages = [wrapped(body) for body in bodies]
    numbers = None if first is None else PackedNumbers(7, 3, first, digests_of(bodies))
    packed = pack_joined(table_of(bodies), [b"".join(bodies)], codec, bodies=True, numbers=numbers)
    found = unpack(packed, sum(map(len, bodies)))
    assert found == (messages, numbers)
    assert (found.messages.bodies, found.messages.parts()) == (True, bodies)
    if numbers is not None:
        assert numbers.digests == struct.pack(f">{len(messages)}I", *map(crc32c, messages))


def test_messages_that_say_of_themselves_what_they_are_get_no_numbers() -> None:
    with pytest.raises(ValueError, match="digests"):
        pack_joined(table_of([b"a"]), [b"a"], numbers=PackedNumbers(7, 0, 1, bytes(4)))
    with pytest.raises(ValueError, match="3 bytes of digests"):
        pack_joined(table_of([b"a"]), [b"a"], bodies=True, numbers=PackedNumbers(7, 0, 1, bytes(3)))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_messages_that_are_alike_get_smaller_and_others_stay_as_they_are(codec: Codec) -> None:
    alike = [b"price of IBM: %d" % (number % 7) for number in range(200)]
    assert len(pack(alike, codec)) < len(pack(alike)) / 3
    few = [b"ab"]
    assert pack(few, codec) == pack(few)


def test_the_size_that_its_receiver_takes_bounds_it_before_room_is_made() -> None:
    alike = [bytes(1000)] * 100
    for codec in CODECS:
        assert unpack(pack(alike, codec), 100_000).messages == alike
        with pytest.raises(MalformedMessage, match="have 100000 bytes; at most 99999"):
            unpack(pack(alike, codec), 99_999)


def test_a_stream_that_holds_more_than_the_table_says_is_refused() -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    stream = bomb.compress(bytes(10 << 20)) + bomb.flush()
    with pytest.raises(MalformedMessage, match="more than the 600 bytes"):
        unpack(batch_of(body_of(Codec.GZIP, [600], stream)), PLENTY)


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (b"", "not one data section"),
        (wrapped(b"a plain event that is long enough"), "version 97"),
        (wrapped(b"ab"), "too short"),
        (pack([b"ab"]) + b"\x00", "not one data section"),
        (b"\x00Sw\xa1\x04text", "not one data section"),
        (batch_of(body_of(0, [2], b"ab"), version=1), "version 1"),
        (batch_of(body_of(0, [2], b"ab"), checksum=7), "checksum"),
        (pack([b"ab", b"cd"])[:-1] + b"e", "checksum"),
        (batch_of(body_of(0, [], b"")), "claims 0 messages"),
        (batch_of(body_of(0, [1], b"a", count=2)), "claims 2 messages"),
        (batch_of(body_of(0, [0] * (MAX_MESSAGES + 1), b"")), "claims 65537 messages"),
        (batch_of(body_of(0, [2, 2], b"abc")), "should have 4 bytes, not 3"),
        (batch_of(body_of(0, [2], b"abc")), "should have 2 bytes, not 3"),
        (batch_of(body_of(0, [2], b"ab", form=2)), "form 2"),
        (batch_of(body_of(0, [2], b"1234ab", numbers=(7, 0, 1))), "form 0 of a packed batch, with numbers"),
        (batch_of(body_of(0, [0], b"123", form=1, numbers=(7, 0, 1))), "claims 1 messages"),
        (batch_of(body_of(0, [3], b"1234ab", form=1, numbers=(7, 0, 1))), "should have 3 bytes, not 2"),
        (batch_of(body_of(2, [600], b"abc")), r"snappy \(codec 2\)"),
        (batch_of(body_of(9, [600], b"abc")), r"unknown \(codec 9\)"),
        (batch_of(body_of(Codec.ZSTD, [600], b"abc")), "does not decompress"),
        (batch_of(body_of(Codec.GZIP, [0], b"abc")), "does not decompress"),
    ],
)
def test_what_is_no_packed_batch_says_why(batch: bytes, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        unpack(batch, PLENTY)


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 255))
def test_damage_is_noticed(messages: bytes, place: int, change: int) -> None:
    """Whatever is changed behind the head of the section."""
    batch = bytearray(pack([messages, b"another"]))
    place = min(place, len(batch) - 1)
    before = batch[place]
    batch[place] = change
    try:
        assert unpack(bytes(batch), PLENTY).messages == [messages, b"another"]
    except MalformedMessage:
        assert change != before
    else:
        assert change == before


def test_only_so_many_messages_fit() -> None:
    with pytest.raises(ValueError, match="1 to 65536"):
        pack([b""] * (MAX_MESSAGES + 1))
    with pytest.raises(ValueError, match="1 to 65536"):
        pack([])
    assert content_of(pack([b"a"]))[:1] == b"\x02"
