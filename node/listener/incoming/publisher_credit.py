"""Credit of a link that brings events: how many messages its publisher may send.

Credit is granted for what has been answered, never for what is still under way: the window bounds what a link can have
in memory here, whatever the peer does.
"""

from __future__ import annotations

MIN_CREDIT = 2
"""Least credit, however big the messages: one being replicated, one on its way."""


class PublisherCredit:
    """Window of one link: at most `window` messages unanswered, or fewer if their bytes would pass the bound."""

    def __init__(self, window: int, window_bytes: int) -> None:
        self.window, self._window_bytes = window, window_bytes
        self.unanswered = 0
        self.mean_size = 0.0  # of the latest messages

    def received(self, count: int, size: int) -> None:
        self.unanswered += count
        share = min(1.0, count / 64) if self.mean_size else 1.0
        self.mean_size += (size / count - self.mean_size) * share

    def answered(self, count: int) -> None:
        self.unanswered -= count

    def missing(self, credit: int) -> int:
        """Credit to grant beside what the link has. 0 until a quarter of the window is missing, so that a flow frame
        goes out for many messages, not for each."""
        window = self.window
        if self.mean_size * window > self._window_bytes:
            window = max(MIN_CREDIT, int(self._window_bytes / self.mean_size))
        missing = window - self.unanswered - credit
        return missing if missing > 0 and missing * 4 >= window else 0
