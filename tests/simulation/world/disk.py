"""A disk that forgets what was not synced.

Writes are visible at once, as in the store. `crash(lose_unsynced=True)` is the loss of power: of what was written after
the last sync a prefix survives (the write-ahead log is sequential), chosen by the schedule's randomness.
`crash(lose_unsynced=False)` is kill -9: everything written survives, but is still not durable.

This one keeps everything in memory, and a batch survives whole or not at all. `files.py` has the one that writes the
production journal, where a batch can be torn and a bit can turn.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterator

from node.storage.errors import SyncFailed

PLENTY = 1 << 40
"""Free bytes: a full disk has tests of its own."""


class SimBatch:
    def __init__(self) -> None:
        self.operations: list[tuple[str, bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        self.operations.append(("put", key, value))

    def delete(self, key: bytes) -> None:
        self.operations.append(("delete", key, b""))

    def delete_range(self, start: bytes, end: bytes) -> None:
        assert start <= end
        self.operations.append(("range", start, end))

    def extend(self, other: object) -> None:
        assert isinstance(other, SimBatch)
        self.operations += other.operations


class SimDisk:
    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._unsynced: list[list[tuple[bytes, bytes | None]]] = []
        self._writes = 0
        self._drained = 0
        self._failure_noted = False
        self.ignores_sync = False
        self.syncs = 0

    # ---- what nodes use

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        low, high = bisect_left(self._keys, start), bisect_left(self._keys, end)
        order = range(high - 1, low - 1, -1) if reverse else range(low, high)
        for position in order:
            key = self._keys[position]
            yield key, self._values[key]

    def batch(self) -> SimBatch:
        return SimBatch()

    def write(self, batch: SimBatch) -> None:
        undo: list[tuple[bytes, bytes | None]] = []
        for kind, key, value in batch.operations:
            if kind == "range":
                for doomed in self._keys[bisect_left(self._keys, key) : bisect_left(self._keys, value)]:
                    self._set(doomed, None, undo)
            else:
                self._set(key, value if kind == "put" else None, undo)
        self._unsynced.append(undo)
        self._writes += 1

    def sync(self) -> None:
        self.end_sync(self.begin_sync())

    @property
    def must_drain(self) -> bool:
        return self.keeps_writes and self._drained < self._writes

    def drain(self) -> None:
        self.end_drain(self._writes)

    def free_bytes(self) -> int:
        return PLENTY

    def capacity_bytes(self) -> int:
        return PLENTY

    # ---- what schedules use

    damaged = False
    """A bit of it was turned, or a sync failed: it must not open any more."""
    failing = False
    """The next sync fails, once, as on Linux: what it was to write counts as clean, and will never be durable."""
    slow = False
    """Its syncs take long, all of them."""
    keeps_writes = False
    """What is written waits in the process, and is lost with it, until it is drained."""
    stale_watermark = False
    """After a loss of power the watermark may be an old one."""

    @property
    def is_sound(self) -> bool:
        return not (self.damaged or self.failing)

    def fail_if_told(self) -> None:
        if self.failing:
            self.failing, self.damaged, self._failure_noted = False, True, True
            raise SyncFailed("the simulated disk", "it was told to fail")

    def heal(self) -> None:
        self.failing = self.slow = False

    def begin_sync(self) -> int:
        """A sync begins: what is written from now on is not its business."""
        return self._writes

    def end_drain(self, begun: int) -> None:
        self._drained = max(self._drained, begun)

    def end_sync(self, begun: int) -> None:
        self.syncs += 1
        self.fail_if_told()
        self.end_drain(begun)
        if not self.ignores_sync:
            durable = len(self._unsynced) - (self._writes - begun)
            del self._unsynced[: max(0, durable)]

    def open(self) -> None:
        """The process starts. Raises StorageDamaged, SyncFailed."""
        if self._failure_noted:
            raise SyncFailed("the simulated disk", "it was told to fail, and that was noted", noted=True)

    def close(self) -> None:
        """The schedule is over."""

    def flip(self, randomness: random.Random) -> bool:
        """Turn a bit of what is durable; False: there is nothing."""
        return False

    def image(self) -> SimDisk:
        """What a backup of it holds, taken while it is in use."""
        image = type(self)()
        image._values, image._keys = dict(self._values), list(self._keys)
        return image

    def crash(self, randomness: random.Random, *, lose_unsynced: bool) -> None:
        written, waiting = len(self._unsynced), self._writes - self._drained
        self._drained = self._writes
        if lose_unsynced:
            survivors = randomness.randint(0, written)
        elif self.keeps_writes:
            survivors = written - randomness.randint(0, waiting)
        else:
            return
        while len(self._unsynced) > survivors:
            for key, before in reversed(self._unsynced.pop()):
                self._put(key, before)
        if lose_unsynced:
            self._unsynced.clear()

    def _set(self, key: bytes, value: bytes | None, undo: list[tuple[bytes, bytes | None]]) -> None:
        undo.append((key, self._values.get(key)))
        self._put(key, value)

    def _put(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            if self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value
