"""How much a producer may have buffered and under way, so that half of what it sends is confirmed within a time.

Problem: what waits in a buffer costs latency and wins nothing, once there is enough of it to keep everybody busy; how
much that is depends on the rate, which differs by a hundred times between machines and between sizes of events.
So the bound is measured against what it is for: while it binds, the latencies of what was taken in under it are
looked at, and it moves by what their median lacks of the target, or is beyond it.
Rules never broken:
 - it moves only by what was measured while somebody waited for room: who sends little proves nothing;
 - what was taken in before the bound moved last says nothing of it, and is not counted;
 - it never falls under what keeps the nodes busy at a good price: a floor in bytes, one for each partition, some events
   however large they are, and twice what is under way in the shortest round trip. Where that takes longer than the
   target, the target is not reached.
Rejected: the rate of confirmations times the target (Little's law). That bounds the average of a buffer that is always
full; it hardly ever is, and where some confirmations take much longer than most, the median is far from the average.
Each took a factor of its own, and on a slow disk half of all was confirmed later than aimed at all the same.
"""

from __future__ import annotations

from statistics import median
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
# What is measured in one go: some round trips of the usual length, so that the bound has settled within a second, and
# so many transfers that their median says something.
PERIOD_S = 0.05
LEAST_TRANSFERS = 8
# The bound is no less than what is confirmed in so many of the shortest round trips.
ROUND_TRIPS = 2
# Of the target, what the median is to be. The rest is what is not measured: the wait of who is about to send, since a
# hundred who waited together would shrink the bound to its floor (some 0.7 ms in the mean for one that sends 100 bytes
# as fast as it can). Half of those were confirmed after 18.9 ms from the call with it, on disk too; with 0.92,
# after 20.0 and 20.9. Until the answer is read the same was measured once, with 0.85: where nodes were fast, and the
# client had little time, half of all were told after 20 to 24 ms, and where they were slow, after 17.
AIM = 0.9
# Of what a measurement says, so much is followed until the median was first beyond, and below that floor: it is a long
# way.
SHARE_AT_FIRST = 0.5
# From then on less with each measurement, down to so much, within two seconds: a producer starts with a moment in which
# nodes are slow, and the first median beyond the aim may come too soon by half. With 0.85, which took half a second,
# some stayed there: on disk, the medians of runs of four seconds differed by a third more. A bound that goes up and
# down costs latency by itself: there half of 100 bytes was confirmed a millisecond later where each measurement was
# followed by a fifth.
LEAST_SHARE = 0.05
SHARE_KEPT = 0.93
# A median that is nearer to the aim than that has no side.
NEAR = 0.05
# So many in a row on the same side of the aim, which take most of a second, are no accident: each further one is
# followed by so much more, ... With four, a fifth of a second, the bound followed each mood of a disk: half of 100
# bytes was confirmed later than with twelve, at 0.85 of the rate.
NO_ACCIDENT = 12
# One that is late by more than such a factor, or asks for the most growth, counts for three of them.
FAR = 2.5
FAR_COUNTS = 3
SHARE_GROWN = 2.0
# ... and only these are taken at their word. Of any other a moment in which a disk stood still tells next to nothing,
# and it says no more than that the bound should be so much larger or smaller, ...
MOST_BELIEVED = 1.3
# ... as none says more than that it could be twice as much.
MOST_GROWTH = 2.0


class Observed(Protocol):
    """Of all routes."""

    def shortest_round_trip_s(self) -> float: ...
    def latencies_s(self, since_s: float) -> list[float]:
        """Of transfers whose events were taken in since then, until their outcomes were told."""
        ...


class LatencyBound:
    """In bytes as the accumulator reckons them, with what each event costs besides."""

    def __init__(self, target_s: float | None, most: int, observed: Observed) -> None:
        """No target: `most` is the bound."""
        self._target_s, self._most, self._observed = target_s, most, observed
        self.limit = min(FLOOR_BYTES, most) if target_s else most
        self._share = SHARE_AT_FIRST
        self._is_found = False  # the median was beyond the aim once
        self._side, self._in_a_row = 0, 0  # of the last measurements, so many after the first one on the same side
        self._since_s: float | None = None  # the measurement that is under way began then
        self._look_s = 0.0  # it is not over before
        self._bytes = self._events = 0
        self._routes: set[str | None] = set()  # with confirmations in it

    def waits(self, now_s: float) -> None:
        """Somebody waits for room."""
        if self._since_s is None and self._target_s:
            self._since_s = now_s
            self._look_s = now_s + max(PERIOD_S, ROUND_TRIPS * self._observed.shortest_round_trip_s())
            self._bytes = self._events = 0
            self._routes.clear()

    def confirmed(self, route: str | None, events: int, size: int, now_s: float) -> None:
        """So much was, on one of the routes."""
        if self._since_s is None or not self._target_s:
            return
        self._bytes += size
        self._events += events
        self._routes.add(route)
        if now_s < self._look_s:
            return
        latencies_s = self._observed.latencies_s(self._since_s)
        if len(latencies_s) < LEAST_TRANSFERS:
            self._look_s = now_s + PERIOD_S / LEAST_TRANSFERS
            return
        aim_s = AIM * self._target_s
        wanted = aim_s / max(median(latencies_s), aim_s / MOST_GROWTH)
        rate = self._bytes / (now_s - self._since_s)
        least = rate * ROUND_TRIPS * self._observed.shortest_round_trip_s()
        share, believed = self._judge(wanted)
        if least > self.limit:
            share = SHARE_AT_FIRST
        floor = max(FLOOR_BYTES, FLOOR_OF_WAY_BYTES * len(self._routes), FLOOR_EVENTS * self._bytes / self._events)
        step = share * (max(self.limit * believed, least) - self.limit)
        self.limit = int(min(self._most, max(floor, self.limit + step)))
        self._since_s = None

    def _judge(self, wanted: float) -> tuple[float, float]:
        """Of a measurement that asks for so many times the bound: the share that is followed, of what is believed."""
        self._is_found = self._is_found or wanted <= 1.0
        if not self._is_found:
            return SHARE_AT_FIRST, wanted
        side = (wanted > 1.0 + NEAR) - (wanted < 1.0 - NEAR)
        counts = FAR_COUNTS if wanted < 1 / FAR or wanted >= MOST_GROWTH else 1
        self._in_a_row = self._in_a_row + counts if side and side == self._side else 0
        self._side = side
        if self._in_a_row >= NO_ACCIDENT:
            self._share = min(SHARE_AT_FIRST, self._share * SHARE_GROWN)
            return self._share, wanted
        self._share = max(LEAST_SHARE, self._share * SHARE_KEPT)
        return self._share, min(max(wanted, 1 / MOST_BELIEVED), MOST_BELIEVED)
