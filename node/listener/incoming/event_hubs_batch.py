"""One transfer that holds many messages: the batches of Event Hubs' clients.

Problem: clients of Event Hubs send a batch as one message of a format of its own: each of its data sections is a whole
message. It is one delivery, so it has one outcome; but it is many events, each with an offset.
Rules never broken:
 - all of an envelope is stored, side by side, or nothing of it: it is one append, which is one entry of the log;
 - what is not a sequence of messages is refused as a whole, and so is an envelope whose parts contradict it;
 - an envelope is known by the format its transfer states, never by what it looks like: a program may well put encoded
   messages into data sections of its own.
Event Hubs' format is named in the frames alone, where looking for it costs more than everything else that is done for a
message. So it is looked for on connections of peers that announce neither Event Streams nor link redirects, as those of
Event Hubs do; see `holdfast/amqp/framing/frame_scanner.py`.

Where an envelope goes is said by its own annotations, else by those of its first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.amqp import MalformedMessage
from holdfast.amqp.messages.message_validation import all_data, ends_in_data
from holdfast.amqp.messages.sections import DATA, decode_section, section_at, skip_value, split
from holdfast.records.lengths import LENGTH_BYTES
from holdfast.records.record_batch import MAX_RECORDS, RecordBatch, seal
from node.listener.incoming import routing_annotations
from node.listener.incoming.append_queue import sealed_messages

MAX_SECTIONS = 2 * MAX_RECORDS
"""Sections of all messages of an envelope together: with 32 bytes each they fill the largest there is. Each is looked
at, in one turn of the event loop."""

ALIKE_MOST_BYTES = 2048
"""Largest message that is looked at together with others. Larger ones cost as little one by one."""


class Envelope(NamedTuple):
    """An Event Hubs batch. `front`: its own annotations, as a message without contents. `contents`: its messages, as
    they were sent; sealed, if they are bodies of bytes without annotations."""

    front: bytes
    contents: Sequence[bytes] | RecordBatch

    @property
    def messages(self) -> Sequence[bytes]:
        return self.contents.records() if isinstance(self.contents, RecordBatch) else self.contents


class Contents(NamedTuple):
    """Sealed messages of an envelope without sequence numbers, and the routing that its producer asks for."""

    sealed: RecordBatch
    target_partition: str | None
    group_key: str | None


_AROUND = 5  # sections that may stand in front of those of data
_NO_BODY = b"\x00Sw\x40"
_LARGE_PROPERTIES, _ONE_TEXT = b"\x00Ss\xd0\x00\x00\x00", b"\x00\x00\x00\x01\xa1"
_ID_AT = 14  # behind those and two sizes
_SMALL, _LARGE = b"\x00Su\xa0", b"\x00Su\xb0"  # data sections


def open_envelope(payload: bytes) -> Envelope:
    """Split an envelope into its messages. Raises MalformedMessage."""
    plain = _plain_envelope(payload)
    if plain is not None:
        return plain
    _check_sections(payload, MAX_RECORDS + _AROUND)
    sections = split(payload)
    inner = [decode_section(payload, section) for section in sections if section.code == DATA]
    if not inner or sections[-1].code != DATA:
        raise MalformedMessage("a batch is made of data sections and nothing behind them, each with a message in it")
    if len(inner) > MAX_RECORDS:
        raise MalformedMessage(f"a batch holds at most {MAX_RECORDS} messages, this one has {len(inner)}")
    left = MAX_SECTIONS
    for position, message in enumerate(inner):
        try:
            _check_sections(message, left)
            codes = [section.code for section in split(message)]
        except MalformedMessage as problem:
            raise MalformedMessage(f"message {position} of the batch cannot be read: {problem}") from None
        left -= len(codes)
        if codes[-1] < DATA:
            raise MalformedMessage(f"message {position} of the batch has no body")
    front = next(section.start for section in sections if section.code == DATA)
    return Envelope(payload[:front] + _NO_BODY, inner)


def _plain_envelope(payload: bytes) -> Envelope | None:
    """An envelope without annotations whose messages are bodies of bytes, as most are: a sixth of the work. None: it is
    another, or has a fault."""
    front = _behind_id(payload)
    found = _alike(payload, front) or _one_by_one(payload, front)
    return Envelope(payload[:front] + _NO_BODY, found) if found else None


def _alike(payload: bytes, front: int) -> RecordBatch | None:
    """Seal plain messages of one size, whose ids are of one size, too. None: they are others, or have a fault.

    What stands at one place of all of them is looked at together, in C; only ids and contents may differ. The heads of
    the envelope's sections are taken out in the same way, so that no message becomes an object of its own.
    """
    start, end = _contents(payload, front)
    step = end - front
    count, rest = divmod(len(payload) - front, step) if start else (0, 1)
    if rest or count > MAX_RECORDS or step > ALIKE_MOST_BYTES or not _all_plain([payload[start:end]]):
        return None
    body = start + _behind_id(payload[start:end])
    ids = range(min(start + _ID_AT, body), body)
    same = (*range(front, ids.start), *range(body, _contents(payload, body)[0]))
    if any(payload[at::step] != payload[at : at + 1] * count for at in same):
        return None
    if not all(payload[at::step].isascii() for at in ids):
        return None
    records = bytearray(payload)
    for gone in range(start - front):
        del records[front :: step - gone]
    table = (end - start).to_bytes(LENGTH_BYTES, "big") * count
    return seal(table, [memoryview(records)[front:]], bodies=False)


def _one_by_one(payload: bytes, front: int) -> RecordBatch | None:
    """Seal plain messages of any sizes. None: they are others, or have a fault."""
    found: list[bytes] = []
    pos, size = front, len(payload)
    while pos + 8 <= size and len(found) < MAX_RECORDS:
        kind = payload[pos : pos + 4]
        if kind == _SMALL:
            start = pos + 5
            end = start + payload[pos + 4]
        elif kind == _LARGE:
            start = pos + 8
            end = start + int.from_bytes(payload[pos + 4 : start], "big")
        else:
            return None
        found.append(payload[start:end])
        pos = end
    return sealed_messages(found) if pos == size and found and _all_plain(found) else None


def _contents(payload: bytes, pos: int) -> tuple[int, int]:
    """Find the begin and the end of what a data section holds. (0, 0): it is another section, or half of one."""
    if payload.startswith(_SMALL, pos) and len(payload) >= pos + 5:
        return pos + 5, pos + 5 + payload[pos + 4]
    if payload.startswith(_LARGE, pos):
        return pos + 8, pos + 8 + int.from_bytes(payload[pos + 4 : pos + 8], "big")
    return 0, 0


def _all_plain(messages: Sequence[bytes]) -> bool:
    """True if every message is a body of bytes, perhaps behind a message-id alone, which the Go SDK gives to each."""
    if not _behind_id(messages[0]):
        return all_data(messages)
    return all([0 < (at := _behind_id(one)) < len(one) and ends_in_data(one, at) for one in messages])  # noqa: C419


def _behind_id(message: bytes) -> int:
    """The end of properties that hold a message-id alone, a short text in a large list; 0: it begins with others."""
    if message[:7] != _LARGE_PROPERTIES or message[8:13] != _ONE_TEXT or len(message) < 14:
        return 0
    end = 14 + message[13]
    return end if message[7] == message[13] + 6 and message[14:end].isascii() and end <= len(message) else 0


def _check_sections(payload: bytes, most: int) -> None:
    """Raise MalformedMessage for bytes that are more sections than that, without looking at more of them. Other faults
    are found later."""
    if payload.count(0) <= most:  # each begins with such a byte: counting these costs next to nothing
        return
    pos = previous = count = 0
    while pos < len(payload):
        if count >= most:
            raise MalformedMessage(f"a batch holds at most {MAX_RECORDS} messages, of {MAX_SECTIONS} sections together")
        previous, value = section_at(payload, pos, previous)
        pos = skip_value(payload, value)
        count += 1


def read_plain(envelope: Envelope) -> Contents:
    """Seal an envelope's messages, and read its routing. Raises MalformedMessage, or Refused for messages with a
    producer's numbers."""
    outer = routing_annotations.read(envelope.front)
    if isinstance(envelope.contents, RecordBatch):
        return Contents(envelope.contents, outer.target_partition, outer.group_key)
    read = [routing_annotations.read(message) for message in envelope.contents]
    for position, one in enumerate(read):
        if one.target_partition not in (None, outer.target_partition or read[0].target_partition):
            raise MalformedMessage(f"message {position} of the batch asks for another partition than the batch")
    return Contents(
        sealed_messages([one.stored for one in read]),
        outer.target_partition or read[0].target_partition,
        outer.group_key or read[0].group_key,
    )
