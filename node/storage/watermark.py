"""How far the journal was certainly durable: a number beside it that shows when its end was cut off.

The problem: a journal that lost its end looks like one whose last write was torn by a kill. What is missing may have
been acknowledged; a replica without it can lose it for the cluster.

The rule: after every sync, the position that it covered is written here, and a journal that ends before it is not
opened. The number is written in place without a sync of its own: after a loss of power it may say too little, never
too much, since it is written after the sync that it speaks of.

Rejected: comparing with the peers at start (a node alone must know that it is damaged), and a second sync.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from crc32c import crc32c

from node.storage.errors import StorageDamaged
from node.storage.journal import Position

_RECORD = struct.Struct(">QQI")


class Watermark:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> Position | None:
        """None: the file is new."""
        data = os.pread(self._file, _RECORD.size + 1, 0)
        if not data:
            return None
        if len(data) != _RECORD.size:
            raise StorageDamaged(self._path, f"it has {len(data)} bytes instead of {_RECORD.size}")
        segment, offset, checksum = _RECORD.unpack(data)
        if checksum != crc32c(data[:-4]):
            raise StorageDamaged(self._path, "its checksum does not match")
        return Position(segment, offset)

    def write(self, position: Position) -> None:
        data = _RECORD.pack(*position, 0)[:-4]
        os.pwrite(self._file, data + crc32c(data).to_bytes(4, "big"), 0)

    def close(self) -> None:
        os.close(self._file)
