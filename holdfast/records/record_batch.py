"""The record batch: events that travel together, in one format from the producer to the disk and to every reader.

The problem: whatever opens a batch pays for each event in it. So a batch is sealed once, by its producer or by the link
of a stock client, and its records are never encoded again; everything that is learned on the way (time, offset, the
numbers of a transaction, which events are for this reader) stands in a head of 64 bytes in front of them.

The rules:
 - two checksums cover every byte: the head's, which is made again with each change of the head, and the content's,
   which is the producer's own;
 - what a batch claims is compared with what is there before anything is made of it, and what comes out of compressed
   records is bounded by the table of lengths, which is not compressed;
 - a new head copies nothing: head and content are two pieces.

Layout, big-endian (the head of Kafka's batch v2 was the model):

     0  length u32: bytes behind this field            36  events u32: so many from `first` on are the reader's
     4  head checksum u32: CRC-32C of bytes 8 to 63    40  producer id i64, or -1
     8  version u8 = 1                                 48  producer epoch i16, or -1
     9  leader flags u8 = 0                            50  u16 = 0
    10  attributes u16, see `Attributes`               52  base sequence i32, or -1
    12  count u32: records in the batch                56  content checksum u32: CRC-32C of bytes 64 to the end
    16  base offset i64 of record 0; -1 in the log     60  seal u32: CRC-32C of the lengths and the records, before
    24  time of append i64, ms; 0 before the leader        compression; it is never changed
    32  first u32: the first of the reader's events    64  length u32 * count, as before compression
                                                           | digest u32 * count, with Attributes.DIGESTS
                                                           | the records side by side, compressed together or not

A record is an encoded AMQP message, or with Attributes.BODIES the body of a message that is one data section. A digest
is the CRC-32C of the whole message, so that a single event is recognised however it is sent again.

Rejected: the offset in the log (what an entry stores is decided when it is applied, and a deposed leader's offsets
would be wrong); compressing the lengths (they bound the decompression).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import repeat
from operator import add
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.amqp.messages.data_section import data_head
from holdfast.records.codec import READABLE, Codec, compress, decompress, name_of
from holdfast.records.decompression_limits import Undecodable
from holdfast.records.lengths import LENGTH_BYTES, ends_of, size_of, split, table_of

VERSION = 1
"""Newest version of record batches that this program knows."""
OLDEST_VERSION = 1
"""A program writes and reads what the release before it wrote, too, so that clients and nodes may differ by one."""
MAX_RECORDS = 65_536
"""Bounds what a damaged count can make a reader allocate."""
SEQUENCES = 1 << 31
"""Numbers of a producer's events are counted modulo this."""
NO_PRODUCER = -1
DIGEST_BYTES = 4

_HEAD = struct.Struct(">BBHIqqIIqhHiII")
_FRONT = struct.Struct(">II")
HEAD_BYTES = _FRONT.size + _HEAD.size


class Attributes:
    """Bits of a batch's attributes, by KIP-98's numbers; the two highest are ours."""

    CODEC: Final = 0b111  # the number of the compression codec
    APPEND_TIME: Final = 1 << 3  # the time is the leader's clock, not the producer's
    TRANSACTIONAL: Final = 1 << 4
    CONTROL: Final = 1 << 5
    DIGESTS: Final = 1 << 14
    BODIES: Final = 1 << 15


_KNOWN = 0b111 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 14 | 1 << 15


class Damaged(ValueError):
    """The bytes are not what was written. The text says what is wrong."""


class UnknownBatch(Damaged):
    """The bytes are as they were written, by a program that knows more than this one."""


class Numbering(NamedTuple):
    """The numbers that a producer gives a batch: record `i` has the sequence `base_sequence + i`, modulo SEQUENCES."""

    producer_id: int
    epoch: int
    base_sequence: int


class BatchHead(NamedTuple):
    """The fields of a batch's head, in the order of the layout."""

    attributes: int
    record_count: int
    base_offset: int
    time_ms: int
    first: int
    events: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    content_checksum: int
    seal: int

    @property
    def numbering(self) -> Numbering | None:
        """The producer's numbers of the whole batch."""
        if self.producer_id == NO_PRODUCER:
            return None
        return Numbering(self.producer_id, self.producer_epoch, self.base_sequence)

    @property
    def transaction(self) -> tuple[int, int] | None:
        """(producer id, epoch) of the transaction that the batch belongs to."""
        return (self.producer_id, self.producer_epoch) if self.attributes & Attributes.TRANSACTIONAL else None

    def encode(self, content_bytes: int) -> bytes:
        """The 64 bytes in front of a content of that size."""
        attributes, count, offset, time_ms, first, events, producer, epoch, sequence, content, seal = self
        fields = _HEAD.pack(
            VERSION, 0, attributes, count, offset, time_ms, first, events, producer, epoch, 0, sequence, content, seal
        )
        return _FRONT.pack(HEAD_BYTES - 4 + content_bytes, crc32c(fields)) + fields


