"""An entry of record batches: what replicas read of it to decide, and what no replica takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.records.codec import Codec
from holdfast.records.record_batch import DIGEST_BYTES, Damaged, Numbering, OpenBatch, RecordBatch
from node.partition.partition_commands import Append, decode
from node.partition.raft_entry import MAX_BATCHES, batches_in, join, read_entry


def batch(*records: bytes, codec: Codec = Codec.NONE, digests: bytes = b"") -> RecordBatch:
    piece = OpenBatch()
    piece.extend(records, bodies=True)
    return piece.seal(codec, digests)


def test_replicas_read_heads_places_and_digests_and_others_the_records() -> None:
    batches = (
        batch(b"plain").stamped(5),
        batch(b"1", b"22", digests=b"abcdefgh").numbered(Numbering(7, 1, 30), transactional=True).stamped(6),
        batch(b"long " * 100, codec=Codec.ZSTD).stamped(7),
    )
    entry = join(batches)
    read = read_entry(entry)
    assert [one.head for one in read] == [one.head for one in batches]
    assert [entry[one.at : one.at + one.size] for one in read] == list(map(bytes, batches))
    assert [one.digests for one in read] == [b"", b"abcdefgh", b""]
    assert read[1].marks == b"abcdefgh"
    assert len(read[0].marks) == len(read[2].marks) == DIGEST_BYTES
    assert read[0].marks != read[2].marks, "without digests a batch is known by its seal"
    assert [one.records() for one in batches_in(entry)] == [[b"plain"], [b"1", b"22"], [b"long " * 100]]
    assert decode(entry) == Append(read)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entry: entry[:-1],
        lambda entry: entry + b"\0",
        lambda entry: entry[: len(join([]))],
        lambda entry: join([*batches_in(entry), batch(b"placed").placed(3, 5, 0, 1)]),
        lambda entry: join([*batches_in(entry), batch(b"1", b"2").placed(-1, 5, 1, 1)]),
        lambda entry: join([*batches_in(entry), batch(b"before all time").stamped(-1)]),
        lambda entry: join([batch(b"x")] * (MAX_BATCHES + 1)),
    ],
    ids=["cut off", "a byte behind", "none", "an offset", "a part", "a negative time", "too many"],
)
def test_an_entry_with_one_wrong_batch_is_refused_whole(spoil: Callable[[bytes], bytes]) -> None:
    sound = join([batch(b"first").stamped(5), batch(b"second").stamped(6)])
    assert len(read_entry(sound)) == 2
    with pytest.raises(Damaged):
        read_entry(spoil(sound))


def test_an_entry_holds_as_many_batches_as_it_may() -> None:
    assert len(read_entry(join([batch(b"x")] * MAX_BATCHES))) == MAX_BATCHES
