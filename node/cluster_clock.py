"""The time that this node stamps on replicated data: its own clock's, as long as a majority's clocks confirm it.

The problem: time is replicated. A leader's clock goes into events and commands; retention, the memory of producers and
of consumer groups go by it, and it never goes back. One leader whose clock was days ahead made every idempotent
producer forgotten with one event, and what it stamped stayed ahead. The rules: nodes tell each other their clocks once
a second on their streams; the cluster's time is the median of those heard and the own one, the earlier of the two
middle ones when their number is even, since too early a time keeps what it should forget, and too late a one forgets
what it should keep; a node that is further from it than `MAX_CLOCK_OFFSET_MS` stamps the cluster's time instead, hands
its leaderships over, and says so.

A reading is carried on by this process's monotonic clock, so a jump of the own wall clock shows at once, and a peer
that is away still counts.

What is *deleted* by time needs more: retention goes by `lived_ms`. As long as the clocks of a majority agree, at least
two, that is the cluster's time. Without them (a node cut off, a cluster of one) it goes on only as fast as this process
lives, from when they last agreed, or from what an earlier process of this node noted (`floor_ms`): a leap deletes
nothing, and what is due after a real week of rest is deleted late, once the others agree or the week was lived through.

The same knowledge tells whose clock is behind where no majority agrees: it is at least that late, so a reading further
before it than the bound is wrong. Without any such knowledge, it is open which of two nodes' clocks is wrong: the
earlier one counts, and the other is called off. Where a majority's clocks are wrong together (one time server for all)
the majority is followed. A node that has heard fewer than a majority takes the median of those: a partition on three of
seven nodes is led with one other in hearing. It is not called off for that.

Rejected: a bound in the state machine on how far the time of an event may lead the log's. A log that rested for a month
looks just like a clock that leapt by one; there the bound is on what is forgotten (`node/partition/state_machine.py`).
Rejected: correcting by the offset always. Readings differ by milliseconds, and timestamps would wander with the nodes
that are up.
"""

from __future__ import annotations

from collections.abc import Callable

MAX_CLOCK_OFFSET_MS = 30_000
"""Bound of a clock's offset from the cluster's time. Clocks that are kept differ by milliseconds, and a reading is as
old as a stream may stall: a second or two. Nothing that is kept or forgotten by time is a matter of half a minute."""


class ClusterClock:
    def __init__(
        self, nodes: int, wall_ms: Callable[[], int], monotonic_s: Callable[[], float], floor_ms: int | None = None
    ) -> None:
        """`nodes`: the number of all nodes, this one included. `floor_ms`: the time that this node lived to see
        before."""
        self.nodes = nodes
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s
        self._knows_floor = floor_ms is not None
        self._lived_ahead_ms = (wall_ms() if floor_ms is None else floor_ms) - self._monotonic_ms()
        self._ahead_ms: dict[int, int] = {}  # by peer: its wall clock less our monotonic one, as heard last

    @property
    def _majority(self) -> int:
        return self.nodes // 2 + 1

    def forget(self, node: int) -> None:
        """A node is gone, and its clock with it."""
        self._ahead_ms.pop(node, None)

    def heard(self, node: int, wall_ms: int) -> None:
        """Note the time that a peer has told."""
        self._ahead_ms[node] = wall_ms - self._monotonic_ms()

    def _monotonic_ms(self) -> int:
        return int(self._monotonic_s() * 1000)

    def offset_ms(self) -> int:
        """Milliseconds that the own clock is ahead of the cluster's time, by the readings so far."""
        own_ms, readings = self._readings()
        if self._knows_floor and not self._agree(readings):
            earliest_ms = self._lived_ahead_ms + self._monotonic_ms() - MAX_CLOCK_OFFSET_MS
            readings = [reading for reading in readings if reading >= earliest_ms] or readings
        return own_ms - _median(readings)

    def lived_ms(self) -> int:
        """The time by which data may be deleted: never later than the true one, as far as a majority can tell."""
        _, readings = self._readings()
        monotonic_ms = self._monotonic_ms()
        if self._agree(readings):
            self._knows_floor = True
            self._lived_ahead_ms = self.now_ms() - monotonic_ms
        return min(self.now_ms(), self._lived_ahead_ms + monotonic_ms)

    def _readings(self) -> tuple[int, list[int]]:
        """Readings: the own clock's, and all in order."""
        own_ms, monotonic_ms = self._wall_ms(), self._monotonic_ms()
        return own_ms, sorted([own_ms, *(ahead_ms + monotonic_ms for ahead_ms in self._ahead_ms.values())])

    def _agree(self, readings: list[int]) -> bool:
        """Tell whether the clocks of a majority of all nodes, at least two, agree."""
        median_ms = _median(readings)
        agreeing = sum(abs(reading - median_ms) <= MAX_CLOCK_OFFSET_MS for reading in readings)
        return agreeing >= max(2, self._majority)

    @property
    def is_off(self) -> bool:
        """True if a majority of all nodes, this one included, has told its time and the own clock is off it."""
        return len(self._ahead_ms) + 1 >= self._majority and abs(self.offset_ms()) > MAX_CLOCK_OFFSET_MS

    def now_ms(self) -> int:
        """The time to be replicated, in milliseconds since 1970."""
        own_ms, offset_ms = self._wall_ms(), self.offset_ms()
        return own_ms if abs(offset_ms) <= MAX_CLOCK_OFFSET_MS else own_ms - offset_ms


def _median(readings: list[int]) -> int:
    """Median of sorted readings: the earlier of the two middle ones."""
    return readings[(len(readings) - 1) // 2]
