"""A record batch comes back as it was written, or not at all."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import Message, encode_message
from holdfast.records.codec import Codec
from holdfast.records.joined_messages import JoinedMessages, put_together, table_of
from node.partition.record_batch import (
    DIGEST_BYTES,
    MAX_RECORDS,
    Attributes,
    Damaged,
    decode_head,
    decode_records,
    encode,
    uncompressed_bytes,
)

records_of = st.lists(st.binary(max_size=200), min_size=1, max_size=60)


@given(records_of, st.integers(0, 2**62))
def test_what_goes_in_comes_out(records: list[bytes], now_ms: int) -> None:
    entry = encode(records, now_ms)
    head = decode_head(entry)
    assert decode_records(entry) == records
    assert (head.count, head.size) == (len(records), len(entry))
    assert (head.first_timestamp_ms, head.max_timestamp_ms) == (now_ms, now_ms)
    assert (head.producer_id, head.producer_epoch, head.base_sequence, head.digests) == (-1, -1, -1, b"")
    assert not head.numbered


@given(records_of, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.randoms())
def test_a_producers_batch_carries_its_numbers_and_a_digest_of_each_record(
    records: list[bytes], producer: int, epoch: int, sequence: int, chance: random.Random
) -> None:
    digests = chance.randbytes(DIGEST_BYTES * len(records))
    entry = encode(records, 1, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, digests=digests)
    head = decode_head(entry)
    assert (head.producer_id, head.producer_epoch, head.base_sequence) == (producer, epoch, sequence)
    assert head.digests == digests
    assert head.numbered
    assert decode_records(entry) == records


@pytest.mark.parametrize("codec", list(Codec))
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_bodies_are_stored_without_heads_and_read_with_them(
    codec: Codec, bodies: list[bytes], start: int, stop: int
) -> None:
    messages = [encode_message(Message(body=body)) for body in bodies]
    data = b"".join(bodies)
    given_bodies = JoinedMessages(table_of(bodies), data, 0, len(data), bodies=True)
    entry = encode(given_bodies, 1, compression=codec)
    assert bool(decode_head(entry).attributes & Attributes.BODIES)
    assert uncompressed_bytes(entry) == len(data)
    found = decode_records(entry)
    assert found == messages
    assert found[start:stop] == messages[start:stop]
    again = encode(found, 1, compression=codec)
    assert again == entry, "what is stored so is passed on so"
    parts = [given_bodies[:1], given_bodies[1:]]
    assert encode(put_together(parts), 1, compression=codec) == entry, "in however many pieces it stands"
    assert not decode_head(encode(messages, 1)).attributes & Attributes.BODIES


def test_a_control_batch_holds_no_body() -> None:
    entry = bytearray(encode([b"marker"], 1, attributes=Attributes.CONTROL, producer_id=5, producer_epoch=0))
    struct.pack_into(">H", entry, 7, Attributes.CONTROL | Attributes.BODIES)
    with pytest.raises(Damaged, match="a control batch"):
        decode_head(bytes(entry))


def test_digests_and_producers_come_together_or_not_at_all() -> None:
    for wrong in ({"producer_id": 1}, {"digests": b"1234"}, {"producer_id": 1, "digests": b"12345678"}):
        with pytest.raises(ValueError, match="digests for 1 records"):
            encode([b"x"], 1, **wrong)  # type: ignore[arg-type]
    entry = bytearray(encode([b"x"], 1, producer_id=5, producer_epoch=0, base_sequence=0, digests=b"1234"))
    entry[2] = 1  # the version without digests
    with pytest.raises(Damaged, match="does not go with producer 5"):
        decode_head(bytes(entry))


@given(records_of, st.data())
def test_any_changed_byte_is_noticed(records: list[bytes], data: st.DataObject) -> None:
    entry = bytearray(encode(records, 1))
    place = data.draw(st.integers(0, len(entry) - 1))
    entry[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Damaged):
        decode_records(bytes(entry))


@given(records_of, st.data())
def test_any_cut_is_noticed(records: list[bytes], data: st.DataObject) -> None:
    entry = encode(records, 1)
    with pytest.raises(Damaged):
        decode_records(entry[: data.draw(st.integers(0, len(entry) - 1))])
    with pytest.raises(Damaged):
        decode_records(entry + b"x")


@given(st.binary(max_size=300))
def test_garbage_never_raises_anything_else(garbage: bytes) -> None:
    for entry in (garbage, b"\0\1\1" + garbage, b"\0\1\2" + garbage):
        for decode in (decode_head, decode_records):
            try:
                decode(entry)
            except Damaged:
                continue


def test_attribute_bits_are_those_of_kip_98() -> None:
    assert (Attributes.APPEND_TIME, Attributes.TRANSACTIONAL, Attributes.CONTROL) == (0x08, 0x10, 0x20)
    both = Attributes.TRANSACTIONAL | Attributes.APPEND_TIME
    assert decode_head(encode([b"x"], 1, attributes=both)).attributes == both
    assert both.compression == 0


@pytest.mark.parametrize("attributes", [0x05, 0x07, 0x40, 0x4000])
def test_attributes_of_the_future_are_not_ignored(attributes: int) -> None:
    entry = bytearray(encode([b"x"], 1))
    struct.pack_into(">H", entry, 7, attributes)
    with pytest.raises(Damaged, match="attributes"):
        decode_head(bytes(entry))


def test_a_batch_is_neither_empty_nor_endless() -> None:
    for count in (0, MAX_RECORDS + 1):
        with pytest.raises(ValueError, match="1 to 65536"):
            encode([b""] * count, 1)
    assert decode_records(encode([b""] * MAX_RECORDS, 1)) == [b""] * MAX_RECORDS


def test_the_head_is_read_without_looking_at_the_records() -> None:
    """A follower applies thousands of batches a second; and what damages one replica's records must not make its
    machine decide otherwise than the others do."""
    entry = encode([b"abc", b"def"], 1)
    spoiled = entry[:-6] + b"......"
    assert decode_head(spoiled) == decode_head(entry)
    with pytest.raises(Damaged, match="checksum"):
        decode_records(spoiled)
