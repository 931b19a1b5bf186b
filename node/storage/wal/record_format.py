"""Format of the write-ahead log's segments and records.

A record can be found even after one that is unreadable: each begins with the *marker* of its segment, 8 random bytes
that are in the segment's head and nowhere else. (Not a constant: a client could send an event that looks like records.)
It also says up to where the segment was durable when it was written. So a whole record proves that a broken one before
it is damage, if that was durable by then; a tail that was merely torn off by a loss of power was not.
"""

from __future__ import annotations

import os
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from node.storage.errors import StorageDamaged

PUT, DELETE, DELETE_RANGE = 1, 2, 3
Op = tuple[int, bytes, bytes]  # kind, key (or start of the range), value (or end of the range)

MARKER_BYTES = 8
_MAGIC = b"HFjournl"
_SEGMENT = struct.Struct(
    ">8s8sIQQI"
)  # magic, marker, number, first record's sequence, length of the one before, checksum
_RECORD = struct.Struct(
    ">8sIIQQQ"
)  # marker, checksum of what follows, lengths of description and data, sequence, durable
_OP = struct.Struct(">BHII")  # kind, key length, value length, checksum of the value
_CRC = struct.Struct(">I")
_CHECKED_FROM = MARKER_BYTES + _CRC.size

SEGMENT_HEAD_BYTES = _SEGMENT.size
RECORD_HEAD_BYTES = _RECORD.size


class WalPosition(NamedTuple):
    """Position between two records."""

    segment: int
    offset: int


class ValueLocation(NamedTuple):
    """Location of a value, its length and its checksum."""

    segment: int
    offset: int
    length: int
    checksum: int


class Values(NamedTuple):
    """Locations of a record's values: one after the other, in the order of its ops."""

    segment: int
    offset: int
    lengths: list[int]
    checksums: list[int]


class Record(NamedTuple):
    start: WalPosition
    end: WalPosition
    ops: list[Op]
    values: Values


@dataclass(frozen=True, slots=True)
class SegmentHead:
    marker: bytes
    first_sequence: int
    previous_length: int


@dataclass(frozen=True, slots=True)
class RecordHead:
    meta: bytes
    data_bytes: int
    sequence: int
    durable: int  # offset in the same segment

    @property
    def data_at(self) -> int:
        """Offset of the data from the record's begin."""
        return RECORD_HEAD_BYTES + len(self.meta)

    @property
    def size(self) -> int:
        return self.data_at + self.data_bytes


def new_marker() -> bytes:
    return secrets.token_bytes(MARKER_BYTES)


# ---------------------------------------------------------------- writing


def encode_segment_head(number: int, head: SegmentHead) -> bytes:
    data = _SEGMENT.pack(_MAGIC, head.marker, number, head.first_sequence, head.previous_length, 0)[: -_CRC.size]
    return data + _CRC.pack(crc32c(data))


def encode_op(kind: int, key: bytes, value_bytes: int, checksum: int) -> bytes:
    """Encode an op without its value. All ops of a record, one after the other, are its description."""
    return _OP.pack(kind, len(key), value_bytes, checksum) + key


def encode_record_head(marker: bytes, meta: bytes, data_bytes: int, sequence: int, durable: int) -> bytes:
    head = _RECORD.pack(marker, 0, len(meta), data_bytes, sequence, durable)
    return marker + _CRC.pack(crc32c(meta, crc32c(head[_CHECKED_FROM:]))) + head[_CHECKED_FROM:]


# ---------------------------------------------------------------- reading


def read_segment_head(file: int, number: int, path: Path) -> SegmentHead | None:
    """Read a segment's head. None: it is not whole."""
    data = os.pread(file, SEGMENT_HEAD_BYTES, 0)
    if len(data) < SEGMENT_HEAD_BYTES or _CRC.unpack(data[-_CRC.size :])[0] != crc32c(data[: -_CRC.size]):
        return None
    magic, marker, named, first_sequence, previous_length, _ = _SEGMENT.unpack(data)
    if magic != _MAGIC or named != number:
        raise StorageDamaged(path, f"it is segment {named} under another name")
    return SegmentHead(marker, first_sequence, previous_length)


def read_record_head(file: int, offset: int, marker: bytes) -> RecordHead | None:
    """Read a record's head. None: there is no whole one."""
    raw = os.pread(file, RECORD_HEAD_BYTES, offset)
    if len(raw) < RECORD_HEAD_BYTES:
        return None
    found, checksum, meta_bytes, data_bytes, sequence, durable = _RECORD.unpack(raw)
    if found != marker:
        return None
    meta = os.pread(file, meta_bytes, offset + RECORD_HEAD_BYTES)
    if len(meta) < meta_bytes or crc32c(meta, crc32c(raw[_CHECKED_FROM:])) != checksum:
        return None
    return RecordHead(meta, data_bytes, sequence, durable)


def read_record(file: int, begin: WalPosition, head: RecordHead, *, with_values: bool) -> Record | None:
    """Read a record. None: a value does not match its checksum."""
    ops: list[Op] = []
    data_at = begin.offset + head.data_at
    values = Values(begin.segment, data_at, [], [])
    data = os.pread(file, head.data_bytes, data_at) if with_values else b""
    meta, at, value_at = head.meta, 0, 0
    while at < len(meta):
        kind, key_length, length, checksum = _OP.unpack_from(meta, at)
        at += _OP.size + key_length
        value = data[value_at : value_at + length]
        if with_values and crc32c(value) != checksum:
            return None
        ops.append((kind, meta[at - key_length : at], value))
        values.lengths.append(length)
        values.checksums.append(checksum)
        value_at += length
    return Record(begin, WalPosition(begin.segment, begin.offset + head.size), ops, values)
