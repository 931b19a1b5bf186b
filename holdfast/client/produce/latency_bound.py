"""How much a producer may have buffered and under way, so that what it sends is confirmed within a time.

Problem: what waits in a buffer costs latency and wins nothing, once there is enough of it to keep everybody busy; how
much that is depends on the rate, which differs by a hundred times between machines and between sizes of events.
So the bound is the measured rate of confirmations times the target: by Little's law, that much is confirmed in that
time, taken over all. Half of it comes sooner, where some wait for much longer than most (a disk that is busy, a node
that pauses); the target is meant for that half, so the bound is larger by what round trips take on the average as a
multiple of their median. While it binds, what is measured is what it allows; if the nodes could do more within the
target, it grows.
Rules never broken:
 - it moves only by what was measured while somebody waited for room: who sends little proves nothing;
 - it never falls under what keeps the nodes busy at a good price: a floor in bytes, one for each partition, some events
   however large they are, and twice what is under way in the shortest round trip. Where that takes longer than the
   target, the target is not reached.
Rejected: to measure the latency of single events. It is what the bound makes of it, late and with noise.
"""

from __future__ import annotations

from typing import Protocol

# Under it pieces become so small that nodes work more for each event than they win by an earlier answer: for events of
# 100 bytes it is 1,700 of them.
FLOOR_BYTES = 512 * 1024
# And so much for each partition that is published to: 300 such events, of which half travel in one piece. With 16
# partitions and no such floor, pieces of 70 events cost three nodes twice the time for each event, and the rate, which
# the bound follows, falls with it; with twice this floor they cost the same, and are confirmed later.
FLOOR_OF_WAY_BYTES = 96 * 1024
# Of events that are larger than that: so many may be outstanding, or the link would be idle between two.
FLOOR_EVENTS = 4
# What is measured in one go: some round trips of the usual length, so that the bound has settled within a second.
PERIOD_S = 0.05
# The bound is no less than what is confirmed in so many of the shortest round trips.
ROUND_TRIPS = 2
# Hardly ever all of the bound is outstanding: who was woken has to come first with what it sends. Of 100 bytes by
# `send_many` 0.6 to 0.8 of it was, on the average; with this much more half of them on disk took 0.95 of the target.
HEADROOM = 1.08
# Half of what a measurement says is followed: one that was disturbed does not undo what those before have found.
SHARE = 0.5


class Observed(Protocol):
    """Of all routes."""

    def shortest_round_trip_s(self) -> float: ...
    def mean_by_median(self) -> float: ...


class LatencyBound:
    """In bytes as the accumulator reckons them, with what each event costs besides."""

    def __init__(self, target_s: float | None, most: int, observed: Observed) -> None:
        """No target: `most` is the bound."""
        self._target_s, self._most, self._observed = target_s, most, observed
        self.limit = min(FLOOR_BYTES, most) if target_s else most
        self._since_s: float | None = None  # the measurement that is under way began then
        self._bytes = self._events = 0
        self._routes: set[str | None] = set()  # with confirmations in it

    def waits(self, now_s: float) -> None:
        """Somebody waits for room."""
        if self._since_s is None and self._target_s:
            self._since_s = now_s
            self._bytes = self._events = 0
            self._routes.clear()

    def confirmed(self, route: str | None, events: int, size: int, now_s: float) -> None:
        """So much was, on one of the routes."""
        if self._since_s is None or not self._target_s:
            return
        self._bytes += size
        self._events += events
        self._routes.add(route)
        elapsed_s = now_s - self._since_s
        if elapsed_s < PERIOD_S or elapsed_s < (round_trips_s := ROUND_TRIPS * self._observed.shortest_round_trip_s()):
            return
        mean_s = self._target_s * self._observed.mean_by_median() * HEADROOM
        wanted = self._bytes / elapsed_s * max(mean_s, round_trips_s)
        floor = max(FLOOR_BYTES, FLOOR_OF_WAY_BYTES * len(self._routes), FLOOR_EVENTS * self._bytes / self._events)
        self.limit = int(min(self._most, max(floor, self.limit + SHARE * (wanted - self.limit))))
        self._since_s = None
