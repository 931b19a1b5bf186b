"""Packed deliveries: events of a partition come out as they went in, or nothing does."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import MalformedMessage, Message, encode_message
from holdfast.records.joined_messages import JoinedMessages, table_of
from holdfast.records.packed_delivery import Run, pack, unpack

RUN = struct.Struct(">qqIqhi")


def delivery_of(body: bytes, *, version: int = 2, checksum: int | None = None) -> bytes:
    """`body`: all behind the checksum, which is right unless it is given."""
    lead = struct.pack(">BI", version, crc32c(body) if checksum is None else checksum)
    return encode_message(Message(body=lead + body))


def body_of(
    runs: list[tuple[int, int]], lengths: list[int], rest: bytes, *, count: int | None = None, form: int = 0
) -> bytes:
    """`runs`: offset and number of events."""
    heads = b"".join(RUN.pack(offset, 5, events, -1, -1, -1) for offset, events in runs)
    table = struct.pack(f">{len(lengths)}I", *lengths)
    return struct.pack(">BI", form, len(runs) if count is None else count) + heads + table + rest


parts = st.lists(
    st.tuples(
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 45),
        st.lists(st.binary(max_size=300), min_size=1, max_size=20),
        st.none() | st.tuples(st.integers(0, 1 << 62), st.integers(0, 32767), st.integers(0, (1 << 31) - 1)),
    ),
    min_size=1,
    max_size=5,
)


@given(parts)
def test_what_went_in_comes_out(
    given_parts: list[tuple[int, int, list[bytes], tuple[int, int, int] | None]],
) -> None:
    runs, events, at = [], [], 0
    for gap, time_ms, some, publisher in given_parts:
        runs.append(Run(at + gap, time_ms, len(some), publisher))
        at += gap + len(some)
        events += some
    found = unpack(pack(runs, [some for _, _, some, _ in given_parts]))
    assert (found.runs, found.events(), found.last_offset) == (runs, events, at - 1)
    assert list(found.messages.ends) == list(accumulate(map(len, events)))


def joined(messages: list[bytes], *, bodies: bool) -> JoinedMessages:
    data = b"".join(messages)
    return JoinedMessages(table_of(messages), data, 0, len(data), bodies=bodies)


@pytest.mark.parametrize("mixed", [False, True])
def test_bodies_stay_bodies_unless_there_are_others_among_them(mixed: bool) -> None:
    whole = encode_message(Message(body=b"whole"))
    parts = [joined([b"ab", b""], bodies=True), joined([whole], bodies=False) if mixed else joined([b"x"], bodies=True)]
    found = unpack(pack([Run(7, 1, 2), Run(20, 2, 1)], parts))
    assert found.messages.bodies is not mixed
    last = whole if mixed else encode_message(Message(body=b"x"))
    assert found.events() == [encode_message(Message(body=b"ab")), encode_message(Message(body=b"")), last]


def test_a_bit_that_was_turned_or_a_byte_that_is_missing_is_noticed() -> None:
    whole = pack([Run(7, 1, 2), Run(20, 2, 1, (5, 0, 9))], [[b"a", b"bc", b"def"]])
    for place in range(len(whole)):
        for bit in (1, 128):
            turned = bytearray(whole)
            turned[place] ^= bit
            with pytest.raises(MalformedMessage):
                unpack(bytes(turned))
        with pytest.raises(MalformedMessage):
            unpack(whole[:place])
    with pytest.raises(MalformedMessage):
        unpack(whole + b"x")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (encode_message(Message(body=b"")), "too short"),
        (b"\x00Sw\xa1\x01x", "not one data section"),
        (delivery_of(body_of([(0, 1)], [1], b"x"), version=1), "version 1"),
        (delivery_of(body_of([(0, 1)], [1], b"x"), checksum=1), "checksum"),
        (delivery_of(body_of([(0, 1)], [1], b"x", form=2)), "form 2"),
        (delivery_of(body_of([], [], b"")), "claims 0 runs"),
        (delivery_of(body_of([(0, 1)], [1], b"x", count=1 << 31)), "claims 2147483648 runs"),
        (delivery_of(body_of([(0, 1 << 31)], [1], b"x")), "claims 2147483648 events"),
        (delivery_of(body_of([(0, 70_000)], [0] * 70_000, b"")), "claims 70000 events"),
        (delivery_of(body_of([(0, 2)], [1, 5], b"x")), "should have 6 bytes, not 1"),
        (delivery_of(body_of([(0, 1)], [1], b"xy")), "should have 1 bytes, not 2"),
        (delivery_of(body_of([(0, 0)], [], b"")), "a run of 0 events"),
        (delivery_of(body_of([(-1, 1)], [1], b"x")), "at offset -1"),
        (delivery_of(body_of([(5, 2), (6, 1)], [1, 1, 1], b"xyz")), "at offset 6, behind those before 7"),
    ],
)
def test_what_is_claimed_must_be_there(message: bytes, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        unpack(message)
