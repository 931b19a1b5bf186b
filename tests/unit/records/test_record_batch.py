"""The record batch: what was put in comes out of it, behind whatever head, or its reader is told why not."""

from __future__ import annotations

import struct
import zlib
from itertools import accumulate

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp import Message, encode_message
from holdfast.records.codec import Codec
from holdfast.records.record_batch import (
    HEAD_BYTES,
    MAX_RECORDS,
    BatchHead,
    Damaged,
    Numbering,
    OpenBatch,
    RecordBatch,
    read_batch,
)

CODECS = list(Codec)
bodies = st.lists(st.binary(max_size=300), min_size=1, max_size=40) | st.lists(
    st.binary(min_size=7, max_size=7), min_size=1, max_size=300
)
parts = st.lists(st.tuples(bodies, st.booleans()), min_size=1, max_size=4)


def message(body: bytes) -> bytes:
    return encode_message(Message(body=body))


def sealed(
    records: list[bytes], codec: Codec = Codec.NONE, digests: bytes = b"", *, are_bodies: bool = True
) -> RecordBatch:
    batch = OpenBatch()
    batch.extend(records, bodies=are_bodies)
    return batch.seal(codec, digests)


def digests_of(records: list[bytes]) -> bytes:
    return struct.pack(f">{len(records)}I", *map(crc32c, map(message, records)))


def again(batch: RecordBatch) -> RecordBatch:
    """The batch as somebody else reads it, between other bytes."""
    found, end = read_batch(b"before" + bytes(batch) + b"behind", len(b"before"))
    assert end == len(b"before") + batch.size
    found.check_content()
    return found


@pytest.mark.parametrize("codec", CODECS)
@given(parts)
def test_what_was_put_in_comes_out_as_the_same_messages(
    codec: Codec, given_parts: list[tuple[list[bytes], bool]]
) -> None:
    batch, wanted = OpenBatch(), list[bytes]()
    for records, are_bodies in given_parts:
        batch.extend(records if are_bodies else list(map(message, records)), bodies=are_bodies)
        wanted += map(message, records)
    found = again(batch.seal(codec))
    assert found.messages() == wanted
    assert len(found) == len(wanted) == len(batch)
    assert found.are_bodies == all(are_bodies for _, are_bodies in given_parts)
    assert found.uncompressed_bytes == sum(map(len, found.records()))
    assert list(found.ends) == list(accumulate(map(len, found.records())))


@pytest.mark.parametrize("codec", CODECS)
@given(bodies, st.data())
def test_a_reader_sees_its_own_events_and_no_others(codec: Codec, records: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(records) - 1))
    events = data.draw(st.integers(1, len(records) - first))
    whole = sealed(records, codec, digests_of(records)).numbered(Numbering(7, 3, 40)).stamped(99)
    placed = again(whole.placed(1000, 123, first, events))
    assert placed.records() == records[first : first + events]
    assert (placed.offset, placed.next_offset, placed.head.time_ms) == (1000 + first, 1000 + first + events, 123)
    assert (placed.digests, placed.head.numbering) == (digests_of(records), Numbering(7, 3, 40))
    start = data.draw(st.integers(0, events - 1))
    stop = data.draw(st.integers(start + 1, events))
    wanted = records[first + start : first + stop]
    part = again(placed.part(start, stop))
    assert (part.records(), part.offset, len(part)) == (wanted, 1000 + first + start, len(wanted))
    assert placed.bytes_of(start, stop) == sum(map(len, wanted))
    rebuilt = again(placed.rebuilt(start, stop))
    assert (rebuilt.records(), rebuilt.offset, rebuilt.head.record_count) == (wanted, part.offset, len(wanted))
    assert rebuilt.digests == digests_of(wanted)
    assert rebuilt.head.numbering == Numbering(7, 3, 40 + first + start)
    assert rebuilt.head.time_ms == 123
    limit = data.draw(st.integers(0, 1000))
    fitting = placed.fitting(start, limit)
    sizes = list(accumulate(map(len, placed.records()[start:])))
    assert fitting == sum(size <= limit for size in sizes)


def test_a_new_head_copies_nothing() -> None:
    batch = sealed([bytes(1000)] * 100)
    other = batch.stamped(5).numbered(Numbering(1, 2, 3), transactional=True).placed(7, 8, 1, 2)
    assert other.content.obj is batch.content.obj
    assert again(other).head.transaction == (1, 2)
    assert (batch.head.time_ms, batch.head.numbering, batch.head.base_offset) == (0, None, -1)


def test_the_seal_does_not_depend_on_how_a_batch_travels() -> None:
    records = [b"price of IBM: %d" % (number % 7) for number in range(200)]
    seals = {sealed(records, codec, digests).head.seal for codec in CODECS for digests in (b"", digests_of(records))}
    assert len(seals) == 1
    assert sealed(records[::-1]).head.seal not in seals
    assert sealed(records, Codec.ZSTD).size < sealed(records).size / 3
    assert bytes(sealed([b"ab"], Codec.GZIP)) == bytes(sealed([b"ab"]))


