"""Drives any number of endpoints with one epoll loop until the run's bound is reached, and reports.

A run is bounded by a count or by seconds. When the bound is reached the senders stop and wait for what is in
flight, at most `drain_s`; what is unsettled then is reported as such. Receivers stop when they have what was asked
for, or, when they run beside senders, once they have received every acknowledged event (or nothing came for
`drain_s`).
"""

from __future__ import annotations

import os
import resource
import select
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

from benchmarks.driver.link import LinkOptions, Redirected
from benchmarks.driver.measure import NEVER, NS_PER_MS, NS_PER_S, OPEN_END_NS, Outcomes, Tally, Window
from benchmarks.driver.receiver import Receiver
from benchmarks.driver.sender import Sender
from benchmarks.driver.wire import PeerError, Url

POLL_S = 0.05  # how late the end of a run may be noticed when nothing comes in
TICK_NS = NS_PER_S  # far below the idle timeout of any peer
ATTACH_TIMEOUT_S = 15.0  # a broker may hold an attach through a leader election


@dataclass(frozen=True)
class Plan:
    """One run. `send_urls` and `receive_urls` are used round robin by that many links. Beside senders: one receiver."""

    senders: int = 0
    receivers: int = 0
    send_urls: tuple[Url, ...] = ()
    receive_urls: tuple[Url, ...] = ()
    size: int = 1024
    window: int = 1000
    credit: int = 2000
    count: int | None = None  # per link
    seconds: float | None = None
    warmup_s: float = 1.0
    drain_s: float = 20.0
    name: str = "benchmark"
    send_options: LinkOptions = field(default_factory=LinkOptions)
    receive_options: LinkOptions = field(default_factory=LinkOptions)
    receive_latency: bool = True


class Load:
    """The loop. Receivers attach before the first event is sent, so that a tail reader misses nothing."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sent, self.received, self.outcomes = Tally(), Tally(), Outcomes()
        self._poll = select.epoll()
        self._by_fd: dict[int, Sender | Receiver] = {}
        self._writing: set[int] = set()
        self._next_tick_ns = 0
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []

    def run(self) -> dict[str, object]:
        before, began_ns = resource.getrusage(resource.RUSAGE_SELF), perf_counter_ns()
        try:
            self._attach()
            window = self._drive()
            self._catch_up()
        finally:
            for endpoint in self._by_fd.values():
                endpoint.wire.close()
            self._poll.close()
        after = resource.getrusage(resource.RUSAGE_SELF)
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return self._report(window) | {
            "elapsed_s": round((perf_counter_ns() - began_ns) / NS_PER_S, 3),
            "client_cpu_s": round(used_s, 3),
        }

    def _attach(self) -> None:
        plan = self.plan
        run = int.from_bytes(os.urandom(3), "big")  # tells this run's events and links from those of any other
        for index in range(plan.receivers):
            receiver = Receiver(
                plan.receive_urls[index % len(plan.receive_urls)], f"{plan.name}-{run}-receiver-{index}",
                plan.receive_options, credit=plan.credit, count=None if plan.senders else plan.count,
                tally=self.received, latency=plan.receive_latency,
            )  # fmt: skip
            self.receivers.append(receiver)
            self._register(receiver)
        self._await_answers(self.receivers)
        for index in range(plan.senders):
            sender = Sender(
                plan.send_urls[index % len(plan.send_urls)], f"{plan.name}-{run}-sender-{index}", plan.send_options,
                sender_id=run << 8 | index & 0xFF, body_bytes=plan.size, window=plan.window, count=plan.count,
                tally=self.sent, outcomes=self.outcomes,
            )  # fmt: skip
            self.senders.append(sender)
            self._register(sender)
        self._await_answers(self.senders)

    def _register(self, endpoint: Sender | Receiver) -> None:
        self._by_fd[endpoint.wire.fileno()] = endpoint
        self._poll.register(endpoint.wire.fileno(), select.EPOLLIN)

    def _await_answers(self, endpoints: Sequence[Sender | Receiver]) -> None:
        deadline_ns = perf_counter_ns() + int(ATTACH_TIMEOUT_S * NS_PER_S)
        while not all(endpoint.opened for endpoint in endpoints):
            if perf_counter_ns() > deadline_ns:
                raise PeerError(f"the peer did not answer an attach within {ATTACH_TIMEOUT_S:g} s")
            self._turn(NEVER)

    def _drive(self) -> Window:
        """From the first event sent (or received) to the last one settled."""
        plan, start_ns = self.plan, perf_counter_ns()
        window = Window.of(start_ns, plan.warmup_s, plan.seconds)
        stop_ns = window.end_ns
        window.end_ns = OPEN_END_NS
        active: Sequence[Sender | Receiver] = self.senders or self.receivers
        for sender in self.senders:
            sender.begin()
        warm = False
        while not all(endpoint.done for endpoint in active):
            self._turn(window)
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
        return window

    def _is_quiet(self, since_ns: int, now_ns: int) -> bool:
        """Nothing came for longer than the drain allows: what is missing will not come."""
        return now_ns - max(self.sent.last_ns, self.received.last_ns, since_ns) > self.plan.drain_s * NS_PER_S

    def _catch_up(self) -> None:
        """A receiver beside senders takes in the rest: it must see every event that was acknowledged."""
        since_ns = perf_counter_ns()
        while self.senders and self.receivers and self.received.total < self.sent.total:
            self._turn(NEVER)
            if self._is_quiet(since_ns, perf_counter_ns()):
                break

    def _turn(self, window: Window) -> None:
        if (now_ns := perf_counter_ns()) > self._next_tick_ns:
            self._next_tick_ns = now_ns + TICK_NS
            for endpoint in self._by_fd.values():
                endpoint.wire.tick(now_ns // NS_PER_MS)
                endpoint.wire.flush()
        for fd, events in self._poll.poll(POLL_S):
            endpoint = self._by_fd[fd]
            try:
                if events & ~select.EPOLLOUT:
                    endpoint.wire.on_readable()
                    endpoint.counted(perf_counter_ns(), window)
                endpoint.work()
            except Redirected as redirect:
                self._redirect(fd, endpoint, redirect)
                continue
            self._watch_writes(fd, endpoint)

    def _watch_writes(self, fd: int, endpoint: Sender | Receiver) -> None:
        if endpoint.wire.wants_write != (fd in self._writing):
            self._writing ^= {fd}
            self._poll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if fd in self._writing else 0))

    def _redirect(self, fd: int, endpoint: Sender | Receiver, redirect: Redirected) -> None:
        self._poll.unregister(fd)
        self._writing.discard(fd)
        del self._by_fd[fd]
        endpoint.follow(redirect)
        self._register(endpoint)

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
