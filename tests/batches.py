"""Entries of a partition's log, made and read by hand: one batch in each, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from holdfast.amqp import Message, encode_message
from holdfast.records.codec import Codec, compress
from holdfast.records.digests import digests_of
from holdfast.records.lengths import table_of
from holdfast.records.record_batch import NO_PRODUCER, Numbering, OpenBatch, RecordBatch, seal
from node.partition.raft_entry import batches_in, join


def batch_of(
    records: Sequence[bytes],
    time_ms: int = 0,
    *,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER,
    base_sequence: int = NO_PRODUCER,
    digests: bytes = b"",
    transactional: bool = False,
    control: bool = False,
    compression: Codec = Codec.NONE,
) -> RecordBatch:
    """The batch of these records, which are messages: of a link, or with a time as a leader proposes it."""
    batch = seal(
        table_of(map(len, records)), records, bodies=False, codec=compression, digests=digests, control=control
    )
    if producer_id != NO_PRODUCER or transactional:
        numbering = Numbering(producer_id, producer_epoch, base_sequence)
        batch = batch.numbered(numbering, transactional=transactional)
    return batch.stamped(time_ms)


def entry_of(records: Sequence[bytes], time_ms: int = 0, **options: object) -> bytes:
    """The entry of one batch; `options` are those of `batch_of`."""
    return join([batch_of(records, time_ms, **options)])  # type: ignore[arg-type]


def records_in(entry: bytes) -> list[bytes]:
    """All records of an entry as messages, checked."""
    found: list[bytes] = []
    for batch in batches_in(entry):
        batch.check_content()
        found += batch.messages()
    return found


def numbered(
    records: Sequence[bytes],
    producer_id: int,
    epoch: int,
    first: int,
    digests: bytes = b"",
    *,
    transactional: bool = False,
) -> RecordBatch:
    """A producer's batch of these records, which are messages."""
    return batch_of(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=first, digests=digests,
        transactional=transactional,
    )  # fmt: skip


def of_bodies(
    bodies: Sequence[bytes],
    codec: Codec = Codec.NONE,
    numbers: tuple[int, int, int] | None = None,
    *,
    digests: bool = True,
) -> RecordBatch:
    """The batch as a producer seals it of these bodies. `numbers`: producer id, epoch, number of the first; with a
    digest of each unless `digests` is False."""
    piece = OpenBatch()
    piece.extend(bodies, bodies=True)
    batch = piece.seal(codec, digests_of(bodies) if numbers is not None and digests else b"")
    return batch if numbers is None else batch.numbered(Numbering(*numbers))


def carried(batch: RecordBatch) -> bytes:
    """The message that carries it."""
    return encode_message(Message(body=bytes(batch)))


def with_head(batch: RecordBatch, **fields: object) -> RecordBatch:
    """The same content behind a head that says something else, under a checksum that is right."""
    return RecordBatch(batch.head._replace(**fields), bytes(batch.content), 0, len(batch.content))


def with_content(batch: RecordBatch, content: bytes, **fields: object) -> RecordBatch:
    """Another content behind that head, which has its checksum; and its seal, where nothing is compressed."""
    checksum = crc32c(content)
    head = batch.head._replace(content_checksum=checksum, seal=checksum)._replace(**fields)
    return RecordBatch(head, content, 0, len(content))


def promising(codec: Codec, size: int, held: int) -> RecordBatch:
    """A batch whose table says one body of `size`, and which holds so many zeroes, compressed."""
    packed = compress(codec, [bytes(held)])
    assert packed is not None
    batch = of_bodies([bytes(1000)], codec)
    return with_content(batch, size.to_bytes(4, "big") + packed)
