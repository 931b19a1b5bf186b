"""Loop that drives any number of AMQP endpoints with epoll; `bounded` has the end of a run and its report."""

from __future__ import annotations

import select
from collections.abc import Sequence
from time import perf_counter_ns

from benchmarks.driver.bounded import POLL_S, BoundedLoad, LoadPlan
from benchmarks.driver.link import Redirected
from benchmarks.driver.measure import NEVER, NS_PER_MS, NS_PER_S, Window
from benchmarks.driver.receiver import DrivenReceiver
from benchmarks.driver.sender import DrivenSender
from benchmarks.driver.wire import PeerError

TICK_NS = NS_PER_S  # far below the idle timeout of any peer
ATTACH_TIMEOUT_S = 15.0  # a broker may hold an attach through a leader election


class Load(BoundedLoad[DrivenSender, DrivenReceiver]):
    """A run over AMQP links. Receivers attach before the first event is sent, so that a tail reader misses nothing."""

    def __init__(self, plan: LoadPlan) -> None:
        super().__init__(plan)
        self._poll = select.epoll()
        self._by_fd: dict[int, DrivenSender | DrivenReceiver] = {}
        self._writing: set[int] = set()
        self._next_tick_ns = 0

    def _close(self) -> None:
        for endpoint in self._by_fd.values():
            endpoint.wire.close()
        self._poll.close()

    def _attach(self, run: int) -> None:
        plan = self.plan
        for index in range(plan.receivers):
            receiver = DrivenReceiver(
                plan.receive_urls[index % len(plan.receive_urls)], f"{plan.name}-{run}-receiver-{index}",
                plan.receive_options, credit=plan.credit, count=None if plan.senders else plan.count,
                tally=self.received, latency=plan.receive_latency,
            )  # fmt: skip
            self.receivers.append(receiver)
            self._register(receiver)
        self._await_answers(self.receivers)
        for index in range(plan.senders):
            sender = DrivenSender(
                plan.send_urls[index % len(plan.send_urls)], f"{plan.name}-{run}-sender-{index}", plan.send_options,
                sender_id=run << 8 | index & 0xFF, body_bytes=plan.size, window=plan.fixed_window, count=plan.count,
                tally=self.sent, outcomes=self.outcomes,
            )  # fmt: skip
            self.senders.append(sender)
            self._register(sender)
        self._await_answers(self.senders)

    def _register(self, endpoint: DrivenSender | DrivenReceiver) -> None:
        self._by_fd[endpoint.wire.fileno()] = endpoint
        self._poll.register(endpoint.wire.fileno(), select.EPOLLIN)

    def _await_answers(self, endpoints: Sequence[DrivenSender | DrivenReceiver]) -> None:
        deadline_ns = perf_counter_ns() + int(ATTACH_TIMEOUT_S * NS_PER_S)
        while not all(endpoint.opened for endpoint in endpoints):
            if perf_counter_ns() > deadline_ns:
                raise PeerError(f"the peer did not answer an attach within {ATTACH_TIMEOUT_S:g} s")
            self._turn(NEVER)

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

    def _watch_writes(self, fd: int, endpoint: DrivenSender | DrivenReceiver) -> None:
        if endpoint.wire.wants_write != (fd in self._writing):
            self._writing ^= {fd}
            self._poll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if fd in self._writing else 0))

    def _redirect(self, fd: int, endpoint: DrivenSender | DrivenReceiver, redirect: Redirected) -> None:
        self._poll.unregister(fd)
        self._writing.discard(fd)
        del self._by_fd[fd]
        endpoint.follow(redirect)
        self._register(endpoint)
