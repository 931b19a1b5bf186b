"""Bound of what a producer has buffered and under way, so that half of what it sends is confirmed within a time.

Problem: what waits in a buffer costs latency and wins nothing once everybody is busy; how much that is depends on the
rate. So the bound is measured against its purpose: while it binds, the median latency moves it.
Rules never broken:
 - it moves only by what was measured while somebody waited for room, and since it moved last;
 - it never falls under what keeps the nodes busy at a good price, also where that takes longer than the target.
Rejected: the rate of confirmations times the target (Little's law). That bounds the average of a buffer that is always
full; it hardly ever is, and where some confirmations take much longer than most, the median is far from the average.
"""

from __future__ import annotations

from statistics import median

# The bound is no less than any of these. Below the first, batches become so small that nodes work more for each event
# than they win by an earlier answer.
FLOOR_BYTES = 512 * 1024
FLOOR_OF_PARTITION_BYTES = 96 * 1024  # 300 events of 100 bytes, of which half travel in one batch
FLOOR_EVENTS = 4  # however large they are, or the link would be idle between two
ROUND_TRIPS = 2  # what is confirmed in so many of the shortest ones

PERIOD_S = 0.05  # a measurement takes so long, and has so many transfers that their median says something
LEAST_TRANSFERS = 8
# Share of the target for the median. The rest is for what is not measured: the wait of a caller that is about to send,
# since a hundred that waited together would shrink the bound to its floor.
AIM = 0.9
MOST_STEP = 1.4  # one measurement moves the bound by no more than this factor, up or down


class LatencyBound:
    """A bound in bytes as the accumulator reckons them, with what each event costs besides."""

    def __init__(self, target_s: float | None, most: int) -> None:
        """Set the bound to `most` if there is no target, else begin low."""
        self._target_s, self._most = target_s, most
        self.limit = min(FLOOR_BYTES, most) if target_s else most
        self._shortest_s = 0.0  # of all round trips; 0 while there was none
        self._since_s: float | None = None  # the measurement that is under way began then
        self._look_s = 0.0  # it is not over before
        self._latencies_s: list[float] = []  # since then, as the fields below
        self._bytes = self._events = 0
        self._partitions: set[str] = set()

    def waits(self, now_s: float) -> None:
        """Somebody waits for room."""
        if self._since_s is None and self._target_s:
            self._since_s = now_s
            self._look_s = now_s + max(PERIOD_S, ROUND_TRIPS * self._shortest_s)
            self._bytes = self._events = 0
            self._partitions.clear()
            self._latencies_s.clear()

    def took(self, round_trip_s: float) -> None:
        """A batch was answered."""
        if round_trip_s < self._shortest_s or not self._shortest_s:
            self._shortest_s = round_trip_s

    def told(self, since_s: float, now_s: float) -> None:
        """The program heard of an event that came at `since_s`."""
        if self._since_s is not None and since_s >= self._since_s:
            self._latencies_s.append(now_s - since_s)

    def confirmed(self, partition: str, events: int, size: int, now_s: float) -> None:
        """Count what was confirmed of a partition, and move the bound if a measurement is over."""
        if self._since_s is None or not self._target_s:
            return
        self._bytes += size
        self._events += events
        self._partitions.add(partition)
        if now_s < self._look_s:
            return
        if len(self._latencies_s) < LEAST_TRANSFERS:
            self._look_s = now_s + PERIOD_S / LEAST_TRANSFERS
            return
        aim_s = AIM * self._target_s
        wanted = aim_s / max(median(self._latencies_s), aim_s / MOST_STEP)
        rate = self._bytes / (now_s - self._since_s)
        floor = max(
            FLOOR_BYTES,
            FLOOR_OF_PARTITION_BYTES * len(self._partitions),
            FLOOR_EVENTS * self._bytes / self._events,
            rate * ROUND_TRIPS * self._shortest_s,
        )
        self.limit = int(min(self._most, max(floor, self.limit * max(wanted, 1 / MOST_STEP))))
        self._since_s = None