@given(bodies, st.integers(0), st.integers(1, 255))
def test_whatever_byte_is_changed_is_noticed(records: list[bytes], place: int, change: int) -> None:
    whole = bytearray(bytes(sealed(records).placed(5, 6, 0, len(records))))
    whole[place % len(whole)] ^= change
    with pytest.raises(Damaged):
        read_batch(bytes(whole))[0].check_content()


@given(st.binary(max_size=400))
def test_any_bytes_are_a_batch_or_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        read_batch(data)


def forged(
    content: bytes, *, attributes: int = 0x8008, count: int = 1, first: int = 0, events: int | None = None,
    seal: int | None = None,
) -> bytes:  # fmt: skip
    """A batch whose checksums are right, whatever it says."""
    checksum = crc32c(content)
    head = BatchHead(
        attributes, count, -1, 0, first, count if events is None else events, -1, -1, -1, checksum,
        checksum if seal is None else seal,
    )  # fmt: skip
    return head.encode(len(content)) + content


def with_head(at: int, value: bytes) -> bytes:
    """A batch of which a field is another, under a checksum that is right."""
    whole = bytearray(forged(b"\0\0\0\1a"))
    whole[at : at + len(value)] = value
    whole[4:8] = crc32c(bytes(whole[8:HEAD_BYTES])).to_bytes(4, "big")
    return bytes(whole)


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (b"", "too few"),
        (forged(b"\0\0\0\1a")[:-1], "claims 65 bytes in 64"),
        (with_head(8, b"\2"), "version 2"),
        (with_head(9, b"\1"), "flags 0x01"),
        (with_head(50, b"\0\1"), "not known here"),
        (forged(b"\0\0\0\1a", attributes=0x8000), "attributes 0x8000"),
        (forged(b"\0\0\0\1a", attributes=0x8048), "attributes 0x8048"),
        (forged(b"\0\0\0\1a", attributes=0x800A), r"snappy \(codec 2\)"),
        (forged(b"\0\0\0\1a", attributes=0x800F), r"unknown \(codec 7\)"),
        (forged(b"\0\0\0\1a", count=0), "claims 0 records"),
        (forged(b"\0\0\0\1a", count=2), "claims 2 records"),
        (forged(bytes(4 * (MAX_RECORDS + 1)), count=MAX_RECORDS + 1), "claims 65537 records"),
        (forged(b"\0\0\0\1", attributes=0xC008), "claims 1 records"),
        (forged(b"\0\0\0\2a"), "have 2 bytes, but 1 are there"),
        (forged(b"\0\0\0\1ab"), "have 1 bytes, but 2 are there"),
        (forged(b"\0\0\0\1a", events=0), "gives its reader 0 from 0 on"),
        (forged(b"\0\0\0\1a", first=1, events=1), "gives its reader 1 from 1 on"),
        (forged(b"\0\0\0\1a", attributes=0x8028), "control batch"),
        (forged(b"\0\0\0\1\0\0\0\1ab", attributes=0x0028, count=2), "control batch"),
    ],
)
def test_what_is_no_batch_says_why(batch: bytes, why: str) -> None:
    with pytest.raises(Damaged, match=why):
        read_batch(batch)[0].check_content()


def test_what_comes_out_is_bounded_before_room_is_made() -> None:
    for codec in CODECS:
        whole = bytes(sealed([bytes(1000)] * 100, codec))
        batch, _ = read_batch(whole)
        batch.check_content(100_000)
        assert batch.records() == [bytes(1000)] * 100
        with pytest.raises(Damaged, match="have 100000 bytes; at most 99999"):
            batch.check_content(99_999)
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = stream.compress(bytes(10 << 20)) + stream.flush()
    batch, _ = read_batch(forged(struct.pack(">I", 600) + bomb, attributes=0x8008 | Codec.GZIP))
    batch.check_content()
    with pytest.raises(Damaged, match="more than the 600 bytes"):
        batch.records()


def test_a_seal_that_is_not_the_checksum_of_a_plain_batch_is_refused() -> None:
    batch, _ = read_batch(forged(b"\0\0\0\1a", seal=7))
    with pytest.raises(Damaged, match="seal"):
        batch.check_content()


def test_a_batch_has_records_and_a_digest_for_each_or_none() -> None:
    with pytest.raises(ValueError, match="1 to 65536"):
        OpenBatch().seal()
    with pytest.raises(ValueError, match="1 to 65536"):
        sealed([b""] * (MAX_RECORDS + 1))
    with pytest.raises(ValueError, match="4 bytes of digests for 2 records"):
        sealed([b"a", b"b"], digests=bytes(4))
    assert again(sealed([b""] * MAX_RECORDS)).records() == [b""] * MAX_RECORDS
