"""Many messages in one transfer: what a producer of ours sends on a link that has agreed to it.

Problem: a transfer costs its sender and its receiver microseconds, whatever is in it, and so does each outcome; and
small messages that are alike cost bytes that a codec would save.
Rules never broken:
 - a packed batch is a message like any other (one data section), and is known by what was agreed for its link, never by
   what it looks like;
 - what a receiver makes room for is bounded by a number of its own, before it makes it;
 - the messages come out as they went in, byte for byte and in order, or not at all: a CRC-32C covers everything.

The content of the data section, big-endian:

    version u8 = 2 | CRC-32C u32 of all that follows | codec u8 (`codec.py`) | form u8 | count u32
    | producer id i64 | producer epoch i16 | number of the first i32 | length u32 * count
    | if there is a producer id: digest u32 * count | the messages or bodies, one after the other, compressed together
    if the codec says so

Form 0: messages. Form 1: bodies, each of a message that is one data section. The table of lengths makes splitting a
matter of one call, and says what a decompressor may give; of bodies nobody need ask whether they can be decoded, so a
node stores them as they came. The three numbers of an idempotent producer are -1 where messages say their own, or have
none; they stand in front of bodies only, whose numbers follow each other. A digest is the CRC-32C of the whole
message, so that an event is recognised however it is sent again; it protects its producer from itself, and is taken at
its word.

Rejected: a message-format of its own, stated in each transfer. The AMQP library below cannot state one; and what all
transfers of a link have in common is the link's to say. Event Hubs' batches (data sections that hold messages): each
message has to be found by reading the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from crc32c import crc32c

from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.data_section import HEAD_CACHE_SIZE, data_head
from holdfast.records.bounded import Undecodable
from holdfast.records.codec import READABLE, Codec, compress, decompress, name_of
from holdfast.records.joined_messages import JoinedMessages, table_of
from holdfast.records.lengths import LENGTH_BYTES, size_of
from holdfast.records.sealed_section import SEALED_BYTES, seal, unseal

VERSION = 2
MESSAGES, BODIES = 0, 1
MAX_MESSAGES = 65_536
"""In one batch, as in a record batch of a log."""

_HEAD = struct.Struct(">BBIqhi")
_NOT_NUMBERED = (-1, -1, -1)

HEAD_BYTES = SEALED_BYTES + _HEAD.size
"""What is added to the bytes of all messages together; each adds its length, and a digest if it has one."""

DIGEST_BYTES = 4


class PackedNumbers(NamedTuple):
    """Of bodies that an idempotent producer has numbered: one after the other, from `first` on."""

    producer_id: int
    epoch: int
    first: int
    digests: bytes


class PackedBatch(NamedTuple):
    """`numbers`: what the batch says; None: its messages say theirs, or there are none."""

    messages: JoinedMessages
    numbers: PackedNumbers | None


class Outside(NamedTuple):
    """Of a packed batch: what can be said of it before its messages are looked at."""

    codec: int
    bodies: bool
    numbers: PackedNumbers | None
    table: bytes
    start: int  # of the messages, as they stand there
    size: int  # of the messages, as they were given to `pack`

    def open(self, message: bytes) -> JoinedMessages:
        """The messages in it. Raises MalformedMessage: they do not decompress to what the table says."""
        start = self.start
        if self.codec:
            message, start = _decompressed(self.codec, memoryview(message)[start:], self.size), 0
        return JoinedMessages(self.table, message, start, self.size, bodies=self.bodies)


def pack(messages: Sequence[bytes], codec: Codec = Codec.NONE) -> bytes:
    """The message that holds these, which are encoded messages. `codec`: used if they get smaller by it."""
    return pack_joined(table_of(messages), messages, codec)


def pack_joined(
    lengths: bytes,
    contents: Sequence[bytes | memoryview],
    codec: Codec = Codec.NONE,
    *,
    bodies: bool = False,
    numbers: PackedNumbers | None = None,
) -> bytes:
    """The same, of messages that are joined already. `lengths`: the table of theirs; `contents`: pieces of any size,
    which hold them one behind the other. `bodies`: the bodies of messages, and the table of their lengths; only those
    may have `numbers`."""
    count = len(lengths) // LENGTH_BYTES
    if not 0 < count <= MAX_MESSAGES:
        raise ValueError(f"a batch holds 1 to {MAX_MESSAGES} messages, not {count}")
    who, digests = _NOT_NUMBERED, b""
    if numbers is not None:
        who, digests = numbers[:3], numbers.digests
        if not bodies or len(digests) != DIGEST_BYTES * count:
            raise ValueError(f"{len(digests)} bytes of digests for {count} messages, and bodies: {bodies}")
    packed = compress(codec, contents) if codec else None
    pieces = contents if packed is None else (packed,)
    head = _HEAD.pack(Codec.NONE if packed is None else codec, BODIES if bodies else MESSAGES, count, *who)
    return seal(VERSION, (head, lengths, digests, *pieces))


def unpack(message: bytes, most_bytes: int) -> PackedBatch:
    """The messages in it, as they were given to `pack`, and the numbers that the batch says; whether messages that are
    no bodies can be decoded, their receiver finds out.

    Raises MalformedMessage: it is no packed batch, or one of more than `most_bytes`.
    """
    outside = read_outside(message, most_bytes)
    return PackedBatch(outside.open(message), outside.numbers)


def read_outside(message: bytes, most_bytes: int) -> Outside:
    """Everything but the messages, which are not decompressed: of a batch that is not compressed nothing is left that
    could be wrong. Raises MalformedMessage, as `unpack` does."""
    start = unseal(message, VERSION, _HEAD.size, "packed batch")
    codec, form, count, producer_id, epoch, first = _HEAD.unpack_from(message, start)
    start += _HEAD.size
    numbered = (producer_id, epoch, first) != _NOT_NUMBERED
    if form not in (MESSAGES, BODIES) or (numbered and form != BODIES):
        what = "with numbers" if numbered else "without numbers"
        raise MalformedMessage(f"form {form} of a packed batch, {what}, is not known here")
    columns = LENGTH_BYTES + DIGEST_BYTES if numbered else LENGTH_BYTES
    if not 0 < count <= MAX_MESSAGES or len(message) - start < columns * count:
        raise MalformedMessage(f"a packed batch that claims {count} messages in {len(message)} bytes")
    digests_at = start + LENGTH_BYTES * count
    table = message[start:digests_at]
    start += columns * count
    numbers = PackedNumbers(producer_id, epoch, first, message[digests_at:start]) if numbered else None
    size = size_of(table)
    if size > most_bytes:
        raise MalformedMessage(f"the messages of a packed batch have {size} bytes; at most {most_bytes} are taken")
    if codec and codec not in READABLE:
        raise MalformedMessage(f"compression {name_of(codec)} (codec {codec}) of a packed batch is not supported here")
    if not codec and start + size != len(message):
        raise MalformedMessage(f"the messages of a packed batch should have {size} bytes, not {len(message) - start}")
    return Outside(codec, form == BODIES, numbers, table, start, size)


def digests_of(bodies: Sequence[bytes], sizes: Sequence[int] = ()) -> bytes:
    """Of the messages that have these bodies. The checksum of a head is where that of its body begins; bodies of one
    size have one. `sizes`: of the bodies, from who has them."""
    sizes = sizes or list(map(len, bodies))
    alike = bool(sizes) and sizes.count(sizes[0]) == len(sizes)
    heads = repeat(_head_checksum(sizes[0])) if alike else map(_head_checksum, sizes)
    return struct.pack(f">{len(bodies)}I", *map(crc32c, bodies, heads))


@lru_cache(maxsize=HEAD_CACHE_SIZE)
def _head_checksum(size: int) -> int:
    return crc32c(data_head(size))


def _decompressed(codec: int, packed: memoryview, size: int) -> bytes:
    try:
        return decompress(codec, packed, size)
    except Undecodable as error:
        raise MalformedMessage(f"a packed batch does not decompress: {error}") from error
