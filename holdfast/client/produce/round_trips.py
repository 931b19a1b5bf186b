"""How long transfers take: from sending to the answer, and from when their events were taken in until their program has
been told."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import takewhile
from time import monotonic
from typing import NamedTuple

# So many are remembered: half a second of them under load.
REMEMBERED = 256


class Latency(NamedTuple):
    """Of the first event of a transfer."""

    since_s: float  # it was taken in
    told_s: float


class RoundTrips:
    """Of one route."""

    __slots__ = ("_latest", "_sent_s", "shortest_s")

    def __init__(self) -> None:
        self.shortest_s = 0.0
        """0 while there was none."""
        self._latest: deque[Latency] = deque(maxlen=REMEMBERED)  # in the order in which they were told
        self._sent_s = 0.0

    def took(self, since_s: float, sent_s: float, now_s: float) -> None:
        """One was answered now, and its outcome is about to be told. Of those that were sent in one go, single messages
        that are answered in one go, too, the first stands for all."""
        if sent_s == self._sent_s:
            return
        self._sent_s = sent_s
        seconds = now_s - sent_s
        if seconds < self.shortest_s or not self.shortest_s:
            self.shortest_s = seconds
        # Who awaits an outcome learns it when the loop comes round, behind what the loop has to do before.
        asyncio.get_running_loop().call_soon(self._told, since_s)

    def _told(self, since_s: float) -> None:
        self._latest.append(Latency(since_s, monotonic()))

    def latencies_s(self, since_s: float) -> list[float]:
        """The latest, of those that were taken in since then. Those that were told before are not looked at: of a
        thousand partitions few have news."""
        news = takewhile(lambda one: one.told_s >= since_s, reversed(self._latest))
        return [one.told_s - one.since_s for one in news if one.since_s >= since_s]
