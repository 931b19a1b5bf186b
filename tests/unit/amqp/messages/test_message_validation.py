"""What may enter a log: every message that passes can be decoded, and every one that can be decoded passes."""

from __future__ import annotations

from sys import hash_info
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp import MalformedMessage, Message, Value, decode_message, decode_value, encode_message, ingest
from holdfast.amqp.encoding.codec import encode_value, symbol
from holdfast.amqp.encoding.decoder import MAX_ALIKE
from holdfast.amqp.messages import message_validation, sections
from holdfast.amqp.messages.message import Sequence
from holdfast.amqp.messages.message_validation import all_data, check_message, ends_in_data
from holdfast.amqp.messages.sections import MAX_VALUES

DATA = b"\x00Su"


def passes(payload: bytes) -> bool:
    try:
        check_message(payload)
    except MalformedMessage:
        return False
    return True


def decodes(payload: bytes) -> bool:
    try:
        decode_message(payload)
    except MalformedMessage:
        return False
    return True


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8) | st.binary(max_size=8)
    | st.floats() | st.uuids() | st.text("abc", max_size=5).map(symbol),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
messages = st.builds(
    Message,
    body=st.binary(max_size=300) | st.lists(st.binary(max_size=9), min_size=1, max_size=3) | st.builds(Value, values)
    | st.builds(Sequence, st.lists(values, max_size=3)),
    application_properties=st.dictionaries(st.text(max_size=300), values, max_size=3),
    message_annotations=st.dictionaries(st.text("xyz-", min_size=1, max_size=9), values, max_size=3),
    footer=st.dictionaries(st.text("xyz-", min_size=1, max_size=9), values, max_size=2),
    message_id=st.none() | st.text(max_size=9) | st.uuids() | st.binary(max_size=9) | st.integers(0, 2**64 - 1),
    subject=st.none() | st.text(max_size=9),
    content_type=st.none() | st.just("text/plain"),
    creation_time=st.none() | st.integers(0, 2**60),
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 255),
    ttl=st.none() | st.integers(0, 2**32 - 1),
)  # fmt: skip


@given(messages)
def test_every_message_that_can_be_written_passes(message: Message) -> None:
    check_message(encode_message(message))


@given(messages, st.data())
@settings(max_examples=150)
def test_a_message_with_a_byte_or_two_changed_passes_if_it_can_be_decoded_and_only_then(
    message: Message, data: st.DataObject
) -> None:
    payload = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(payload) - 1))
        change = data.draw(st.sampled_from(("set", "cut", "add")))
        if change == "set":
            payload[at] = data.draw(st.integers(0, 255))
        elif change == "cut" and len(payload) > 1:
            del payload[at]
        else:
            payload.insert(at, data.draw(st.integers(0, 255)))
    assert passes(bytes(payload)) == decodes(bytes(payload))


@given(st.binary(max_size=60))
@settings(max_examples=150)
def test_any_bytes_behind_a_section_pass_if_they_can_be_decoded_and_only_then(tail: bytes) -> None:
    for head in (b"\x00Sw", b"\x00Ss", b"\x00St", b"\x00Sp", b"\x00Sv", b"\x00Sw\xf0", b"\x00Sr\xc1"):
        payload = head + tail
        assert passes(payload) == decodes(payload)


POISON = {
    "a data section that holds a string": DATA + b"\xa1\x03abc",
    "bytes behind the body": DATA + b"\xa0\x01xtail",
    "a body that is cut off": DATA + b"\xa0\x05abc",
    "three thousand nested values": b"\x00Sw" + b"\x00\x53\x01" * 3000 + b"\x40",
    "three thousand nested lists": b"\x00Sw" + encode_value([]) * 0 + b"\xc0\x02\x01" * 3000 + b"\x40",
    "an unknown type": b"\x00Sw\x57\x00",
    "a text that is not UTF-8": b"\x00Sw\xa1\x02\xff\xfe",
    "properties of another type": b"\x00Ss\xa1\x01a" + DATA + b"\xa0\x01x",
    "an address that is a number": b"\x00Ss\xc0\x05\x03\x40\x40\x52\x07" + DATA + b"\xa0\x01x",
    "sections in the wrong order": DATA + b"\xa0\x01x" + b"\x00Ss\x45",
    "nothing": b"",
    "no section": b"x",
}


@pytest.mark.parametrize("payload", POISON.values(), ids=POISON.keys())
def test_what_no_reader_can_decode_is_refused(payload: bytes) -> None:
    assert not decodes(payload)
    with pytest.raises(MalformedMessage):
        check_message(payload)


