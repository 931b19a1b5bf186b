"""Choice of the way that records take to their segment: through the page cache, or past it.

The problem: writing past the page cache costs half the processor, and each time a round trip to the device. With few
bytes at a time that trip costs more than it saves; and where only a system call's durability is asked for, we would
wait for a slow disk that the page cache would have hidden.

Measured (three nodes and their client on two cores; rate and CPU of all processes, through the page cache = 1):

                                            fsync             in page caches
    batches of 500 events of 1 KiB       1.29   0.81    1.30 (with a reader at the tail)   0.85
    batches of 500 events of 100 B       1.13   0.92    1.22   0.89
    single events of 16 KiB              1.32   0.76    1.50   0.69
    single events of 1 MiB               1.40   0.69    1.45   0.66
    single events of 100 B               0.87     -     (40 KiB at a time: so they go through the page cache)

The right half is from before a node kept more than 32 MiB of newest events. With 256 MiB, while they fill up, it was
1.07 for batches of 1 KiB and 1.16 for events of 16 KiB.

The rules: many bytes go past the page cache, and so do few while many are usual, since a mix makes the system look for
the pages of one before the other. A write that need not wait for the disk uses it only while it is fast. The speed that
half of the bytes reach at least decides: on a busy machine some writes take ten times as long as the disk does, since
their thread waits for a processor or for the interpreter.
"""

from __future__ import annotations

SYNCED_FROM_BYTES = 128 * 1024
"""Bytes, now or usually, from which writes that wait for the disk anyway go past the page cache."""
DRAINED_FROM_BYTES = 384 * 1024
"""Bytes from which others do: with single events of 1 KiB, 200 at a time, the direct way has 0.8 of the rate."""

SHARE = 0.125
"""Weight of the newest write in the usual number of bytes."""

TRIED_BYTES = 16 << 20
"""Bytes that are written past the page cache before the disk's speed is judged."""
FAST_BYTES_PER_S = 250e6
"""Speed of a fast disk: a solid-state drive reaches it; a rotating disk, and the cheap ones of clouds, do not."""
OFTEN_SLOWER = 10
"""Factor by which the mean of all writes may be slower: beyond it the disk stands still again and again."""
CACHED_BYTES = 512 << 20
"""Bytes that go through the page cache before a slow disk is tried again."""


class WritePath:
    """Choice of the way for one write-ahead log; called by one thread at a time."""

    def __init__(self, *, is_synced: bool) -> None:
        """`is_synced`: a sync follows each time. Otherwise nobody need wait for the disk, and a slow one is avoided."""
        self._is_synced = is_synced
        self._direct_from = SYNCED_FROM_BYTES if is_synced else DRAINED_FROM_BYTES
        self._usual_bytes = 0.0
        self._tried: list[tuple[float, int]] = []  # bytes per second, and bytes
        self._tried_bytes = 0
        self._cached_bytes = 0  # still to go through the page cache: the disk is slow

    def is_direct(self, size: int) -> bool:
        """Choose for a write of `size` bytes: True: past the page cache."""
        self._usual_bytes += SHARE * (size - self._usual_bytes)
        if self._cached_bytes > 0:
            self._cached_bytes -= size
            return False
        return max(size, self._usual_bytes) >= self._direct_from

    def took(self, size: int, seconds: float) -> None:
        """Note the time of a write past the page cache. Only a large one tells how fast the disk is."""
        if self._is_synced or size < self._direct_from:
            return
        self._tried.append((size / max(seconds, 1e-9), size))
        self._tried_bytes += size
        if self._tried_bytes >= TRIED_BYTES:
            mean = self._tried_bytes / sum(size / speed for speed, size in self._tried)
            if _usual_speed(self._tried) < FAST_BYTES_PER_S or mean < FAST_BYTES_PER_S / OFTEN_SLOWER:
                self._cached_bytes = CACHED_BYTES
            self._tried, self._tried_bytes = [], 0


def _usual_speed(tried: list[tuple[float, int]]) -> float:
    """Speed that half of the bytes reach at least."""
    left = sum(size for _, size in tried) / 2
    for speed, size in sorted(tried, reverse=True):
        left -= size
        if left <= 0:
            return speed
    return 0.0
