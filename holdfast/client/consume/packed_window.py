"""How many packed deliveries may be under way or buffered: credit counts them, a program thinks in events and bytes."""

from __future__ import annotations

from typing import Any

from holdfast import protocol

FIRST = 2
"""Before any has come. Each is some hundred KiB, or one event that is larger."""

MOST = 64
"""At the end of a log, where an event may come by itself, their size says little of the next one."""

WORTH_EVENTS, WORTH_BYTES = 4096, 1 << 20
"""Who wants fewer at a time is better off with single events: a delivery may hold as many."""

FADING = 0.9
"""What is left of the largest one with each that comes."""


class PackedWindow:
    def __init__(self, events: int, size: int) -> None:
        """So many events, and bytes, are welcome."""
        self._events, self._bytes = events, size
        self._largest_events = self._largest_bytes = 0.0
        self.is_worth_it = events >= WORTH_EVENTS and size >= WORTH_BYTES

    @property
    def properties(self) -> dict[str, Any]:
        """What is said of it at the attach."""
        return {protocol.PACKED_DELIVERIES: True} if self.is_worth_it else {}

    def saw(self, events: int, size: int) -> None:
        """One has come."""
        self._largest_events = max(events, self._largest_events * FADING)
        self._largest_bytes = max(size, self._largest_bytes * FADING)

    @property
    def deliveries(self) -> int:
        if not self._largest_bytes:
            return FIRST
        return max(1, min(MOST, int(self._events / self._largest_events), int(self._bytes / self._largest_bytes)))

    def holding(self, events: int) -> int:
        """How many deliveries so many events are about."""
        return -int(-events // self._largest_events) if events else 0
