"""Many messages in one transfer: what a producer of ours sends on a link that has agreed to it.

Problem: a transfer costs its sender and its receiver microseconds, whatever is in it, and so does each outcome; and
small messages that are alike cost bytes that a codec would save.
Rules never broken:
 - a packed batch is a message like any other (one data section), and is known by what was agreed for its link, never by
   what it looks like;
 - what a receiver makes room for is bounded by a number of its own, before it makes it;
 - the messages come out as they went in, byte for byte and in order, or not at all: a CRC-32C covers everything.

The content of the data section, big-endian:

    version u8 = 1 | CRC-32C u32 of all that follows | codec u8 (`codec.py`) | count u32 | length u32 * count
    | the messages, one after the other, compressed together if the codec says so

The table of lengths makes splitting a matter of one call, and says what a decompressor may give.

Rejected: a message-format of its own, stated in each transfer. The AMQP library below cannot state one; and what all
transfers of a link have in common is the link's to say. Event Hubs' batches (data sections that hold messages): each
message has to be found by reading the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from holdfast.amqp.errors import MalformedMessage
from holdfast.batches.bounded import Undecodable
from holdfast.batches.codec import READABLE, Codec, compress, decompress, name_of
from holdfast.batches.joined_messages import ENTRY_BYTES, JoinedMessages, table_of
from holdfast.batches.sealed_section import SEALED_BYTES, seal, unseal

VERSION = 1
MAX_MESSAGES = 65_536
"""In one batch, as in a record batch of a log."""

_HEAD = struct.Struct(">BI")

HEAD_BYTES = SEALED_BYTES + _HEAD.size
"""What is added to the bytes of all messages together; each adds ENTRY_BYTES to its own."""


def pack(messages: Sequence[bytes], codec: Codec = Codec.NONE) -> bytes:
    """The message that holds these, which are encoded messages. `codec`: used if they get smaller by it."""
    return pack_joined(table_of(messages), messages, codec)


def pack_joined(lengths: bytes, contents: Sequence[bytes | memoryview], codec: Codec = Codec.NONE) -> bytes:
    """The same, of messages that are joined already. `lengths`: the table of theirs; `contents`: pieces of any size,
    which hold them one behind the other."""
    count = len(lengths) // ENTRY_BYTES
    if not 0 < count <= MAX_MESSAGES:
        raise ValueError(f"a batch holds 1 to {MAX_MESSAGES} messages, not {count}")
    packed = compress(codec, contents) if codec else None
    pieces = contents if packed is None else (packed,)
    return seal(VERSION, b"".join([_HEAD.pack(Codec.NONE if packed is None else codec, count), lengths, *pieces]))


def unpack(message: bytes, most_bytes: int) -> JoinedMessages:
    """The messages in it, as they were given to `pack`; whether they can be decoded, their receiver finds out.

    Raises MalformedMessage: it is no packed batch, or one of more than `most_bytes`.
    """
    start = unseal(message, VERSION, _HEAD.size, "packed batch")
    codec, count = _HEAD.unpack_from(message, start)
    start += _HEAD.size
    if not 0 < count <= MAX_MESSAGES or len(message) - start < ENTRY_BYTES * count:
        raise MalformedMessage(f"a packed batch that claims {count} messages in {len(message)} bytes")
    table = message[start : start + ENTRY_BYTES * count]
    start += ENTRY_BYTES * count
    size = sum(struct.unpack(f">{count}I", table))
    if size > most_bytes:
        raise MalformedMessage(f"the messages of a packed batch have {size} bytes; at most {most_bytes} are taken")
    if codec:
        message, start = _decompressed(codec, memoryview(message)[start:], size), 0
    elif start + size != len(message):
        raise MalformedMessage(f"the messages of a packed batch should have {size} bytes, not {len(message) - start}")
    return JoinedMessages(table, message, start, size)


def _decompressed(codec: int, packed: memoryview, size: int) -> bytes:
    if codec not in READABLE:
        raise MalformedMessage(f"compression {name_of(codec)} (codec {codec}) of a packed batch is not supported here")
    try:
        return decompress(codec, packed, size)
    except Undecodable as error:
        raise MalformedMessage(f"a packed batch does not decompress: {error}") from error
