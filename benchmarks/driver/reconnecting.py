"""One sender that does not end with its connection: for brokers whose clients look for the one that took over.

Problem: Holdfast's client and Kafka's find the new leader themselves, and Artemis' clients are given the addresses of
both brokers of a pair and try them in turn. The AMQP driver ends with the first connection that breaks. So when it is
asked what a producer waits, it tries the addresses it was given, one after the other, and sends again what it had no
answer for, as such clients do.
"""

from __future__ import annotations

import itertools
import time
from time import perf_counter_ns

from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.load import Load
from benchmarks.driver.measure import NS_PER_S, Window
from benchmarks.driver.wire import PeerError

RETRY_S = 0.02  # between two addresses: as soon as impatient clients


class ReconnectingLoad(Load):
    """`plan.send_urls`: where a broker may be that serves; the first one does."""

    def __init__(self, plan: LoadPlan) -> None:
        if (plan.senders, plan.receivers) != (1, 0):
            raise ValueError("one sender reconnects, and nobody else")
        super().__init__(plan)
        self._urls = itertools.cycle(plan.send_urls)
        next(self._urls)  # there it begins

    def _turn(self, window: Window) -> None:
        try:
            super()._turn(window)
        except (PeerError, OSError):
            if not self.senders:  # the first attach is not to fail
                raise
            self._reconnect(window)

    def _reconnect(self, window: Window) -> None:
        """Returns when something is in flight again, so that a run does not end in between."""
        (sender,), deadline_ns = self.senders, perf_counter_ns() + int(self.plan.drain_s * NS_PER_S)
        for url in self._urls:
            self._leave()
            try:
                sender.resume(url)
                self._register(sender)
                while not sender.unsettled and perf_counter_ns() < deadline_ns:
                    super()._turn(window)
            except (PeerError, OSError):
                time.sleep(RETRY_S)
            if sender.unsettled:
                return
            if perf_counter_ns() > deadline_ns:
                raise PeerError(f"no broker took the sender back within {self.plan.drain_s:g} s")

    def _leave(self) -> None:
        for fd in self._by_fd:
            self._poll.unregister(fd)
        self._by_fd.clear()
        self._writing.clear()
