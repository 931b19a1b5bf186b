"""Message annotations taken apart without decoding them, and put together without some."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import (
    DeliveryPrefix,
    MalformedMessage,
    Message,
    annotated,
    annotations_without,
    decode_message,
    decode_value,
    encode_message,
    encode_value,
    ingest,
    int32,
    message_annotations,
    short,
    symbol,
    ulong,
)

names = st.sampled_from(["a", "com.microsoft:producer-id", "x-opt-partition-key", "n" * 40])
values: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(ulong),
    st.integers(-(2**15), 2**15 - 1).map(short),
    st.integers(-(2**31), 2**31 - 1).map(int32),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.lists(st.integers(0, 9), max_size=5),
)
annotations = st.dictionaries(names.map(symbol), values, max_size=4)


@given(annotations, st.booleans())
def test_every_entry_is_found_where_it_stands(given_: dict[Any, Any], headed: bool) -> None:
    message = encode_message(Message(body=b"body", message_annotations=given_, durable=headed or None))
    found = message_annotations(message)
    if not given_:
        assert found is None
        return
    assert found is not None
    assert {entry.key: decode_value(message, entry.value, entry.end)[0] for entry in found.entries} == given_
    assert message[found.end : found.end + 3] == b"\x00Su"
    assert message[found.start : found.start + 3] == b"\x00Sr"


@given(annotations, st.sets(names))
def test_what_is_left_is_as_it_was(given_: dict[Any, Any], without: set[str]) -> None:
    message = encode_message(Message(body=b"body", message_annotations=given_))
    found = message_annotations(message)
    if found is None:
        return
    section = annotations_without(message, found, frozenset(without))
    left = {key: value for key, value in given_.items() if key not in without}
    assert section == (encode_message(Message(message_annotations=left))[: len(section)] if left else b"")
    again = message[: found.start] + section + message[found.end :]
    assert decode_message(again).message_annotations == left


@given(st.binary(max_size=60), st.sampled_from([b"\x00Sr\xc1", b"\x00Sr\xd1", b"\x00SpE\x00Sr\xc1", b""]))
def test_garbage_is_malformed_or_has_none(tail: bytes, head: bytes) -> None:
    try:
        stored = ingest(head + tail).stored
        message_annotations(stored)
    except MalformedMessage:
        return


def test_keys_that_are_no_symbols_do_no_harm() -> None:
    body = b"\x45\x40" + b"\xa3\x01a\x54\x05"  # a list as a key: what a hostile peer may send
    message = b"\x00Sr\xc1" + bytes((len(body) + 1, 4)) + body + b"\x00Su\xa0\x01x"
    found = message_annotations(message)
    assert found is not None
    assert annotations_without(message, found, frozenset({"a"})) == b"\x00Sr\xc1\x03\x02\x45\x40"


@given(st.text("abc-0", min_size=1, max_size=300), st.booleans(), st.integers(0, 2**60))
def test_an_outgoing_message_gets_one_more_delivery_annotation(partition: str, headed: bool, offset: int) -> None:
    stored = encode_message(Message(body=b"body", durable=headed or None, application_properties={"k": 1}))
    [message] = DeliveryPrefix(partition).splice_batch(offset, 5, [stored])
    more = decode_message(annotated(message, "another", encode_value(["x" * 300])))
    plain = decode_message(message)
    assert more.delivery_annotations == plain.delivery_annotations | {"another": ["x" * 300]}
    assert (more.body, more.application_properties, more.durable) == (b"body", {"k": 1}, plain.durable)
    with pytest.raises(MalformedMessage):
        annotated(stored, "another", encode_value(1))
