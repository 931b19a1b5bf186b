"""Counts and latencies of one run: rates are from its steady part, totals from all of it.

A rate over the whole run would include the ramp-up (an empty window fills for free) and the drain. So a run bounded by
seconds has a warm-up. Its rate counts the acknowledgements between the end of the warm-up and the end of sending.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

PERCENTILES = (50.0, 95.0, 99.0, 99.9)
NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
OPEN_END_NS = 1 << 62


@dataclass
class Window:
    """The steady part of a run; its end is open while the run is under way."""

    start_ns: int
    end_ns: int
    bounded_by_time: bool

    @classmethod
    def of(cls, now_ns: int, warmup_s: float, seconds: float | None) -> Window:
        if seconds is None:
            return cls(now_ns, OPEN_END_NS, bounded_by_time=False)
        start_ns = now_ns + int(warmup_s * NS_PER_S)
        return cls(start_ns, start_ns + int(seconds * NS_PER_S), bounded_by_time=True)


NEVER = Window(OPEN_END_NS, OPEN_END_NS, bounded_by_time=True)  # before and after the measurement


@dataclass
class Tally:
    """The events of one direction: how many, when, how long each took."""

    total: int = 0
    in_window: int = 0
    last_ns: int = 0
    longest_gap_ns: int = 0
    latencies_ns: array[int] = field(default_factory=lambda: array("q"))

    def count(self, events: int, now_ns: int, window: Window) -> None:
        """Count `events` that came at `now_ns`."""
        if self.total:
            self.longest_gap_ns = max(self.longest_gap_ns, now_ns - self.last_ns)
        self.total += events
        self.last_ns = now_ns
        if window.start_ns <= now_ns <= window.end_ns:
            self.in_window += events

    def forget_latencies(self) -> None:
        """Drop the latencies so far, at the end of the warm-up."""
        del self.latencies_ns[:]

    def report(self, window: Window, size: int) -> dict[str, object]:
        elapsed_ns, events = self._rated(window)
        rate = events * NS_PER_S / elapsed_ns if elapsed_ns > 0 else 0.0
        found: dict[str, object] = {
            "events": self.total,
            "events_per_s": round(rate, 1),
            "mib_per_s": round(rate * size / (1 << 20), 3),
            "measured_events": events,
            "measured_s": round(elapsed_ns / NS_PER_S, 3),
            "longest_gap_ms": round(self.longest_gap_ns / NS_PER_MS, 3),
        }
        if self.latencies_ns:
            found["latency_ms"] = percentiles_ms(self.latencies_ns)
        return found

    def _rated(self, window: Window) -> tuple[int, int]:
        """Return (elapsed ns, events) for the rate.

        They are those of the window if it is bounded by time, else those from the start to the last event.
        """
        if window.bounded_by_time:
            return window.end_ns - window.start_ns, self.in_window
        return max(self.last_ns - window.start_ns, 0), self.total


@dataclass
class Outcomes:
    """Counts of events that the peer did not accept, by outcome, with its first reason for each."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, outcome: str, reason: str | None, events: int = 1) -> None:
        self.counts[outcome] += events
        if reason:
            self.reasons.setdefault(outcome, reason)


def percentiles_ms(latencies_ns: array[int]) -> dict[str, float]:
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1
    found = {f"p{p:g}": round(ordered[min(last, int(len(ordered) * p / 100))] / NS_PER_MS, 3) for p in PERCENTILES}
    found["max"] = round(ordered[-1] / NS_PER_MS, 3)
    return found
