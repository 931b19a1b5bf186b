"""One sender that survives its connection, for brokers whose clients look for the broker that took over.

Holdfast's client and Kafka's find the new leader themselves. Artemis' clients have the addresses of both brokers of a
pair and try them in turn. The plain AMQP driver ends with the first connection that breaks. So this one tries its
addresses one after the other and sends unanswered events again, as such clients do.
"""

from __future__ import annotations

import itertools
import time
from time import perf_counter_ns

from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.load import Load
from benchmarks.driver.measure import NS_PER_S, Window
from benchmarks.driver.wire import PeerError

RETRY_S = 0.02  # pause between two addresses, as short as an impatient client's


class ReconnectingLoad(Load):
    """A run with one reconnecting sender. `plan.send_urls`: addresses to try; the first one serves at the begin."""

    def __init__(self, plan: LoadPlan) -> None:
        if (plan.senders, plan.receivers) != (1, 0):
            raise ValueError("one sender reconnects, and nobody else")
        super().__init__(plan)
        self._urls = itertools.cycle(plan.send_urls)
        next(self._urls)  # the first address serves at the begin

    def _turn(self, window: Window) -> None:
        try:
            super()._turn(window)
        except (PeerError, OSError):
            if not self.senders:  # the first attach must not fail
                raise
            self._reconnect(window)

    def _reconnect(self, window: Window) -> None:
        """Reconnect; return when an event is in flight again, so that the run does not end in between."""
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
