"""Base of the drivers on client libraries (Kafka's and our own).

Such a client connects, finds the leader, batches events and resends by itself. A driver gives it stamped bodies and
counts their outcomes. Unlike AMQP links, these clients connect only when they have something to send. So each sender
first sends one event, the greeting, which does not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter_ns
from typing import Generic

from benchmarks.driver.bounded import BoundedLoad, LoadPlan, R, S
from benchmarks.driver.link import LinkOptions
from benchmarks.driver.measure import Outcomes, Tally, Window
from benchmarks.driver.stamp import Sequences, Template
from benchmarks.driver.wire import Url

AT_ONCE = 100  # events that share one time stamp, so that the clock costs nothing


@dataclass(frozen=True)
class LinkEnd:
    """Name and address of one end of a run, and the tally for its events."""

    plan: LoadPlan
    url: Url
    options: LinkOptions
    name: str
    number: int
    tally: Tally
    outcomes: Outcomes


class LibrarySender:
    """A sender that keeps up to `window` events unconfirmed (None: as many as its client accepts) until `stop`."""

    lost = hops = 0  # always 0: such a client follows the leader and resends

    def __init__(self, end: LinkEnd, window: int | None) -> None:
        plan = end.plan
        self._template = Template(plan.size, end.number)
        self._window, self._count = window, plan.count
        self._tally, self._outcomes = end.tally, end.outcomes
        # By partition, for single events: an idempotent producer reports them in the order of sending.
        self._sent_ns: list[deque[int]] = [deque() for _ in range(plan.partitions)]
        self._turns = cycle(range(plan.partitions))
        self._left = self._settled = self._acked = 0
        self.sent = 0

    def begin(self) -> None:
        self._left = self._count if self._count is not None else 1 << 62

    def stop(self) -> None:
        """Send no new events; events in flight are still awaited."""
        self._left = 0

    @property
    def done(self) -> bool:
        return self._left <= 0 and not self.unsettled

    @property
    def unsettled(self) -> int:
        return self.sent - self._settled

    @property
    def room(self) -> int:
        """Count of events that may be sent now."""
        return self._left if self._window is None else min(self._window - self.unsettled, self._left)

    def next_bodies(self, number: int) -> tuple[int, list[bytes], int]:
        """Return the next partition, `number` bodies for it and their time; they count as sent from now on."""
        now_ns = perf_counter_ns()
        bodies = self._template.bodies(self.sent, number, now_ns)
        self.sent += number
        self._left -= number
        return next(self._turns), bodies, now_ns

    def confirmed(self, partition: int) -> None:
        """Count the oldest event in flight there as confirmed."""
        self._settled += 1
        self._acked += 1
        self._tally.latencies_ns.append(perf_counter_ns() - self._sent_ns[partition].popleft())

    def refused(self, partition: int, outcome: str, reason: str) -> None:
        """Count the oldest event in flight there as refused."""
        self._settled += 1
        self._sent_ns[partition].popleft()
        self._outcomes.add(outcome, reason)

    def counted(self, now_ns: int, window: Window) -> None:
        if self._acked:
            self._tally.count(self._acked, now_ns, window)
            self._acked = 0


class LibraryReceiver:
    """A receiver that reads one partition, in lists of bodies, from a start that is known before the run."""

    hops = 0

    def __init__(self, end: LinkEnd) -> None:
        plan = end.plan
        self._at_once = plan.credit
        self._left = plan.count if plan.count is not None and not plan.senders else 1 << 62
        self._tally = end.tally
        self._latencies = end.tally.latencies_ns if plan.receive_latency else None
        self._sequences = Sequences()
        self._got = 0

    def take(self, bodies: list[bytes]) -> None:
        if self._latencies is None:
            self.take_between(len(bodies), bodies[0], bodies[-1], lambda: bodies)
            return
        sent, now_ns = self._sequences.take(bodies), perf_counter_ns()
        self._got += len(sent)
        self._latencies.extend([now_ns - sent_ns for sent_ns in sent])

    def take_between(self, number: int, first: bytes, last: bytes, bodies: Callable[[], Iterable[bytes]]) -> None:
        """Count `number` events without opening each of them: see `Sequences.count`."""
        self._got += self._sequences.count(number, first, last, bodies)

    @property
    def gaps(self) -> int:
        return self._sequences.gaps

    @property
    def repeats(self) -> int:
        return self._sequences.repeats

    @property
    def foreign(self) -> int:
        return self._sequences.foreign

    def stop(self) -> None:
        self._left = 0

    @property
    def done(self) -> bool:
        return self._left <= 0

    def counted(self, now_ns: int, window: Window) -> None:
        if self._got:
            self._tally.count(self._got, now_ns, window)
            self._left -= self._got
            self._got = 0


class LibraryLoad(BoundedLoad[S, R], Generic[S, R]):
    """A run whose ends use a client library."""

    @property
    def _endpoints(self) -> list[S | R]:
        return [*self.senders, *self.receivers]

    def _sending_ends(self, run: int) -> Iterator[LinkEnd]:
        plan = self.plan
        for index in range(plan.senders):
            url = plan.send_urls[index % len(plan.send_urls)]
            name, number = f"{plan.name}-{run}-sender-{index}", run << 8 | index & 0xFF
            yield LinkEnd(plan, url, plan.send_options, name, number, self.sent, self.outcomes)

    def _receiving_ends(self, run: int) -> Iterator[LinkEnd]:
        plan = self.plan
        for index in range(plan.receivers):
            url = plan.receive_urls[index % len(plan.receive_urls)]
            name = f"{plan.name}-{run}-receiver-{index}"
            yield LinkEnd(plan, url, plan.receive_options, name, index, self.received, self.outcomes)
