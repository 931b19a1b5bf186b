"""Reading the numbers off messages: they are not stored, and nothing wrong gets through."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import Message, encode_message, int32, short, symbol, ulong
from node.listener.incoming.idempotent_producers.sequence_annotations import Run, SequenceNumberReader
from tests.unit.listener.support.producing import (
    ARGUMENT_ERROR,
    EPOCH,
    ID,
    OUT_OF_RANGE,
    SEQUENCE,
    event,
    events,
    terms,
)

PRODUCER, EPOCH_NUMBER = 1 << 52, 3


@pytest.fixture
def reader() -> SequenceNumberReader:
    return SequenceNumberReader(PRODUCER, EPOCH_NUMBER, "0")


def body_of(contents: bytes, **more: Any) -> bytes:
    """What is stored of an event with nothing but a body."""
    return encode_message(Message(body=contents, **more))


def of_letters(first: int, letters: str) -> list[bytes]:
    return events(PRODUCER, EPOCH_NUMBER, first, letters)


def digests(records: list[bytes]) -> bytes:
    return b"".join(struct.pack(">I", crc32c(record)) for record in records)


def test_a_run_is_stored_without_its_numbers_and_with_a_digest_of_each_event(reader: SequenceNumberReader) -> None:
    runs, wrong = reader.read(of_letters(1000, "abc"))
    stored = [body_of(letter) for letter in (b"a", b"b", b"c")]
    assert wrong is None
    assert runs == [Run(0, 3, stored, 1000, digests(stored))]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 5, 120, 126, 127, 128, 255, 256, 65_535, 2**24 - 1, 2**31 - 3]),
            st.integers(1, 9),
            st.sampled_from(["plain", "header", "properties", "more annotations", "delivery annotations", "wide"]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_events_are_stored_without_their_numbers_whatever_else_they_carry(
    blocks: list[tuple[int, int, str]], chance: random.Random
) -> None:
    reader = SequenceNumberReader(PRODUCER, EPOCH_NUMBER, "0")
    for first, count, kind in blocks:
        payloads, stored, bodies = [], [], []
        for place in range(count):
            contents = chance.randbytes(chance.choice([0, 3, 300]))
            given_, kept, digested = dress(kind, (first + place) % 2**31, contents)
            payloads.append(given_)
            stored.append(kept)
            bodies.append(digested)
        runs, wrong = reader.read(payloads)
        assert wrong is None
        assert [record for run in runs for record in run.records] == stored
        assert b"".join(run.digests for run in runs) == digests(bodies)
        assert [(run.start, run.stop) for run in runs] == [(0, count)]
        assert runs[0].first == first


def dress(kind: str, number: int, contents: bytes) -> tuple[bytes, bytes, bytes]:
    """(as sent, as stored, what the digest covers) of an event."""
    more: dict[str, Any] = {}
    others: dict[str, Any] = {}
    delivery: dict[str, Any] = {}
    if kind == "header":
        more = {"durable": True, "delivery_count": 3}
    if kind == "properties":
        more = {"message_id": "m", "application_properties": {"k": 1}}
    if kind == "more annotations":
        others = {symbol("x-trace"): ulong(7), symbol("com.microsoft:producer-other"): ["a", 1.5]}
    if kind == "wide":
        others = {symbol("x-long"): "l" * 300}
    if kind == "delivery annotations":
        delivery = {symbol("event-streams-target-partition"): symbol("0")}
    annotations = terms(PRODUCER, EPOCH_NUMBER, number) | others
    sent = encode_message(
        Message(body=contents, message_annotations=annotations, delivery_annotations=delivery, **more)
    )
    stored = encode_message(Message(body=contents, message_annotations=others, **more))
    digested = encode_message(Message(body=contents, **({} if kind == "header" else more)))
    return sent, stored, digested


def test_the_digest_leaves_out_what_belongs_to_the_hop(reader: SequenceNumberReader) -> None:
    first = event(PRODUCER, EPOCH_NUMBER, 9, b"same", delivery_count=0, durable=True)
    again = event(PRODUCER, EPOCH_NUMBER, 9, b"same", delivery_count=1, message_annotations={symbol("x-hop"): 2})
    other = event(PRODUCER, EPOCH_NUMBER, 9, b"same", application_properties={"not": "the same"})
    found = [reader.read([payload])[0][0].digests for payload in (first, again, other)]
    assert found[0] == found[1] != found[2]


def test_numbers_that_do_not_follow_make_runs_of_their_own(reader: SequenceNumberReader) -> None:
    payloads = of_letters(126, "abcd") + of_letters(500, "ef") + of_letters(500, "ef") + of_letters(2**31 - 1, "gh")
    runs, wrong = reader.read(payloads)
    assert wrong is None
    assert [(run.start, run.stop, run.first) for run in runs] == [
        (0, 4, 126), (4, 6, 500), (6, 8, 500), (8, 10, 2**31 - 1)
    ]  # fmt: skip


def test_any_integer_type_will_do(reader: SequenceNumberReader) -> None:
    annotations = {ID: ulong(PRODUCER), EPOCH: EPOCH_NUMBER, SEQUENCE: 77}
    runs, wrong = reader.read([encode_message(Message(body=b"x", message_annotations=annotations))])
    assert wrong is None
    assert runs[0].first == 77


GOOD = terms(PRODUCER, EPOCH_NUMBER, 200)


@pytest.mark.parametrize(
    ("annotations", "condition", "about"),
    [
        ({}, ARGUMENT_ERROR, f"lacks {ID}, {EPOCH}, {SEQUENCE}"),
        ({key: value for key, value in GOOD.items() if key != ID}, ARGUMENT_ERROR, f"lacks {ID}"),
        ({key: value for key, value in GOOD.items() if key != SEQUENCE}, ARGUMENT_ERROR, f"lacks {SEQUENCE}"),
        (GOOD | {EPOCH: None}, ARGUMENT_ERROR, f"lacks {EPOCH}"),
        (GOOD | {SEQUENCE: "200"}, ARGUMENT_ERROR, "must be an integer, not a str"),
        (GOOD | {SEQUENCE: True}, ARGUMENT_ERROR, "must be an integer, not a bool"),
        (GOOD | {SEQUENCE: int32(-1)}, OUT_OF_RANGE, "lies between 0 and 2147483647, not at -1"),
        (GOOD | {SEQUENCE: 2**31}, OUT_OF_RANGE, "not at 2147483648"),
        (GOOD | {EPOCH: short(-1)}, OUT_OF_RANGE, "between 0 and 32767, not at -1"),
        (GOOD | {EPOCH: short(EPOCH_NUMBER + 1)}, ARGUMENT_ERROR, f"{EPOCH} is 4, but the link was granted 3"),
        (GOOD | {ID: PRODUCER + 1}, ARGUMENT_ERROR, "but the link was granted"),
    ],
)
def test_a_message_with_wrong_terms_stops_the_reading(annotations: dict[str, Any], condition: str, about: str) -> None:
    bad = encode_message(Message(body=b"x", message_annotations=annotations))
    reader = SequenceNumberReader(PRODUCER, EPOCH_NUMBER, "0")
    runs, wrong = reader.read([*of_letters(198, "ab"), bad, *of_letters(201, "c")])
    assert wrong is not None
    assert (wrong.position, wrong.error.condition) == (2, condition)
    assert about in (wrong.error.description or "")
    assert [(run.start, run.stop) for run in runs] == [(0, 2)]


def test_a_term_stated_twice_is_refused(reader: SequenceNumberReader) -> None:
    pair = b"\xa3\x26" + SEQUENCE.encode() + b"\x71\x00\x00\x01\x00"
    assert len(SEQUENCE) == 0x26
    whole = event(PRODUCER, EPOCH_NUMBER, 256)
    size = whole[4]
    twice = whole[:4] + bytes((size + len(pair), 8)) + pair + whole[6:]
    _, wrong = reader.read([twice])
    assert wrong is not None
    assert "states a number twice" in (wrong.error.description or "")


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (b"", "amqp:decode-error"),
        (b"nonsense", "amqp:decode-error"),
        (event(PRODUCER, EPOCH_NUMBER, 200)[:20], "amqp:decode-error"),
        (event(PRODUCER, EPOCH_NUMBER, 200).split(b"\x00Su")[0], "amqp:decode-error"),
        (
            event(PRODUCER, EPOCH_NUMBER, 200, delivery_annotations={symbol("event-streams-target-partition"): "1"}),
            "amqp:precondition-failed",
        ),
    ],
)
def test_what_is_no_message_or_for_elsewhere_stops_the_reading(payload: bytes, condition: str) -> None:
    reader = SequenceNumberReader(PRODUCER, EPOCH_NUMBER, "0")
    _, wrong = reader.read([payload])
    assert wrong is not None
    assert (wrong.position, wrong.error.condition) == (0, condition)


@given(st.integers(0, 200), st.integers(0, 255), st.integers(0, 20))
def test_a_changed_byte_is_never_taken_for_the_run_that_was_meant(place: int, value: int, victim: int) -> None:
    """The events in front of it are read as before, and so are those behind it if it can still be read."""
    whole = of_letters(5000, "abcdefghijklmnopqrstu")
    ((_, _, expected, _, _),), _ = SequenceNumberReader(PRODUCER, EPOCH_NUMBER, "0").read(whole)
    changed = bytearray(whole[victim])
    changed[place % len(changed)] = value
    payloads = [*whole[:victim], bytes(changed), *whole[victim + 1 :]]
    runs, wrong = SequenceNumberReader(PRODUCER, EPOCH_NUMBER, "0").read(payloads)
    found = {
        run.first + at: record for run in runs for at, record in enumerate(run.records) if run.start + at != victim
    }
    intact = range(len(whole)) if wrong is None else range(victim)
    assert found == {5000 + at: expected[at] for at in intact if at != victim}
    assert wrong is None or wrong.position == victim


def test_a_message_that_does_not_say_its_number_is_wrong(reader: SequenceNumberReader) -> None:
    for payloads, place in (([body_of(b"a")], 0), ([*of_letters(5, "x"), body_of(b"a"), *of_letters(6, "y")], 1)):
        runs, wrong = reader.read(payloads)
        assert [(run.first, run.stop) for run in runs] == ([(5, 1)] if place else [])
        assert wrong is not None
        assert (wrong.position, wrong.error.condition) == (place, ARGUMENT_ERROR)
