"""Many events of one partition in one transfer: what a node sends on a receiving link that has agreed to it.

Problem: a delivery for each event costs its sender and its receiver a microsecond and more, for an offset that is one
more than that of the event before it and a timestamp that is the same.
Rules never broken:
 - a packed delivery is a message like any other (one data section), and is known by what was agreed for its link,
   never by what it looks like;
 - the events are the bytes that their producers sent, in the order of the log; whether they can be decoded, who looks
   into one finds out;
 - what is claimed is compared with what is there before anything is made of it: a CRC-32C covers everything.

The content of the data section, big-endian:

    version u8 = 2 | CRC-32C u32 of all that follows | form u8 | runs u32 | of each run:
        first offset i64 | timestamp i64 ms | count u32 | producer id i64 | producer epoch i16 | first number i32
    | length u32 of each event | the events, one after the other

Form 0: events as messages. Form 1: the bodies of events that are one data section each, as they are stored where they
were sent so (`packed_batch.py`).

A run is consecutive events with one timestamp: all, or a part, of what was stored together. The three numbers of an
idempotent producer are -1 where the events have none, or nobody has asked for them.

Rejected: the stored bytes of record batches, unopened. They hold events before and behind what a reader asked for, and
the first thing that every reader would do is to open them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from holdfast.amqp.errors import MalformedMessage
from holdfast.records.joined_messages import JoinedMessages, alike, are_bodies, pieces_of, table_of
from holdfast.records.lengths import size_of
from holdfast.records.packed_batch import BODIES, MESSAGES
from holdfast.records.sealed_section import seal, unseal

VERSION = 2
MAX_RUNS = 65_536
MAX_EVENTS = 65_536

_HEAD = struct.Struct(">BI")
_RUN = struct.Struct(">qqIqhi")
_NOT_NUMBERED = (-1, -1, -1)


class Run(NamedTuple):
    """`publisher`: producer id, epoch and number of the first event."""

    offset: int
    timestamp_ms: int
    events: int
    publisher: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class PackedDelivery:
    runs: list[Run]
    messages: JoinedMessages
    """The events, or their bodies."""
    data: bytes
    events_at: int
    """In `data`, where the events begin, which are all that follows; right before it is the table of lengths."""

    @property
    def last_offset(self) -> int:
        last = self.runs[-1]
        return last.offset + last.events - 1

    def events(self) -> list[bytes]:
        """As their producers sent them."""
        return self.messages.split()


def pack(runs: Sequence[Run], parts: Sequence[Sequence[bytes]]) -> bytes:
    """The message that holds these events, in parts of any size; the runs count as many as there are."""
    heads = [_RUN.pack(run.offset, run.timestamp_ms, run.events, *(run.publisher or _NOT_NUMBERED)) for run in runs]
    parts = alike(parts)
    form = BODIES if are_bodies(parts[0]) else MESSAGES
    front = b"".join([_HEAD.pack(form, len(runs)), *heads, *map(table_of, parts)])
    return seal(VERSION, [front, *chain.from_iterable(map(pieces_of, parts))])


def unpack(message: bytes) -> PackedDelivery:
    """Raises MalformedMessage: it is no packed delivery, or it claims what is not there."""
    start = unseal(message, VERSION, _HEAD.size, "packed delivery")
    form, count = _HEAD.unpack_from(message, start)
    if form not in (MESSAGES, BODIES):
        raise MalformedMessage(f"form {form} of a packed delivery is not known here")
    start += _HEAD.size
    lengths_at = start + _RUN.size * count
    if not 0 < count <= MAX_RUNS or lengths_at > len(message):
        raise MalformedMessage(f"a packed delivery that claims {count} runs in {len(message)} bytes")
    heads = memoryview(message)[start:lengths_at]
    runs = [
        Run(offset, time_ms, many, None if producer == -1 else (producer, epoch, number))
        for offset, time_ms, many, producer, epoch, number in _RUN.iter_unpack(heads)
    ]
    _check_order(runs)
    events = sum(run.events for run in runs)
    events_at = lengths_at + 4 * events
    if events > MAX_EVENTS or events_at > len(message):
        raise MalformedMessage(f"a packed delivery that claims {events} events in {len(message)} bytes")
    table = message[lengths_at:events_at]
    size, there = size_of(table), len(message) - events_at
    if size != there:
        raise MalformedMessage(f"the events of a packed delivery should have {size} bytes, not {there}")
    messages = JoinedMessages(table, message, events_at, size, bodies=form == BODIES)
    return PackedDelivery(runs, messages, message, events_at)


def _check_order(runs: Sequence[Run]) -> None:
    ends = chain((0,), (run.offset + run.events for run in runs))
    for run, end in zip(runs, ends, strict=False):
        if run.events < 1 or run.offset < end:
            raise MalformedMessage(f"a run of {run.events} events at offset {run.offset}, behind those before {end}")
