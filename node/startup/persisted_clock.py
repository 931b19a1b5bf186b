"""The time that a node lived to see, kept for its next process.

A hint, and a lower bound: it is written once a minute without a sync of its own (the next turn's carries it), and a
loss by a crash makes deletion by time a little later, never earlier (`node/cluster_clock.py`).
"""

from __future__ import annotations

import struct

from node.storage import StorageDamaged, Store

KEY = b"k"
_ROW = struct.Struct(">q")

NOTE_EVERY_MS = 60_000
"""Lived time that a restart may lose, where no other node's clock is heard."""


class ClockMemory:
    def __init__(self, disk: Store) -> None:
        self._disk = disk
        row = disk.get(KEY)
        if row is not None and len(row) != _ROW.size:
            raise StorageDamaged(disk.path, "the time that it notes is unreadable")
        self.noted_ms: int | None = None if row is None else _ROW.unpack(row)[0]

    def note(self, lived_ms: int) -> None:
        """Note the lived time; called often, it writes seldom. The time may also be earlier: the others have agreed
        that it was wrong."""
        if self.noted_ms is not None and abs(lived_ms - self.noted_ms) < NOTE_EVERY_MS:
            return
        batch = self._disk.batch()
        batch.put(KEY, _ROW.pack(lived_ms))
        self._disk.write(batch)
        self.noted_ms = lived_ms
