"""Log lines about what peers did, bounded.

Problem: a client that connects and goes away three hundred times a second (a health check, a port scan, a loop without
a pause) would otherwise write a line each time, until the disk that holds the log is full. The rule: whatever peers do,
a listener writes at most LINES of them in PERIOD_S, and says how many it left out.
Rejected: writing them at debug level only. The first of them are what explains a client's failure to its owner.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("holdfast.listener")

PERIOD_S = 10.0
LINES = 50


class LogLimiter:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._since_s = now_s()
        self._written = 0
        self._left_out = 0

    def write(self, text: str, *args: object) -> None:
        now_s = self._now_s()
        if now_s - self._since_s >= PERIOD_S:
            if self._left_out:
                log.info("%d more lines like these were left out (%d in %g s at most)", self._left_out, LINES, PERIOD_S)
            self._since_s, self._written, self._left_out = now_s, 0, 0
        if self._written < LINES:
            self._written += 1
            log.info(text, *args)
        else:
            self._left_out += 1
