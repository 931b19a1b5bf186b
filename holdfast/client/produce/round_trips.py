"""How long transfers take: from sending to the answer, and from when their events were taken in."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

# So many are remembered: half a second of them under load.
REMEMBERED = 256


class Latency(NamedTuple):
    """Of the first event of a transfer."""

    since_s: float  # it was taken in
    seconds: float  # from then to the answer


class RoundTrips:
    """Of one route."""

    __slots__ = ("_sent_s", "latest", "shortest_s")

    def __init__(self) -> None:
        self.shortest_s = 0.0
        """0 while there was none."""
        self.latest: deque[Latency] = deque(maxlen=REMEMBERED)
        """In the order of the answers."""
        self._sent_s = 0.0

    def took(self, since_s: float, sent_s: float, now_s: float) -> None:
        """One was answered now. Of those that were sent in one go, single messages that are answered in one go, too,
        the first stands for all."""
        if sent_s == self._sent_s:
            return
        self._sent_s = sent_s
        seconds = now_s - sent_s
        if seconds < self.shortest_s or not self.shortest_s:
            self.shortest_s = seconds
        self.latest.append(Latency(since_s, now_s - since_s))
