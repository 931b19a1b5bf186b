"""NATS' own benchmark program, `nats bench`, behind the plan and the report of the other drivers.

The program publishes a number of messages and knows no seconds. So a short run finds the rate, and the number for the
measured run follows from it. The program reports one latency for each batch of acknowledgements that it waits for,
which is not that of an event; so the report has none.
"""

from __future__ import annotations

import csv
import resource
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.wire import PeerError

FIRST_EVENTS = 5000
TIMEOUT_S = 300.0
OUTPUT_TAIL_CHARACTERS = 1000


class NatsBenchLoad:
    """A run of one publisher that waits for the acknowledgements of each `window` of events."""

    def __init__(self, plan: LoadPlan, program: Path) -> None:
        if plan.receivers or plan.senders != 1:
            raise ValueError(f"{plan.name}: `nats bench` is measured with one sender")
        self._plan, self._program = plan, program

    def run(self, began: Callable[[], None] | None = None) -> dict[str, Any]:
        """Run the plan and return the report. `began` is called when the sending begins."""
        plan, before, start_s = self._plan, resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
        if began is not None:
            began()
        first, seconds = (0, 0.0)
        number = plan.count
        if number is None:
            assert plan.seconds is not None, "a plan has one of two bounds"
            first, seconds = self._publish(FIRST_EVENTS)
            number = max(int(first / seconds * (plan.seconds + plan.warmup_s)), plan.fixed_window)
        events, seconds = self._publish(number)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rate = events / seconds
        return {
            "size": plan.size,
            "elapsed_s": round(perf_counter() - start_s, 3),
            "client_cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 3),
            "send": {
                "events": first + events, "events_per_s": round(rate, 1),
                "mib_per_s": round(rate * plan.size / (1 << 20), 3),
                "measured_events": events, "measured_s": round(seconds, 3),
                "senders": 1, "window": plan.window, "sent": first + events, "unsettled": 0, "lost_in_redirect": 0,
                "outcomes": {}, "reasons": {}, "redirects": 0,
            },
        }  # fmt: skip

    def _publish(self, number: int) -> tuple[int, float]:
        """Publish so many events; return how many it were, and the seconds. Raises PeerError."""
        url = self._plan.send_urls[0]
        with tempfile.TemporaryDirectory(prefix="nats-bench-") as directory:
            figures = Path(directory) / "figures.csv"
            words = [
                str(self._program), "--server", f"nats://{url.host}:{url.port}", "bench", "js", "pub", "async",
                url.address, "--stream", url.address, "--clients", "1", "--msgs", str(number),
                "--size", str(self._plan.size), "--batch", str(self._plan.fixed_window), "--no-progress",
                "--csv", str(figures),
            ]  # fmt: skip
            done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            if done.returncode or not figures.exists():
                said = (done.stderr or done.stdout)[-OUTPUT_TAIL_CHARACTERS:].strip()
                raise PeerError(f"{self._plan.name}: `nats bench` ended with status {done.returncode}: {said}")
            with figures.open(newline="") as table:
                rows = list(csv.DictReader(table))
        return sum(int(row["MsgCount"]) for row in rows), max(float(row["DurationSecs"]) for row in rows)
