"""The test's side of a producer that runs beside it, whatever client it is, and keeps its side of the story."""

from __future__ import annotations

import os
import threading
import time

from tests.integration.judges.history import Sent
from tests.integration.workloads.beside import Beside

WAIT_S = 90.0
PER_SECOND = int(os.environ.get("HOLDFAST_PER_SECOND", "500"))
"""Events of each producer, where a test does not say; all of them are read again at its end. `make soak` has more."""


class Producing(Beside):
    """Who inherits does the sending."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.sent = Sent(name)
        self.acks: list[tuple[float, float]] = []  # (when answered, when sent last)
        self._finishing = threading.Event()

    def finish(self, within_s: float = 2 * WAIT_S) -> Sent:
        """No new events; returns when every one that was sent is acknowledged."""
        self._finishing.set()
        self.join(within_s)
        return self.sent

    def abandon(self) -> None:
        """Never send again; what is unanswered stays so."""
        self.let_go()
        self.join()

    @property
    def acknowledged(self) -> int:
        return len(self.sent.acknowledged)

    def wait_for(self, more: int, within_s: float = WAIT_S) -> None:
        """So many further acknowledgements."""
        goal, deadline = self.acknowledged + more, time.monotonic() + within_s
        while self.acknowledged < goal:
            assert self.failure is None, f"the producer failed: {self.failure!r}"
            assert time.monotonic() < deadline, f"{self.sent.producer}: no further acknowledgements in {within_s:g} s"
            time.sleep(0.005)

    def resumed_after(self, moment_s: float) -> float | None:
        """From `moment_s` to the first acknowledgement of an event that was sent after it."""
        for answered_s, sent_s in list(self.acks):
            if sent_s > moment_s:
                return answered_s - moment_s
        return None
