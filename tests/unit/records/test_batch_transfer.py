"""Record batches in one transfer: what went in comes out, and what a peer claims is bounded before it is believed."""

from __future__ import annotations

import struct

import pytest

from holdfast.amqp import Message, encode_message
from holdfast.records.batch_transfer import batches_in, transfer_of
from holdfast.records.codec import Codec
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES
from holdfast.records.record_batch import MAX_RECORDS, Attributes, Damaged, RecordBatch, seal
from tests.batches import batch_of


def claiming(lengths: list[int]) -> RecordBatch:
    """Compressed, by its own word: few bytes that claim to become so many."""
    table = struct.pack(f">{len(lengths)}I", *lengths)
    batch = seal(table, [b"little"], bodies=True)
    head = batch.head._replace(attributes=batch.head.attributes | Codec.ZSTD)
    return RecordBatch(head, bytes(batch.content), 0, len(batch.content))


def test_what_went_in_comes_out_behind_its_own_heads() -> None:
    batches = [
        batch_of([b"a", b"bc"]).placed(7, 1000, 1, 1),
        batch_of([b"d" * 1000] * 9, compression=Codec.ZSTD).placed(20, 1001, 0, 9),
    ]
    found = list(batches_in(transfer_of(batches)))
    assert [(one.offset, one.head.time_ms, one.messages()) for one in found] == [
        (8, 1000, [b"bc"]), (20, 1001, [b"d" * 1000] * 9),
    ]  # fmt: skip
    assert list(map(bytes, found)) == list(map(bytes, batches))
    assert found[1].codec == Codec.ZSTD


def test_a_bit_that_was_turned_or_a_byte_that_is_missing_is_noticed() -> None:
    whole = transfer_of([batch_of([b"a", b"bc"]), batch_of([b"def"])])
    for place in range(len(whole)):
        for bit in (1, 128):
            turned = bytearray(whole)
            turned[place] ^= bit
            with pytest.raises(Damaged):
                list(batches_in(bytes(turned)))
        with pytest.raises(Damaged):
            list(batches_in(whole[:place]))
    with pytest.raises(Damaged):
        list(batches_in(whole + b"x"))


def test_what_is_in_front_of_the_damage_is_given() -> None:
    first, second = batch_of([b"a"]), batch_of([b"b"])
    found = batches_in(transfer_of([first, second])[:-1] + b"?")
    assert bytes(next(found)) == bytes(first)
    with pytest.raises(Damaged, match="checksum"):
        next(found)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (encode_message(Message(body=b"")), "0 bytes are too few"),
        (b"\x00Sw\xa1\x01x", "not one data section"),
        (transfer_of([claiming([MAX_UNCOMPRESSED_BYTES + 1])]), "at most 16842752 are taken"),
        (transfer_of([claiming([MAX_UNCOMPRESSED_BYTES]), claiming([1])]), "1 bytes; at most 0 are taken"),
        (transfer_of([claiming([0] * MAX_RECORDS), claiming([0])]), "more than 65536 records"),
    ],
)
def test_what_a_peer_claims_is_bounded_before_anything_is_decompressed(message: bytes, why: str) -> None:
    with pytest.raises(Damaged, match=why):
        list(batches_in(message))


def test_a_batch_says_what_it_will_be_once_it_is_opened() -> None:
    plain, packed = (batch_of([b"x" * 1000] * 5, compression=codec) for codec in (Codec.NONE, Codec.GZIP))
    assert packed.size < plain.size == plain.opened_size == packed.opened_size
    assert packed.head.attributes & Attributes.CODEC == Codec.GZIP
