"""A compressed batch comes back as it was written, or not at all, and costs no more than its head may promise."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records import codec as codecs
from holdfast.records import gzip_stream, zstd_frame
from holdfast.records.codec import WORTHWHILE_BYTES, Codec
from holdfast.records.decompression_limits import MAX_UNCOMPRESSED_BYTES, Undecodable
from holdfast.records.record_batch import DIGEST_BYTES, HEAD_BYTES, Attributes, Damaged, RecordBatch
from node.partition.limits import MAX_RECORD_BYTES
from node.partition.raft_entry import batches_in
from tests.batches import entry_of, records_in

COMPRESSING = [Codec.GZIP, Codec.ZSTD]
BATCH_AT = 2
ATTRIBUTES_AT = BATCH_AT + 10
LENGTHS_AT = BATCH_AT + HEAD_BYTES

records_of = st.lists(st.binary(max_size=60).map(lambda part: part * 20), min_size=1, max_size=40)
codec_of = st.sampled_from(COMPRESSING)


def sealed(entry: bytes | bytearray) -> bytes:
    """With the length and the checksums that a hostile writer would give it."""
    whole = bytearray(entry)
    struct.pack_into(">I", whole, BATCH_AT, len(whole) - BATCH_AT - 4)
    checksum = crc32c(bytes(whole[LENGTHS_AT:]))
    struct.pack_into(">II", whole, BATCH_AT + 56, checksum, checksum)
    struct.pack_into(">I", whole, BATCH_AT + 4, crc32c(bytes(whole[BATCH_AT + 8 : LENGTHS_AT])))
    return bytes(whole)


def batch_in(entry: bytes) -> RecordBatch:
    (batch,) = batches_in(entry)
    return batch


def forged(codec: int, lengths: list[int], packed: bytes) -> bytes:
    """A batch whose head and table say what they like."""
    entry = bytearray(entry_of([b""] * len(lengths), 1))
    struct.pack_into(">H", entry, ATTRIBUTES_AT, Attributes.APPEND_TIME | codec)
    struct.pack_into(f">{len(lengths)}I", entry, LENGTHS_AT, *lengths)
    return sealed(bytes(entry) + packed)


def packed_by(codec: Codec, data: bytes) -> bytes:
    return gzip_stream.compress(data) if codec is Codec.GZIP else zstd_frame.compress(data)


# ---------------------------------------------------------------- there and back


@given(records_of, codec_of)
def test_what_goes_in_comes_out_and_is_never_larger(records: list[bytes], codec: Codec) -> None:
    entry, plain = entry_of(records, 7, compression=codec), entry_of(records, 7)
    batch, size = batch_in(entry), sum(map(len, records))
    codec_used = batch.codec
    assert records_in(entry) == records
    assert len(entry) <= len(plain)
    assert (batch.head.record_count, batch.size) == (len(records), len(entry) - BATCH_AT)
    assert codec_used in (0, codec)
    assert batch.uncompressed_bytes == size
    if codec_used:
        assert size >= WORTHWHILE_BYTES
        assert len(entry) < len(plain)
    else:
        assert entry == plain


@pytest.mark.parametrize("codec", COMPRESSING)
@given(chance=st.randoms())
def test_numbers_and_digests_stand_where_they_stood(codec: Codec, chance: random.Random) -> None:
    records = [b"x" * 100] * 20
    digests = chance.randbytes(20 * DIGEST_BYTES)
    numbers = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 5, "digests": digests}
    attributes = Attributes.APPEND_TIME | Attributes.TRANSACTIONAL | Attributes.DIGESTS
    entry = entry_of(records, 1, **numbers, transactional=True, compression=codec)
    plain = batch_in(entry_of(records, 1, **numbers, transactional=True))
    batch = batch_in(entry)
    assert (batch.digests, batch.head.base_sequence, batch.head.transaction) == (plain.digests, 5, (7, 3))
    assert (batch.head.attributes, batch.head.seal) == (attributes | codec, plain.head.seal)
    assert batch.size < plain.size
    assert records_in(entry) == records


def test_the_numbers_of_codecs_and_their_streams_are_kafkas() -> None:
    records = [b"y" * 1000]
    for codec, number, begins in ((Codec.GZIP, 1, b"\x1f\x8b"), (Codec.ZSTD, 4, b"\x28\xb5\x2f\xfd")):
        entry = entry_of(records, 1, compression=codec)
        assert struct.unpack_from(">H", entry, ATTRIBUTES_AT)[0] & 7 == number
        assert entry[LENGTHS_AT + 4 :].startswith(begins)
    assert zlib.decompress(entry_of(records, 1, compression=Codec.GZIP)[LENGTHS_AT + 4 :], 31) == records[0]


@pytest.mark.parametrize("codec", COMPRESSING)
def test_what_is_not_worth_it_stays_as_it_came(codec: Codec) -> None:
    noise = random.Random(1).randbytes(4000)
    for records in ([b"x" * (WORTHWHILE_BYTES - 1)], [noise], [b""] * 9):
        assert entry_of(records, 1, compression=codec) == entry_of(records, 1)
    assert entry_of([b"x" * WORTHWHILE_BYTES], 1, compression=codec) != entry_of([b"x" * WORTHWHILE_BYTES], 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_as_much_as_a_call_may_have_is_compressed_and_more_is_not(codec: Codec) -> None:
    assert MAX_RECORD_BYTES == MAX_UNCOMPRESSED_BYTES
    record = bytes(MAX_UNCOMPRESSED_BYTES)
    entry = entry_of([record], 1, compression=codec)
    assert len(entry) < len(record) // 100
    assert records_in(entry) == [record]
    assert batch_in(entry_of([record, b"x"], 1, compression=codec)).codec == 0


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_control_batch_is_never_compressed(codec: Codec) -> None:
    entry = bytearray(entry_of([b"x" * 1000], 1, control=True, producer_id=7, producer_epoch=3, transactional=True))
    (bits,) = struct.unpack_from(">H", entry, ATTRIBUTES_AT)
    struct.pack_into(">H", entry, ATTRIBUTES_AT, bits | codec)
    with pytest.raises(Damaged, match="a control batch"):
        batches_in(sealed(entry))


@pytest.mark.parametrize(("number", "name"), [(2, "snappy"), (3, "lz4"), (5, "unknown"), (7, "unknown")])
def test_codecs_that_there_are_not_are_refused_by_name(number: int, name: str) -> None:
    with pytest.raises(Damaged, match=rf"compression {name} \(codec {number}\) of a record batch is not supported"):
        batches_in(forged(number, [3], b"abc"))


# ---------------------------------------------------------------- damage and malice


@given(records_of, codec_of, st.data())
def test_any_changed_byte_is_noticed(records: list[bytes], codec: Codec, data: st.DataObject) -> None:
    entry = bytearray(entry_of(records, 1, compression=codec))
    entry[data.draw(st.integers(BATCH_AT, len(entry) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Damaged):
        records_in(bytes(entry))


@given(st.data(), codec_of, st.randoms())
def test_a_changed_stream_with_a_good_checksum_is_other_bytes_of_the_same_length_or_refused(
    data: st.DataObject, codec: Codec, chance: random.Random
) -> None:
    records = [chance.randbytes(30) * 30, b"abc" * 300]
    entry = bytearray(entry_of(records, 1, compression=codec))
    place = data.draw(st.integers(LENGTHS_AT, len(entry) - 1))
    entry[place] ^= data.draw(st.integers(1, 255))
    head = batch_in(sealed(entry)).head
    try:
        found = records_in(sealed(entry))
    except Damaged:
        return
    assert sum(map(len, found)) == sum(map(len, records))
    assert len(found) == head.record_count


@given(st.data(), codec_of)
def test_any_cut_is_noticed_even_with_a_good_checksum(data: st.DataObject, codec: Codec) -> None:
    entry = entry_of([b"abc" * 300, b"x" * 700], 1, compression=codec)
    cut = data.draw(st.integers(LENGTHS_AT + 8, len(entry) - 1))
    for wrong in (entry[:cut], sealed(entry[:cut]), sealed(entry + b"x"), sealed(entry + entry[LENGTHS_AT + 8 :])):
        with pytest.raises(Damaged):
            records_in(wrong)


@given(st.binary(max_size=200), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9), codec_of)
def test_garbage_never_raises_anything_else(garbage: bytes, lengths: list[int], codec: Codec) -> None:
    for packed in (garbage, packed_by(codec, garbage)[:10] + garbage, packed_by(codec, b"")[:9]):
        try:
            found = records_in(forged(codec, lengths, packed))
        except Damaged:
            continue
        assert list(map(len, found)) == lengths


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("lengths", [[2**32 - 1] * 1000, [MAX_UNCOMPRESSED_BYTES, 1], [0], [0, 0]])
def test_what_promises_too_much_or_nothing_is_refused_before_a_decompressor_sees_it(
    codec: Codec, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> bytes:
        raise AssertionError("decompressed")

    monkeypatch.setattr(codecs, "_DECOMPRESS", {Codec.GZIP: asked, Codec.ZSTD: asked})
    with pytest.raises(Damaged, match=f"{sum(lengths)} bytes of records"):
        records_in(forged(codec, lengths, packed_by(codec, b"x" * sum(lengths[:1]) if lengths[0] < 9 else b"x")))


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("claimed", [1, 512, 999_999, 1_000_001, MAX_UNCOMPRESSED_BYTES])
def test_what_holds_more_or_less_than_it_promises_is_refused(codec: Codec, claimed: int) -> None:
    million = packed_by(codec, bytes(1_000_000))
    assert records_in(forged(codec, [1_000_000], million)) == [bytes(1_000_000)]
    with pytest.raises(Damaged, match="does not decompress"):
        records_in(forged(codec, [claimed], million))


def test_a_gzip_bomb_is_stopped_one_byte_behind_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    genuine = zlib.decompressobj

    class Watched:
        def __init__(self, kind: int) -> None:
            self.real = genuine(kind)

        def decompress(self, data: memoryview, limit: int) -> bytes:
            limits.append(limit)
            out = self.real.decompress(data, limit)
            assert len(out) <= limit
            return out

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

    monkeypatch.setattr(gzip_stream.zlib, "decompressobj", Watched)
    with pytest.raises(Damaged, match="more than the 600 bytes"):
        records_in(forged(Codec.GZIP, [600], gzip_stream.compress(bytes(64 << 20))))
    assert limits == [601]


def zstd_header(descriptor: int, rest: bytes) -> bytes:
    return b"\x28\xb5\x2f\xfd" + bytes((descriptor,)) + rest


RLE_OF_A_THOUSAND = (1 | 1 << 1 | 1000 << 3).to_bytes(3, "little") + b"a"
EMPTY_LAST_BLOCK = b"\1\0\0"

LIES = {
    "states a petabyte": (zstd_header(0xE0, struct.pack("<Q", 1 << 50)) + EMPTY_LAST_BLOCK, "states 1125899906842624"),
    "states nothing": (zstd_header(0x00, b"\x50") + RLE_OF_A_THOUSAND, "not the 600"),
    "holds more": (zstd_header(0x60, struct.pack("<H", 600 - 256)) + RLE_OF_A_THOUSAND, "no zstd frame of 600"),
    "holds less": (zstd_header(0x60, struct.pack("<H", 600 - 256)) + EMPTY_LAST_BLOCK, "no zstd frame of 600"),
    "a large window": (zstd_header(0x80, bytes((17 << 3,)) + struct.pack("<I", 600)) + RLE_OF_A_THOUSAND, "a window"),
    "skippable": (b"\x50\x2a\x4d\x18" + struct.pack("<I", 600) + bytes(600), "no zstd frame of 600"),
    "nothing": (b"", "no zstd frame of 600"),
}


@pytest.mark.parametrize(("frame", "says"), LIES.values(), ids=LIES)
def test_a_zstd_frame_that_lies_about_itself_is_refused(frame: bytes, says: str) -> None:
    with pytest.raises(Undecodable, match=says):
        zstd_frame.decompress(memoryview(frame), 600)
    with pytest.raises(Damaged, match="does not decompress"):
        records_in(forged(Codec.ZSTD, [600], frame))


def test_a_frame_that_states_too_much_never_reaches_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would make room for what the frame states, whatever limit it is given."""

    class Never:
        def decompress(self, *_: object, **__: object) -> bytes:
            raise AssertionError("decompressed")

    monkeypatch.setattr(zstd_frame._of_thread, "decompressor", Never())
    for lie in ("states a petabyte", "states nothing", "a large window"):
        with pytest.raises(Damaged):
            records_in(forged(Codec.ZSTD, [600], LIES[lie][0]))