def agreed_version(theirs: object) -> int | None:
    """The version to use with a peer that says that it knows all up to this one; None: there is none in common."""
    if not isinstance(theirs, int) or isinstance(theirs, bool) or theirs < OLDEST_VERSION:
        return None
    return min(theirs, VERSION)


class _Opened:
    """Parts of a content that were decoded so far: kept for all batches that share it."""

    __slots__ = ("ends", "messages", "records")

    def __init__(self) -> None:
        self.records: tuple[bytes, int] | None = None  # memory that holds them uncompressed, and where
        self.ends: Sequence[int] | None = None
        self.messages: list[bytes] | None = None  # all records of the batch as messages


class RecordBatch:
    """One sealed batch. The content is shared with whatever it was read from, and never changed."""

    __slots__ = ("_at", "_checked", "_data", "_end", "_opened", "head", "is_own")

    def __init__(self, head: BatchHead, data: bytes, at: int, end: int) -> None:
        """The content is `data[at:end]`."""
        self.head = head
        self._data, self._at, self._end = data, at, end
        self._opened = _Opened()
        self._checked = False  # its content is what was sealed
        self.is_own = False
        """True if it was sealed in this process, of records that were looked at before."""

    # ------------------------------------------------------------ what the head says

    def __len__(self) -> int:
        """The reader's events."""
        return self.head.events

    def __repr__(self) -> str:
        return f"<batch of {self.head.record_count} records, {self.size} bytes>"

    @property
    def size(self) -> int:
        """Bytes of head and content."""
        return HEAD_BYTES + self._end - self._at

    @property
    def codec(self) -> int:
        """The number of the codec that the records are compressed with; 0: none."""
        return self.head.attributes & Attributes.CODEC

    @property
    def are_bodies(self) -> bool:
        return bool(self.head.attributes & Attributes.BODIES)

    @property
    def offset(self) -> int:
        """The offset of the reader's first event."""
        return self.head.base_offset + self.head.first

    @property
    def next_offset(self) -> int:
        return self.offset + self.head.events

    @property
    def publisher(self) -> tuple[int, int, int] | None:
        """Producer id, epoch, and number of the reader's first event; None: it has no number."""
        head = self.head
        if head.producer_id == NO_PRODUCER or head.base_sequence == NO_PRODUCER:
            return None
        return head.producer_id, head.producer_epoch, (head.base_sequence + head.first) % SEQUENCES

    @property
    def start(self) -> int:
        """Position of the batch in the bytes it was read from."""
        return self._at - HEAD_BYTES

    # ------------------------------------------------------------ other heads for the same content

    def _with(self, head: BatchHead) -> RecordBatch:
        batch = RecordBatch(head, self._data, self._at, self._end)
        batch._opened, batch._checked, batch.is_own = self._opened, self._checked, self.is_own
        return batch

    def numbered(self, numbering: Numbering, *, transactional: bool = False) -> RecordBatch:
        """The batch with a producer's numbers."""
        bit = Attributes.TRANSACTIONAL if transactional else 0
        head = self.head._replace(
            attributes=self.head.attributes | bit,
            producer_id=numbering.producer_id,
            producer_epoch=numbering.epoch,
            base_sequence=numbering.base_sequence,
        )
        return self._with(head)

    def stamped(self, time_ms: int) -> RecordBatch:
        """The batch with the leader's time."""
        return self._with(self.head._replace(time_ms=time_ms))

    def placed(self, base_offset: int, time_ms: int, first: int, events: int) -> RecordBatch:
        """The batch for a reader: record 0 has that offset, and `events` from `first` on are the reader's."""
        return self._with(self.head._replace(base_offset=base_offset, time_ms=time_ms, first=first, events=events))

    def part(self, start: int, stop: int) -> RecordBatch:
        """The reader's events [start, stop) as a batch of the same content."""
        return self._with(self.head._replace(first=self.head.first + start, events=stop - start))

    def afresh(self) -> RecordBatch:
        """The batch as it was read, apart: what is decoded of the one is not kept for the other."""
        return RecordBatch(self.head, self._data, self._at, self._end)

    def compressed(self, codec: Codec) -> RecordBatch:
        """The batch under the same seal, compressed if it is not, and gets smaller by it."""
        packed = None if self.codec else compress(codec, (memoryview(self._data)[self._records_at : self._end],))
        if packed is None:
            return self
        content = b"".join((self.table, self.digests, packed))
        head = self.head._replace(attributes=self.head.attributes | codec, content_checksum=crc32c(content))
        batch = RecordBatch(head, content, 0, len(content))
        self.open()
        batch._opened, batch._checked, batch.is_own = self._opened, self._checked, self.is_own
        return batch

    # ------------------------------------------------------------ the bytes

    @property
    def content(self) -> memoryview:
        return memoryview(self._data)[self._at : self._end]

    def pieces(self) -> tuple[bytes, memoryview]:
        """Head and content, which are the batch when they are joined."""
        return self.head.encode(self._end - self._at), self.content

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces())

    @property
    def table(self) -> bytes:
        """The lengths of all records."""
        return self._data[self._at : self._at + LENGTH_BYTES * self.head.record_count]

    @property
    def digests(self) -> bytes:
        """DIGEST_BYTES of each record, or nothing."""
        return digests_in(self._data, self._at, self.head)

    @property
    def _records_at(self) -> int:
        digests = DIGEST_BYTES if self.head.attributes & Attributes.DIGESTS else 0
        return self._at + (LENGTH_BYTES + digests) * self.head.record_count

    @property
    def uncompressed_bytes(self) -> int:
        """Bytes of all records once they are decompressed, by the batch's own word."""
        return size_of(self.table)

    @property
    def opened_size(self) -> int:
        """Bytes of head and content once the records are decompressed, by the batch's own word."""
        return self._records_at - self.start + self.records_size

    @property
    def records_size(self) -> int:
        """Bytes of all records once they are decompressed: from the place that plain ones take, or by the table."""
        return self.uncompressed_bytes if self.codec else self._end - self._records_at

    def check_content(self, most_bytes: int | None = None) -> None:
        """Check the content. Raises Damaged: some byte of the content is not what was sealed, the lengths do not fit
        what is there, or the records have more than `most_bytes`, uncompressed."""
        if not self._checked:
            self._check_sealed()
        if most_bytes is not None and (records := self.records_size) > most_bytes:
            raise Damaged(f"the records of a batch have {records} bytes; at most {most_bytes} are taken")

    def _check_sealed(self) -> None:
        head = self.head
        if crc32c(self.content) != head.content_checksum:
            raise Damaged(f"the checksum of a batch of {head.record_count} records does not match")
        plain = not head.attributes & (Attributes.CODEC | Attributes.DIGESTS)
        if plain and head.seal != head.content_checksum:
            raise Damaged("the seal of a batch without compression and digests is not its checksum")
        room = self._end - self._records_at
        if not self.codec and (records := self.uncompressed_bytes) != room:
            raise Damaged(f"its {head.record_count} records have {records} bytes, but {room} are there")
        self._checked = True

    # ------------------------------------------------------------ the records

    @property
    def ends(self) -> Sequence[int]:
        """Ends of the records, each counted from where record 0 begins."""
        opened = self._opened
        if opened.ends is None:
            opened.ends = ends_of(self.table)
        return opened.ends

    def open(self) -> tuple[bytes, int]:
        """Decompress the records and keep them: memory that holds them side by side, and where they begin.

        Raises Damaged: they do not decompress to exactly what the table says.
        """
        opened = self._opened
        if opened.records is None:
            codec = self.codec
            if codec:
                packed = memoryview(self._data)[self._records_at : self._end]
                try:
                    opened.records = decompress(codec, packed, self.uncompressed_bytes), 0
                except Undecodable as error:
                    raise Damaged(
                        f"a batch of {self.head.record_count} records does not decompress: {error}"
                    ) from error
            else:
                opened.records = self._data, self._records_at
        return opened.records

    def records(self) -> list[bytes]:
        """The reader's events as they stand in the batch: messages, or bodies. Raises Damaged, as `open` does."""
        data, at = self.open()
        if self.head.record_count == 1:
            return [data[at : at + self.records_size]]
        ends, first, events = self.ends, self.head.first, self.head.events
        if events == len(ends):
            return split(data, at, ends)
        before = ends[first - 1] if first else 0
        return split(data, at + before, [end - before for end in ends[first : first + events]])

    def joined(self) -> memoryview:
        """The reader's events side by side, as they stand in the batch. Raises Damaged, as `open` does."""
        data, at = self.open()
        if len(self) == self.head.record_count:
            return memoryview(data)[at : at + self.records_size]
        before = self.ends[self.head.first - 1] if self.head.first else 0
        return memoryview(data)[at + before : at + before + self.bytes_of(0, len(self))]

    def messages(self) -> list[bytes]:
        """The reader's events as encoded messages. Raises Damaged, as `open` does.

        All messages of a batch are kept, since a batch at the tail of a log has many readers: do not change the list.
        """
        opened, head = self._opened, self.head
        if opened.messages is not None:
            return opened.messages if len(self) == head.record_count else opened.messages[head.first :][: head.events]
        messages = with_heads(self.records()) if self.are_bodies else self.records()
        if len(self) == head.record_count:
            opened.messages = messages
        return messages

    def bytes_of(self, start: int, stop: int) -> int:
        """Bytes of the reader's events [start, stop), uncompressed."""
        ends, first = self.ends, self.head.first
        if stop <= start:
            return 0
        before = first + start - 1
        return ends[first + stop - 1] - (ends[before] if before >= 0 else 0)

    def fitting(self, start: int, max_bytes: int) -> int:
        """Number of the reader's events from `start` on that have at most so many bytes together."""
        ends, first = self.ends, self.head.first + start
        before = ends[first - 1] if first else 0
        return bisect_right(ends, before + max_bytes, first, self.head.first + self.head.events) - first

    def within(
        self, max_events: int, max_bytes: int, *, whole: bool, at_least_one: bool
    ) -> tuple[RecordBatch | None, int]:
        """The part of the batch that these limits allow a reader, and its bytes: those of the events, or of the batch
        if it is `whole`, which is never cut. None: nothing of it."""
        if whole:
            size = self.opened_size
            return (self if at_least_one or (len(self) <= max_events and size <= max_bytes) else None), size
        if max_events >= self.head.record_count == len(self) and (size := self.records_size) <= max_bytes:
            return self, size
        count = min(max_events, max(self.fitting(0, max_bytes), at_least_one))
        if count == 0:
            return None, 0
        return (self if count == len(self) else self.part(0, count)), self.bytes_of(0, count)

    def rebuilt(self, start: int, stop: int) -> RecordBatch:
        """The reader's events [start, stop) sealed anew, for a reader that takes no batch so large."""
        head, number = self.head, self.head.first + start
        piece = OpenBatch()
        piece.extend(self.part(start, stop).records(), bodies=self.are_bodies)
        digests = self.digests[DIGEST_BYTES * number : DIGEST_BYTES * (number + stop - start)]
        batch = piece.seal(Codec.NONE, digests)
        numbering = self.head.numbering
        if numbering is not None:
            sequence = numbering.base_sequence
            if sequence != NO_PRODUCER:
                sequence = (sequence + number) % SEQUENCES
            transactional = bool(head.attributes & Attributes.TRANSACTIONAL)
            batch = batch.numbered(numbering._replace(base_sequence=sequence), transactional=transactional)
        return batch.placed(head.base_offset + number, head.time_ms, 0, stop - start)


