"""Message bytes: taken in, stored, handed out again; whole messages as values."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message as ProtonMessage
from proton import symbol as proton_symbol

from holdfast.amqp import (
    DeliveryPrefix,
    Described,
    MalformedMessage,
    Message,
    PublisherPrefix,
    Unencodable,
    Value,
    decode_message,
    encode_message,
    encode_value,
    ingest,
    offset_text,
    splice,
    split,
    symbol,
    timestamp,
    uint,
    ulong,
)
from holdfast.amqp.messages.message import Sequence
from holdfast.amqp.messages.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    REMEMBERED_MAPS,
)

TARGET, GROUP = symbol("event-streams-target-partition"), symbol("event-streams-group-key")

texts = st.text(max_size=40)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30).map(symbol)
simple = st.one_of(st.integers(-(2**63), 2**63 - 1), texts, st.booleans(), st.floats(allow_nan=False))
annotations = st.dictionaries(names, simple, max_size=4)
ids = st.one_of(st.none(), texts, st.integers(0, 2**64 - 1), st.binary(max_size=20), st.uuids())
maybe = st.one_of(st.none(), texts)
times = st.one_of(st.none(), st.integers(0, 2**45))
bodies: st.SearchStrategy[Any] = st.one_of(
    st.binary(max_size=400),
    st.lists(st.binary(max_size=20), min_size=2, max_size=4),
    simple.map(Value),
    st.lists(simple, max_size=3).map(Sequence),
)
messages = st.builds(
    Message,
    body=bodies,
    application_properties=st.dictionaries(texts, simple, max_size=3),
    message_annotations=annotations,
    delivery_annotations=annotations,
    footer=annotations,
    message_id=ids,
    user_id=st.one_of(st.none(), st.binary(max_size=10)),
    to=maybe,
    subject=maybe,
    reply_to=maybe,
    correlation_id=ids,
    content_type=st.one_of(st.none(), names),
    absolute_expiry_time=times,
    creation_time=times,
    group_id=maybe,
    group_sequence=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    durable=st.one_of(st.none(), st.booleans()),
    priority=st.one_of(st.none(), st.integers(0, 255)),
    ttl=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
)


@given(messages)
def test_a_message_survives_the_way_there_and_back(original: Message) -> None:
    assert decode_message(encode_message(original)) == original


@given(messages, st.one_of(st.none(), texts), st.one_of(st.none(), names))
def test_ingest_then_splice_changes_delivery_annotations_only(
    original: Message, group_key: str | None, target: str | None
) -> None:
    if group_key is not None:
        original.message_annotations = {**original.message_annotations, GROUP: group_key}
    if target is not None:
        original.delivery_annotations = {**original.delivery_annotations, TARGET: symbol(target)}
    stored, target_partition, key = ingest(encode_message(original))
    assert key == group_key
    assert target_partition == target
    assert decode_message(stored).delivery_annotations == {}
    sent = splice(stored, DeliveryPrefix("p-1").build(4242, 1_700_000_000_123))
    original.delivery_annotations = {
        symbol("event-streams-offset"): symbol("0000000000001092"),
        symbol("event-streams-timestamp"): timestamp(1_700_000_000_123),
        symbol("event-streams-source-partition"): symbol("p-1"),
    }
    assert decode_message(sent) == original


@given(
    st.one_of(texts, st.binary(max_size=50), st.integers(-100, 100)),
    st.dictionaries(texts, simple, max_size=3),
    st.one_of(st.none(), texts),
    st.booleans(),
)
def test_what_proton_writes_is_taken_in_and_read_by_proton_again(
    body: Any, properties: dict[str, Any], group_key: str | None, durable: bool
) -> None:
    written = ProtonMessage(body=body, properties=properties or None, durable=durable)
    written.instructions = {proton_symbol(TARGET): proton_symbol("7")}
    if group_key is not None:
        written.annotations = {proton_symbol(GROUP): group_key}
    stored, target_partition, key = ingest(bytes(written.encode()))
    assert (target_partition, key) == ("7", group_key)
    read = ProtonMessage()
    read.decode(splice(stored, DeliveryPrefix("3").build(1, 2)))
    assert read.body == body
    assert (read.properties or {}) == properties
    assert read.durable is durable
    assert read.instructions == {
        "event-streams-offset": offset_text(1),
        "event-streams-timestamp": 2,
        "event-streams-source-partition": "3",
    }


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_in_or_malformed(payload: bytes) -> None:
    for read in (ingest, split, decode_message):
        with contextlib.suppress(MalformedMessage):
            read(payload)


@given(messages, st.data())
def test_damaged_messages_are_taken_in_or_malformed(original: Message, data: st.DataObject) -> None:
    payload = bytearray(encode_message(original))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    try:
        stored = ingest(damaged).stored
    except MalformedMessage:
        pass
    else:
        assert len(stored) <= len(damaged)
        with contextlib.suppress(MalformedMessage):
            splice(stored, b"\x00Sq\xc1\x01\x00")
    with contextlib.suppress(MalformedMessage):
        decode_message(damaged)


def test_a_message_without_annotations_is_stored_as_the_very_object_that_came() -> None:
    for original in (
        Message(b"x" * 100),
        Message(b"x" * 100, durable=True),
        Message(b"x" * 100, message_id="1", application_properties={"a": 1}),
        Message(Value({"a": 1}), durable=True, priority=3, ttl=100_000),
        Message(Value("long enough")),
    ):
        payload = encode_message(original)
        assert ingest(payload).stored is payload


def test_message_annotations_stay_and_delivery_annotations_go() -> None:
    payload = encode_message(
        Message(b"body", durable=True, message_annotations={"x-a": 1}, delivery_annotations={"x-b": 2})
    )
    codes = [section.code for section in split(ingest(payload).stored)]
    assert codes == [HEADER, MESSAGE_ANNOTATIONS, DATA]


def test_hints_are_remembered_within_bounds_and_read_right() -> None:
    for number in range(REMEMBERED_MAPS + 500):
        payload = encode_message(Message(b"body-of-the-message", message_annotations={GROUP: f"key-{number % 4500}"}))
        assert ingest(payload).group_key == f"key-{number % 4500}"
    other = encode_message(Message(b"body-of-the-message", message_annotations={"x-opt": 1, GROUP: "a", "y": [1]}))
    assert ingest(other).group_key == "a"
    assert ingest(other).group_key == "a"


@pytest.mark.parametrize("hint", [5, b"bytes", None, ["a"]])
def test_a_hint_of_the_wrong_type_is_malformed(hint: Any) -> None:
    for message in (
        Message(b"x" * 20, message_annotations={GROUP: hint}),
        Message(b"x" * 20, delivery_annotations={TARGET: hint}),
    ):
        payload = encode_message(message)
        if hint is None:
            assert ingest(payload)[1:] == (None, None)
        else:
            with pytest.raises(MalformedMessage):
                ingest(payload)


def test_other_descriptors_are_read_and_stored_in_the_short_form() -> None:
    long_form = b"\x00\x80" + (0x72).to_bytes(8, "big") + encode_value({GROUP: "k"})
    named = b"\x00" + encode_value(symbol("amqp:data:binary")) + encode_value(b"body")
    ingested = ingest(long_form + named)
    assert ingested.group_key == "k"
    assert ingested.stored == b"\x00Sr" + encode_value({GROUP: "k"}) + b"\x00Su" + encode_value(b"body")
    assert decode_message(long_form + named).body == b"body"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        b"\x00S",
        b"\x00Su",
        b"hello, this is no AMQP message",
        b"\x00Sq\xc1\x01\x00",  # delivery annotations and nothing else
        b"\x00Sr\xc1\xff\x00\x00Su\xa0\x01x",  # annotations longer than the message
        b"\x00Sr\xa0\x01x\x00Su\xa0\x01xxxxx",  # annotations that are no map
        b"\x00Sr\xd1\xff\xff\xff\xff\x00\x00\x00\x00Su\xa0\x01x",
        b"\x00Sp\xc0\xff\x01A\x00Sr",
        b"\x00Sy\x45\x00\x00\x00\x00\x00\x00",  # no such section
        b"\x00\x53\x72\xc1\x01\x00\x00\x53\x72\xc1\x01\x00\x00Su\xa0\x01x",  # twice
    ],
)
def test_malformed_messages(payload: bytes) -> None:
    with pytest.raises(MalformedMessage):
        ingest(payload)


def test_sections_out_of_order_or_mixed_bodies_are_malformed() -> None:
    data, value = b"\x00Su\xa0\x01x", b"\x00Sw\x40"
    header, footer = b"\x00Sp\x45", b"\x00Sx\xc1\x01\x00"
    for payload in (data + header, data + value, value + value, footer + data, header + header + data):
        with pytest.raises(MalformedMessage):
            decode_message(payload)
    sections = split(header + data + data + footer)
    assert [section.code for section in sections] == [HEADER, DATA, DATA, FOOTER]


def test_splicing_keeps_the_header_first() -> None:
    annotations = DeliveryPrefix("0").build(1, 2)
    payload = encode_message(Message(b"x" * 10, durable=True, application_properties={"a": 1}))
    codes = [section.code for section in split(splice(payload, annotations))]
    assert codes == [HEADER, DELIVERY_ANNOTATIONS, APPLICATION_PROPERTIES, DATA]
    bare = encode_message(Message(b"x", message_id=1))
    codes = [section.code for section in split(splice(bare, annotations))]
    assert codes == [DELIVERY_ANNOTATIONS, PROPERTIES, DATA]


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=300),
    st.integers(0, 2**63),
    st.lists(st.tuples(st.integers(0, 2**62), st.booleans()), min_size=1, max_size=5),
)
def test_delivery_prefixes_are_right_for_any_partition_offset_and_time(
    partition: str, base: int, batches: list[tuple[int, bool]]
) -> None:
    prefix = DeliveryPrefix(partition)
    for time_ms, with_header in batches:
        records = [encode_message(Message(b"%d" % number, durable=with_header or None)) for number in range(3)]
        for number, sent in enumerate(prefix.splice_batch(base, time_ms, records)):
            assert sent == splice(records[number], prefix.build(base + number, time_ms))
            read = decode_message(sent)
            assert read.body == b"%d" % number
            assert read.delivery_annotations == {
                "event-streams-offset": offset_text(base + number),
                "event-streams-timestamp": time_ms,
                "event-streams-source-partition": partition,
            }
            assert isinstance(read.delivery_annotations[symbol("event-streams-timestamp")], timestamp)


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=300),
    st.one_of(st.none(), st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 32767), st.integers(0, 2**31 - 1))),
    st.booleans(),
)
def test_prefixes_tell_who_has_published_an_event_and_are_as_long_without(
    partition: str, publisher: tuple[int, int, int] | None, with_header: bool
) -> None:
    prefix = PublisherPrefix(partition)
    records = [encode_message(Message(b"%d" % number, durable=with_header or None)) for number in range(3)]
    sent = prefix.splice_batch(7, 5, records, publisher)
    assert sent[1:] == prefix.splice_chosen(7, 5, records, [1, 2], publisher)
    assert len({len(message) for message in [*sent, *prefix.splice_batch(7, 5, records)]}) == 1
    assert splice(records[0], prefix.build(7, 5)) == prefix.splice_batch(7, 5, records)[0]
    for number, message in enumerate(sent):
        read = decode_message(message)
        assert read.body == b"%d" % number
        found = read.delivery_annotations
        assert (found["event-streams-offset"], found["event-streams-timestamp"]) == (offset_text(7 + number), 5)
        assert found["event-streams-source-partition"] == partition
        told = [found[f"com.microsoft:producer-{name}"] for name in ("id", "epoch", "sequence-number")]
        if publisher is None:
            assert told == [-1, -1, -1]
        else:
            assert told == [publisher[0], publisher[1], (publisher[2] + number) % 2**31]


def test_offsets_sort_as_texts_like_numbers() -> None:
    offsets = [0, 1, 9, 10, 15, 16, 255, 256, 2**32, 2**63]
    assert sorted(map(offset_text, offsets)) == [offset_text(offset) for offset in offsets]
    assert all(len(offset_text(offset)) == 16 for offset in offsets)


@pytest.mark.parametrize(
    "wrong",
    [
        Message(5),  # type: ignore[arg-type]
        Message([1, 2]),  # type: ignore[list-item]
        Message(b"", message_id=-1),
        Message(b"", message_id=1.5),  # type: ignore[arg-type]
        Message(b"", to=5),  # type: ignore[arg-type]
        Message(b"", ttl=2**33),
        Message(b"", content_type="é"),
        Message(b"", application_properties={"a": object()}),
    ],
)
def test_what_cannot_be_a_message_is_refused(wrong: Message) -> None:
    with pytest.raises(Unencodable):
        encode_message(wrong)


def test_types_of_fields_are_those_of_the_specification() -> None:
    payload = encode_message(Message(b"", message_id=5, correlation_id=uuid.UUID(int=7), group_sequence=3))
    message = decode_message(payload)
    assert isinstance(message.message_id, ulong)
    assert message.correlation_id == uuid.UUID(int=7)
    assert isinstance(message.group_sequence, uint)
    nested = Described(symbol("x:y"), [1])
    assert decode_message(encode_message(Message(Value(nested)))).body == Value(nested)
    wrong_field = b"\x00Ss" + encode_value([None, None, 5]) + b"\x00Su\xa0\x00"
    with pytest.raises(MalformedMessage):
        decode_message(wrong_field)
