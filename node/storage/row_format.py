"""Format of RocksDB's rows, and the keys that are the store's own.

Keys of callers begin with a byte above 0; those of the store with 0, and callers never see them. A row of an entry
(`b"e"` + group u64 + index u64) begins with a byte that says whether the value follows or a pointer into the
write-ahead log.
"""

from __future__ import annotations

import struct

from node.storage.wal.record_format import ValueLocation, WalPosition
from node.storage.wal.write_ahead_log import WriteAheadLog

POSITION_KEY = b"\0p"
"""Key of the position up to which RocksDB holds the write-ahead log: written with every batch, so it is always
right."""
ROWS_START = b"\1"

_SUMMARY = b"\0s"
_POSITION = struct.Struct(">QQ")
_POINTER = struct.Struct(">BQQII")
_NUMBER = struct.Struct(">Q")

ENTRY_KEY_BYTES = 17
_ENTRY_KIND = ord("e")
_HERE, _THERE = b"\0", 1


def is_entry(key: bytes) -> bool:
    return key[0] == _ENTRY_KIND and len(key) == ENTRY_KEY_BYTES


def row_here(value: bytes) -> bytes:
    """The row of a small entry."""
    return _HERE + value


def row_there(segment: int, offset: int, length: int, checksum: int) -> bytes:
    """The row of an entry whose value is in the write-ahead log."""
    return _POINTER.pack(_THERE, segment, offset, length, checksum)


def place_of(row: bytes) -> ValueLocation | None:
    """Location of the entry's value in the write-ahead log; None if the row holds it."""
    return ValueLocation(*_POINTER.unpack(row)[1:]) if row[0] == _THERE else None


def value_of(row: bytes, wal: WriteAheadLog) -> bytes:
    place = place_of(row)
    return row[1:] if place is None else wal.read(place)


def encode_position(position: WalPosition) -> bytes:
    return _POSITION.pack(*position)


def decode_position(row: bytes) -> WalPosition:
    return WalPosition(*_POSITION.unpack(row))


def summary_key(segment: int) -> bytes:
    """Key of the row that lists the owners of the values in a sealed segment."""
    return _SUMMARY + _NUMBER.pack(segment)


def summary_range() -> tuple[bytes, bytes]:
    return _SUMMARY, _SUMMARY + b"\xff" * 9


def segment_of(summary: bytes) -> int:
    return int(_NUMBER.unpack(summary[len(_SUMMARY) :])[0])