def read_batch(data: bytes, at: int = 0) -> tuple[RecordBatch, int]:
    """The batch that begins at `data[at]`, and where it ends. Its head is checked; `check_content` checks the rest.
    Raises Damaged, as `read_head` does."""
    head, end = read_head(data, at)
    return RecordBatch(head, data, at + HEAD_BYTES, end), end


def digests_in(data: bytes, content_at: int, head: BatchHead) -> bytes:
    """DIGEST_BYTES of each record, from a content with that head; or nothing."""
    if not head.attributes & Attributes.DIGESTS:
        return b""
    start = content_at + LENGTH_BYTES * head.record_count
    return data[start : start + DIGEST_BYTES * head.record_count]


def read_head(data: bytes, at: int = 0) -> tuple[BatchHead, int]:
    """The head of the batch that begins at `data[at]`, and where the batch ends.

    Raises:
        Damaged: no such batch begins there.
    """
    size = len(data) - at
    if size < HEAD_BYTES:
        raise Damaged(f"{size} bytes are too few for a record batch")
    length, checksum = _FRONT.unpack_from(data, at)
    end = at + 4 + length
    if length < HEAD_BYTES - 4 or end > len(data):
        raise Damaged(f"a record batch that claims {length} bytes in {size - 4}")
    start = at + HEAD_BYTES
    version, flags, bits, *fields = _HEAD.unpack_from(data, at + _FRONT.size)
    if crc32c(memoryview(data)[at + _FRONT.size : start]) != checksum:
        raise Damaged("the checksum of a record batch's head does not match")
    if version != VERSION:
        raise UnknownBatch(f"version {version} of a record batch is not known here")
    count, offset, time_ms, first, events, producer, epoch, unused, sequence, content, seal = fields
    if flags or unused or bits & ~_KNOWN or not bits & Attributes.APPEND_TIME:
        raise UnknownBatch(f"attributes {bits:#06x} and flags {flags:#04x} of a record batch are not known here")
    codec = bits & Attributes.CODEC
    if codec and codec not in READABLE:
        raise UnknownBatch(f"compression {name_of(codec)} (codec {codec}) of a record batch is not supported here")
    columns = LENGTH_BYTES + (DIGEST_BYTES if bits & Attributes.DIGESTS else 0)
    if not 0 < count <= MAX_RECORDS or end - start < columns * count:
        raise Damaged(f"a record batch that claims {count} records in {size} bytes")
    if not events or first + events > count:
        raise Damaged(f"a record batch of {count} records that gives its reader {events} from {first} on")
    if bits & Attributes.CONTROL and (count != 1 or codec or bits & (Attributes.BODIES | Attributes.DIGESTS)):
        raise Damaged(f"a control batch holds one whole record, not {count} with attributes {bits:#06x}")
    head = BatchHead(bits, count, offset, time_ms, first, events, producer, epoch, sequence, content, seal)
    return head, end


