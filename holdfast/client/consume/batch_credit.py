"""Window of deliveries of record batches: credit counts deliveries, a program thinks in events and bytes."""

from __future__ import annotations

FIRST = 2
"""Deliveries that are welcome before any has come."""

EXPECTED_EVENTS, EXPECTED_BYTES = 2048, 512 * 1024
"""Events and bytes that a delivery may hold then."""

MOST = 64
"""Limit of deliveries: at the end of a log, where an event may come alone, their size says little of the next one."""

FADING = 0.9
"""Share of the largest one that stays with each that comes."""


class BatchWindow:
    def __init__(self, events: int, size: int) -> None:
        """Make a window in which so many events, and bytes, are welcome."""
        self._events, self._bytes = events, size
        self._largest_events = self._largest_bytes = 0.0

    def saw(self, events: int, size: int) -> None:
        """Note the size of a delivery that has come."""
        self._largest_events = max(events, self._largest_events * FADING)
        self._largest_bytes = max(size, self._largest_bytes * FADING)

    @property
    def deliveries(self) -> int:
        """Number of deliveries that are welcome: at least one, however large they are."""
        if self._largest_bytes:
            return self._within(MOST, self._largest_events, self._largest_bytes)
        return self._within(FIRST, EXPECTED_EVENTS, EXPECTED_BYTES)

    def _within(self, most: int, events: float, size: float) -> int:
        return max(1, min(most, int(self._events / events), int(self._bytes / size)))

    def holding(self, events: int) -> int:
        """Number of deliveries that so many events are about."""
        return -int(-events // self._largest_events) if events else 0
