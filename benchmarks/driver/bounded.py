"""Base of all load drivers, whatever their protocol: the bounds of a run, its measured part, its report.

A run is bounded by a count or by seconds. At the bound the senders stop and wait for events in flight, at most
`drain_s`; then the report shows how many are still unsettled. Receivers stop at their count. Beside senders they stop
once they have every acknowledged event, or got none for `drain_s`.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Generic, Literal, Protocol, TypeVar

from benchmarks.driver.link import LinkOptions
from benchmarks.driver.measure import NEVER, NS_PER_S, OPEN_END_NS, Outcomes, Tally, Window
from benchmarks.driver.wire import Url

POLL_S = 0.05  # greatest delay in noticing the end of a run while nothing comes in

Sending = Literal["events", "chunks"]
"""Call for sending by our own client: for each event (`send`), or for some hundred at a time (`send_many`)."""
Reading = Literal["events", "columns", "arrays"]
"""Result of reading by our own client: an object for each event, lists for all, or arrays of numpy."""


@dataclass(frozen=True)
class LoadPlan:
    """Parameters of one run. Links use `send_urls` and `receive_urls` round robin. Beside senders: one receiver.

    Only drivers on client libraries support several partitions, to which a sender sends in turn.
    """

    senders: int = 0
    receivers: int = 0
    send_urls: tuple[Url, ...] = ()
    receive_urls: tuple[Url, ...] = ()
    size: int = 1024
    window: int | None = 1000  # None: our own client chooses
    credit: int = 2000
    count: int | None = None  # per link
    seconds: float | None = None
    warmup_s: float = 1.0
    drain_s: float = 20.0
    name: str = "benchmark"
    send_options: LinkOptions = field(default_factory=LinkOptions)
    receive_options: LinkOptions = field(default_factory=LinkOptions)
    receive_latency: bool = True
    partitions: int = 1
    sending: Sending = "events"
    reading: Reading = "events"

    def __post_init__(self) -> None:
        if self.partitions > 1 and self.receivers:
            raise ValueError("a receiver reads one partition: of several it would see gaps")

    @property
    def fixed_window(self) -> int:
        """The plan's window, for clients that do not choose one themselves."""
        if self.window is None:
            raise ValueError(f"{self.name}: the window is to be chosen by a client that chooses none")
        return self.window


class LoadEndpoint(Protocol):
    """One end of a run, as the bounds see it."""

    @property
    def done(self) -> bool: ...

    def stop(self) -> None: ...

    @property
    def hops(self) -> int:
        """Count of redirects by the peer."""


class LoadSender(LoadEndpoint, Protocol):
    @property
    def sent(self) -> int: ...

    @property
    def unsettled(self) -> int: ...

    @property
    def lost(self) -> int:
        """Count of events in flight when a connection ended: their outcome is unknown."""

    def begin(self) -> None:
        """Start sending; all senders of a run start together."""


class LoadReceiver(LoadEndpoint, Protocol):
    @property
    def gaps(self) -> int: ...

    @property
    def repeats(self) -> int: ...

    @property
    def foreign(self) -> int: ...


S = TypeVar("S", bound=LoadSender)
R = TypeVar("R", bound=LoadReceiver)


class BoundedLoad(Generic[S, R]):
    """A run. A driver implements the start of its endpoints, one turn of its loop, and their end."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.sent, self.received, self.outcomes = Tally(), Tally(), Outcomes()
        self.senders: list[S] = []
        self.receivers: list[R] = []

    def _attach(self, run: int) -> None:
        """Start all endpoints. Receivers must get everything that is sent from then on.

        `run` distinguishes this run's events from those of other runs.
        """
        raise NotImplementedError

    def _turn(self, window: Window) -> None:
        """Send and receive what is possible now, waiting at most POLL_S for it."""
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def run(self, began: Callable[[], None] | None = None) -> dict[str, Any]:
        """Run the plan and return the report. `began` is called when all endpoints are up and the sending begins."""
        before, began_ns = resource.getrusage(resource.RUSAGE_SELF), perf_counter_ns()
        try:
            self._attach(int.from_bytes(os.urandom(3), "big"))
            if began is not None:
                began()
            window = Window.of(perf_counter_ns(), self.plan.warmup_s, self.plan.seconds)
            self._drive(window)
            self._catch_up()
        finally:
            self._close()
        after = resource.getrusage(resource.RUSAGE_SELF)
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return self._report(window) | {
            "elapsed_s": round((perf_counter_ns() - began_ns) / NS_PER_S, 3),
            "client_cpu_s": round(used_s, 3),
        }

    def _drive(self, window: Window) -> None:
        """Take turns from the first event sent (or received) to the last one settled."""
        for _ in self._turns(window):
            self._turn(window)

    def _turns(self, window: Window) -> Iterator[None]:
        """Yield once for each turn to take; between turns check the bounds and set the window's end."""
        start_ns, stop_ns = perf_counter_ns(), window.end_ns
        window.end_ns = OPEN_END_NS
        active: Sequence[S | R] = self.senders or self.receivers
        for sender in self.senders:
            sender.begin()
        warm = False
        while not all(endpoint.done for endpoint in active):
            yield
            now_ns = perf_counter_ns()
            if not warm and now_ns >= window.start_ns:
                warm = True
                self.sent.forget_latencies()
                self.received.forget_latencies()
            if now_ns >= stop_ns and window.end_ns == OPEN_END_NS:
                window.end_ns = now_ns
                for endpoint in active:
                    endpoint.stop()
            if self._is_quiet(start_ns, now_ns):
                break
        window.end_ns = min(window.end_ns, perf_counter_ns())

    def _is_quiet(self, since_ns: int, now_ns: int) -> bool:
        """Tell whether nothing came for longer than the drain allows, so that missing events will not come."""
        return now_ns - max(self.sent.last_ns, self.received.last_ns, since_ns) > self.plan.drain_s * NS_PER_S

    def _catch_up(self) -> None:
        """Receive the rest beside senders: the receiver must get every acknowledged event."""
        since_ns = perf_counter_ns()
        while self.senders and self.receivers and self.received.total < self.sent.total:
            self._turn(NEVER)
            if self._is_quiet(since_ns, perf_counter_ns()):
                break

    def _report(self, window: Window) -> dict[str, object]:
        plan = self.plan
        report: dict[str, object] = {"size": plan.size}
        if self.senders:
            report["send"] = self.sent.report(window, plan.size) | {
                "senders": len(self.senders),
                "window": plan.window,
                "sent": sum(s.sent for s in self.senders),
                "unsettled": sum(s.unsettled for s in self.senders),
                "lost_in_redirect": sum(s.lost for s in self.senders),
                "outcomes": dict(self.outcomes.counts),
                "reasons": self.outcomes.reasons,
                "redirects": sum(s.hops for s in self.senders),
            }
        if self.receivers:
            report["receive"] = self.received.report(window, plan.size) | {
                "receivers": len(self.receivers),
                "credit": plan.credit,
                "gaps": sum(r.gaps for r in self.receivers),
                "repeats": sum(r.repeats for r in self.receivers),
                "foreign": sum(r.foreign for r in self.receivers),
                "redirects": sum(r.hops for r in self.receivers),
            }
        return report