class OpenBatch:
    """A batch that is being filled. It begins with bodies, and holds messages from the first that is more than that."""

    __slots__ = ("are_bodies", "pieces")

    def __init__(self) -> None:
        self.are_bodies = True
        self.pieces: list[bytes] = []

    def __len__(self) -> int:
        return len(self.pieces)

    def extend(self, records: Sequence[bytes], *, bodies: bool) -> None:
        """Take encoded messages, or the bodies of messages that are one data section."""
        if not bodies and self.are_bodies and self.pieces:
            self.pieces = with_heads(self.pieces)
        if not bodies:
            self.are_bodies = False
        elif not self.are_bodies:
            records = with_heads(records)
        self.pieces.extend(records)

    def seal(self, codec: Codec = Codec.NONE, digests: bytes = b"") -> RecordBatch:
        """The batch of these records, without number, time or place. `codec`: used if they get smaller by it."""
        return seal(table_of(map(len, self.pieces)), self.pieces, bodies=self.are_bodies, codec=codec, digests=digests)


def seal(
    table: bytes,
    pieces: Sequence[bytes | memoryview],
    *,
    bodies: bool,
    codec: Codec = Codec.NONE,
    digests: bytes = b"",
    control: bool = False,
) -> RecordBatch:
    """The batch of records that stand side by side in these pieces. `table`: their lengths."""
    count = len(table) // LENGTH_BYTES
    if not 0 < count <= MAX_RECORDS:
        raise ValueError(f"a batch holds 1 to {MAX_RECORDS} records, not {count}")
    if digests and len(digests) != DIGEST_BYTES * count:
        raise ValueError(f"{len(digests)} bytes of digests for {count} records")
    attributes = Attributes.APPEND_TIME
    if bodies:
        attributes |= Attributes.BODIES
    if digests:
        attributes |= Attributes.DIGESTS
    if control:
        attributes |= Attributes.CONTROL
    packed = compress(codec, pieces) if codec else None
    if packed is not None:
        attributes |= codec
    content = b"".join((table, digests, *(pieces if packed is None else (packed,))))
    checksum = unchanging = crc32c(content)
    if packed is not None:
        unchanging = crc32c(b"".join(pieces), crc32c(table))
    elif digests:
        unchanging = crc32c(memoryview(content)[len(table) + len(digests) :], crc32c(table))
    head = BatchHead(attributes, count, -1, 0, 0, count, NO_PRODUCER, NO_PRODUCER, NO_PRODUCER, checksum, unchanging)
    batch = RecordBatch(head, content, 0, len(content))
    batch._checked = batch.is_own = True
    return batch


def with_heads(bodies: Sequence[bytes]) -> list[bytes]:
    """The messages that have these bodies, each in one data section."""
    sizes = list(map(len, bodies))
    if bodies and sizes.count(sizes[0]) == len(bodies):
        return list(map(add, repeat(data_head(sizes[0])), bodies))
    return list(map(add, map(data_head, sizes), bodies))
