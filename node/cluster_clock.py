"""The time that this node stamps on what is replicated: its own clock's, as long as a majority's clocks bear it out.

The problem: time is replicated. A leader's clock goes into events and commands; retention, the memory of producers and
of consumer groups go by it, and it never goes back. One leader whose clock was days ahead made every idempotent
producer forgotten with one event, and what it stamped stayed ahead. The rules: nodes tell each other their clocks once
a second on their streams; the cluster's time is the median of those heard and the own one, the earlier of the two
middle ones when their number is even, since too early a time keeps what it should forget, and too late a one forgets
what it should keep; a node that is further from it than `MAX_CLOCK_OFFSET_MS` stamps the cluster's time instead, hands
its leaderships over, and says so.

What was heard is carried on by this process's monotonic clock, so a jump of the own wall clock shows at once, and a
peer that is away still counts.

Of two nodes nobody can say whose clock is wrong: the earlier one counts, and the other is called off. Where a
majority's clocks are wrong together (one time server for all) the majority is followed. A node that has heard fewer
than a majority takes the median of those: a partition on three of seven nodes is led with one other in hearing. It is
not called off for that.

Rejected: a bound in the state machine on how far an entry may lead the log's time. A log that rested for a month looks
just like a clock that leapt by one. Rejected: correcting by the offset always. Readings differ by milliseconds, and
timestamps would wander with whoever is up.
"""

from __future__ import annotations

from collections.abc import Callable

MAX_CLOCK_OFFSET_MS = 30_000
"""From the cluster's time. Clocks that are kept differ by milliseconds, and a reading is old by what a stream may
stall: a second or two. Nothing that is kept or forgotten by time is a matter of half a minute."""


class ClusterClock:
    def __init__(self, nodes: int, wall_ms: Callable[[], int], monotonic_s: Callable[[], float]) -> None:
        """`nodes`: all there are, this one included."""
        self._majority = nodes // 2 + 1
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s
        self._ahead_ms: dict[int, int] = {}  # by peer: its wall clock less our monotonic one, as heard last

    def heard(self, node: int, wall_ms: int) -> None:
        """A peer has told its time."""
        self._ahead_ms[node] = wall_ms - self._monotonic_ms()

    def _monotonic_ms(self) -> int:
        return int(self._monotonic_s() * 1000)

    def offset_ms(self) -> int:
        """How far the own clock is ahead of the cluster's time, as far as others were heard."""
        own_ms, monotonic_ms = self._wall_ms(), self._monotonic_ms()
        readings = sorted([own_ms, *(ahead_ms + monotonic_ms for ahead_ms in self._ahead_ms.values())])
        return own_ms - readings[(len(readings) - 1) // 2]

    @property
    def is_off(self) -> bool:
        """A majority of all nodes, this one included, bears it out."""
        return len(self._ahead_ms) + 1 >= self._majority and abs(self.offset_ms()) > MAX_CLOCK_OFFSET_MS

    def now_ms(self) -> int:
        """Milliseconds since 1970, to be replicated."""
        own_ms, offset_ms = self._wall_ms(), self.offset_ms()
        return own_ms if abs(offset_ms) <= MAX_CLOCK_OFFSET_MS else own_ms - offset_ms
