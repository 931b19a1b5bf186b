"""The usual block of events as arrays of numpy: for programs to which even a list for each column is too slow.

Rule never broken: the arrays say what `EventBlock.columns` says, or there are none. Each byte on which that rests is
compared: the node's part of every message with that of the first one, and what the producer wrote with the shape of a
body of bytes, alone or after a key.

numpy is not among the client's packages; a caller has it (the extra `spark` brings it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.client.blocks.batch_block import BatchBlock
from holdfast.client.blocks.event_block import EventBlock, key_of
from holdfast.records.lengths import LENGTH_BYTES
from holdfast.records.record_batch import SEQUENCES, RecordBatch

_HEAD = 8  # descriptor, constructor and size of a section, at most
_DATA8 = np.frombuffer(b"\x00\x53\x75\xa0", np.uint8)
_DATA32 = np.frombuffer(b"\x00\x53\x75\xb0", np.uint8)
_KEYED = np.frombuffer(b"\x00\x53\x72\xd1", np.uint8)
_POWERS: Any = 16 ** np.arange(15, -1, -1, dtype=np.int64)


@dataclass(slots=True)
class EventArrays:
    offsets: Any  # int64
    timestamps_ms: Any  # int64
    keys: list[str | None] | None  # None: no event has one
    bodies: Any  # the bytes of all bodies, one after the other (anything with a buffer)
    body_ends: Any  # int32; one more than there are events, from 0 on
    producer_ids: Any = None  # int64, -1 of events that have no numbers; None: the reader has not asked for them
    sequences: Any = None  # the same


def arrays_of(block: EventBlock) -> EventArrays | None:
    """Arrays of a block's events. None: some event holds more than a body and a key, or its bytes are not the usual
    ones."""
    return _of_batches(block) if isinstance(block, BatchBlock) else _of_single(block)


def _of_single(block: EventBlock) -> EventArrays | None:
    payloads = block.payloads
    places = block.places
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    if places is None or int(sizes.min()) < places[-1] + _HEAD or int(sizes.sum()) >= 1 << 31:
        return None
    offset_at, offset_end, time_at, time_end, content = places
    alike = int(sizes.min()) == int(sizes.max())
    width = int(sizes[0]) if alike else content + _HEAD
    joined = b"".join(payloads if alike else [payload[:width] for payload in payloads])
    rows = np.frombuffer(joined, np.uint8).reshape(len(payloads), width)
    numbers = _numbers_at(block)
    fixed = rows[:, sorted({*range(content)} - {*range(offset_at, offset_end)} - {*range(time_at, time_end)} - numbers)]
    if offset_end - offset_at != len(_POWERS) or not (fixed == fixed[0]).all():
        return None
    offsets = _hexadecimal(rows[:, offset_at:offset_end])
    times = _big_endian(rows[:, time_at:time_end], ">i8").astype(np.int64)
    if offsets is None or (np.diff(offsets) <= 0).any():
        return None
    contents = _contents(block, rows[:, content : content + _HEAD], content, sizes)
    if contents is None:
        return None
    found = _arrays(block, offsets, times, contents, sizes, rows if alike else None)
    if block.numbers_at is not None:
        producer_at, _, sequence_at = block.numbers_at
        found.producer_ids = _big_endian(rows[:, producer_at : producer_at + 8], ">i8").astype(np.int64)
        found.sequences = _big_endian(rows[:, sequence_at : sequence_at + 4], ">i4").astype(np.int64)
    return found


def _of_batches(block: BatchBlock) -> EventArrays | None:
    """Tables and records are read in place, if all are of one form."""
    batches, alike = block.batches, len({batch.are_bodies for batch in block.batches}) == 1
    if alike:
        sizes = _joined([_sizes_in(batch) for batch in batches]).astype(np.int64)
        data = _joined([np.frombuffer(batch.joined(), np.uint8) for batch in batches])
    else:
        sizes = np.fromiter(map(len, block.payloads), np.int64, len(block))
        data = np.frombuffer(b"".join(block.payloads), np.uint8)
    counts = list(map(len, batches))
    places: Any = np.arange(len(block), dtype=np.int64) - np.repeat(
        np.cumsum([0, *counts[:-1]]), counts
    )  # in its batch
    offsets = np.repeat(np.array([batch.offset for batch in batches], np.int64), counts) + places
    times: Any = np.repeat(np.array([batch.head.time_ms for batch in batches], np.int64), counts)
    if alike and batches[0].are_bodies:
        ends: Any = np.zeros(len(block) + 1, np.int32)
        np.cumsum(sizes, out=ends[1:])
        found: EventArrays | None = EventArrays(offsets, times, None, data, ends)
    else:
        found = _of_messages(block, data, sizes, offsets, times)
    if found is not None and block.tells_publishers:
        publishers = [batch.publisher or (-1, -1, -1) for batch in batches]
        found.producer_ids = np.repeat(np.array([producer for producer, _, _ in publishers], np.int64), counts)
        firsts: Any = np.repeat(np.array([first for _, _, first in publishers], np.int64), counts)
        found.sequences = np.where(found.producer_ids < 0, -1, (firsts + places) % SEQUENCES)
    return found


def _joined(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _sizes_in(batch: RecordBatch) -> Any:
    return np.frombuffer(batch.table, ">u4", len(batch), LENGTH_BYTES * batch.head.first)


def _of_messages(block: BatchBlock, data: Any, sizes: Any, offsets: Any, times: Any) -> EventArrays | None:
    if int(sizes.min()) < _HEAD:
        return None
    rows: Any = None
    if int(sizes.min()) == int(sizes.max()):
        rows = data.reshape(len(block), int(sizes[0]))
        heads = rows[:, :_HEAD]
    else:
        heads = data[(np.cumsum(sizes) - sizes)[:, None] + np.arange(_HEAD)]
    contents = _contents(block, heads, 0, sizes)
    return None if contents is None else _arrays(block, offsets, times, contents, sizes, rows)


def _arrays(
    block: EventBlock,
    offsets: Any,
    times: Any,
    contents: tuple[list[str | None] | None, Any],
    sizes: Any,
    rows: Any,
) -> EventArrays:
    """`rows`: the messages as rows of bytes, if they are of one size."""
    keys, starts = contents
    ends: Any = np.zeros(len(block) + 1, np.int32)
    np.cumsum(sizes - starts, out=ends[1:])
    if rows is not None and int(starts.min()) == int(starts.max()):
        bodies = np.ascontiguousarray(rows[:, int(starts[0]) :])
    else:
        bodies = b"".join([payload[start:] for payload, start in zip(block.payloads, starts.tolist(), strict=True)])
    return EventArrays(offsets, times, keys, bodies, ends)


def _numbers_at(block: EventBlock) -> set[int]:
    """The bytes of the numbers that producers have given, where they are told."""
    if block.numbers_at is None:
        return set()
    return {at + byte for at, size in zip(block.numbers_at, (8, 2, 4), strict=True) for byte in range(size)}


def _big_endian(digits: Any, kind: str) -> Any:
    return np.ascontiguousarray(digits).view(kind).ravel()


def _hexadecimal(digits: Any) -> Any:
    """The numbers of rows of lower-case hex digits; None if there is anything else."""
    letters = digits > 0x60
    values = digits - np.where(letters, 0x57, 0x30).astype(np.uint8)
    if (values > 15).any() or (letters & (values < 10)).any() or (values[:, 0] > 7).any():
        return None
    return values.astype(np.int64) @ _POWERS


def _contents(block: EventBlock, heads: Any, content: int, sizes: Any) -> tuple[list[str | None] | None, Any] | None:
    """Keys, and where the bodies begin; None if an event is not plain. `heads`: the first bytes of what the producers
    wrote, which begins at `content` in each message."""
    keyed = (heads[:, :4] == _KEYED).all(axis=1)
    starts: Any = np.full(len(block), content, np.int64)
    keys: list[str | None] | None = None
    if keyed.any():
        if not keyed.all():
            return None
        starts += _HEAD + _u32(heads)
        if (starts + _HEAD > sizes).any():
            return None
        payloads = block.payloads
        keys = [key_of(payload[content:start]) for payload, start in zip(payloads, starts.tolist(), strict=True)]
        if None in keys:
            return None
        following = [payload[start : start + _HEAD] for payload, start in zip(payloads, starts.tolist(), strict=True)]
        heads = np.frombuffer(b"".join(following), np.uint8).reshape(len(payloads), _HEAD)
    left = sizes - starts
    short = (heads[:, :4] == _DATA8).all(axis=1) & (heads[:, 4] == left - 5)
    long = (heads[:, :4] == _DATA32).all(axis=1) & (_u32(heads) == left - 8)
    if not (short | long).all():
        return None
    return keys, starts + np.where(short, 5, 8)


def _u32(heads: Any) -> Any:
    return np.ascontiguousarray(heads[:, 4:8]).view(">u4").ravel().astype(np.int64)