def test_the_number_of_values_is_bounded_but_a_long_array_of_numbers_is_one() -> None:
    many = b"\x00Sw\xd0" + (MAX_VALUES + 4).to_bytes(4, "big") + MAX_VALUES.to_bytes(4, "big") + b"\x40" * MAX_VALUES
    with pytest.raises(MalformedMessage, match="more than"):
        check_message(many)
    size = 8 * 2 * MAX_VALUES
    array = (size + 5).to_bytes(4, "big") + (2 * MAX_VALUES).to_bytes(4, "big") + b"\x81" + bytes(size)
    check_message(b"\x00Sw\xf0" + array)


def test_nested_collections_count_what_is_in_all_of_them() -> None:
    half = MAX_VALUES // 2
    inner = b"\xd0" + (half + 4).to_bytes(4, "big") + half.to_bytes(4, "big") + b"\x40" * half
    body = b"\xd0" + (2 * len(inner) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + inner * 2
    with pytest.raises(MalformedMessage, match="more than"):
        check_message(b"\x00Sw" + body)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_the_usual_shape_is_seen_at_a_glance_and_only_it(size: int) -> None:
    short = DATA + b"\xa0" + bytes((size,)) + b"x" * size if size < 256 else b""
    long = DATA + b"\xb0" + size.to_bytes(4, "big") + b"x" * size
    for payload in filter(None, (short, long)):
        assert all_data([payload] * 3)
        assert ends_in_data(b"front" + payload, 5)
        for wrong in (payload + b"x", payload[:-1]):
            assert not all_data([payload, wrong])
            assert not ends_in_data(b"front" + wrong, 5)


def test_what_is_remembered_of_sizes_is_bounded() -> None:
    for size in range(8, 8 + 2 * message_validation._SIZES_KNOWN):
        all_data([bytes(size)])
    assert len(message_validation.DATA_HEADS) <= message_validation._SIZES_KNOWN


def uuids(alike: int, other: int = 0) -> bytes:
    """A map whose keys are UUIDs: so many of one hash, and others."""
    numbers = [1 + place * hash_info.modulus for place in range(alike)] + [2 + place for place in range(other)]
    items = b"".join(b"\x98" + number.to_bytes(16, "big") + b"\x40" for number in numbers)
    return b"\xd1" + (len(items) + 4).to_bytes(4, "big") + (2 * len(numbers)).to_bytes(4, "big") + items


@pytest.mark.parametrize("section", [0x72, 0x74, 0x77])
def test_keys_that_were_chosen_to_collide_are_refused(section: int) -> None:
    """8,000 of them took 8 s to put into a dict."""
    body = b"\x00Su\xa0\x01x" if section < 0x75 else b""
    good, bad = (bytes((0, 0x53, section)) + made + body for made in (uuids(MAX_ALIKE, 500), uuids(MAX_ALIKE + 1, 500)))
    check_message(good)
    decode_message(good)
    ingest(good)
    for question in (check_message, decode_message, *((ingest,) if section == 0x72 else ())):
        with pytest.raises(MalformedMessage, match="UUIDs"):
            question(bad)
    assert len(decode_value(uuids(0, 5000))[0]) == 5000


def test_annotations_of_too_many_values_are_not_decoded() -> None:
    items = b"".join(b"\xa3\x04" + b"%04x" % place + b"\x45" for place in range(MAX_VALUES // 2 + 1))
    many = b"\xd1" + (len(items) + 4).to_bytes(4, "big") + (MAX_VALUES + 2).to_bytes(4, "big") + items
    for section in (b"\x00Sq", b"\x00Sr"):
        with pytest.raises(MalformedMessage, match="annotations with more than"):
            ingest(section + many + b"\x00Su\xa0\x01x")


@pytest.mark.parametrize("question", [check_message, decode_message, ingest])
def test_a_section_whose_descriptor_is_no_name_is_not_decoded(question: Any) -> None:
    """A list of a million there was made before it was refused."""
    with mock.patch.object(sections, "decode_value", side_effect=AssertionError("it was decoded")):
        for descriptor in (b"\xd0\x00\x00\x00\x08\x00\x00\x00\x04\x45\x45\x45\x45", b"\x45", b"\xa1\x01x", b"\x44"):
            with pytest.raises(MalformedMessage, match="descriptor"):
                question(b"\x00" + descriptor + b"\x45")
