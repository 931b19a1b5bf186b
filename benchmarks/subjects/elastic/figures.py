"""Figures of elastic clusters, computed from what was observed: pure functions."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.driver.measure import percentiles_ms

Rows = list[tuple[str, str]]


@dataclass
class SteadyLoad:
    """Events of one part of a run: latencies in ns, and for each partition when which were acknowledged."""

    latencies_ns: list[int] = field(default_factory=list)
    answered_ns: dict[str, list[int]] = field(default_factory=dict)
    acknowledged: dict[str, list[int]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def latencies(self) -> array[int]:
        return array("q", self.latencies_ns)

    def longest_gaps_ms(self) -> dict[str, float]:
        """Longest time of each partition in which nothing was acknowledged."""
        return {partition: longest_gap_ms(times) for partition, times in self.answered_ns.items()}


STAGES = ("nodes start and join", "replicas move to them", "five nodes rest", "they are emptied and leave")
RESTING = STAGES[2]
REST_S = 5.0
"""Time in which five nodes share the log and nothing moves: what more nodes on the same cores cost by themselves."""


class Stages:
    """Latencies by stage of a round: nodes that start on the same cores cost clients more than moves do."""

    def __init__(self, stages: Sequence[str] = STAGES) -> None:
        self._latencies_ns: list[int] = []
        self._found: dict[str, list[int]] = {stage: [] for stage in stages}

    def watch(self, latencies_ns: list[int]) -> None:
        """Take latencies from this list from now on, as they are appended."""
        self._latencies_ns = latencies_ns

    @contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Note what is acknowledged within the block."""
        before = len(self._latencies_ns)
        yield
        self._found[stage] += self._latencies_ns[before:]

    def latency(self, *stages: str) -> dict[str, float]:
        """Percentiles of these stages together, in ms."""
        return percentiles_ms(array("q", [one for stage in stages for one in self._found[stage]]))

    def rest_and_moves(self) -> tuple[dict[str, float], dict[str, float]]:
        """Percentiles while five nodes rest, and in all other stages together, in ms."""
        return self.latency(RESTING), self.latency(*(stage for stage in self._found if stage != RESTING))

    def rows(self) -> Rows:
        return [
            (f"p50 and p99 while {stage}", "{p50:.1f} ms, {p99:.1f} ms".format(**self.latency(stage)))
            for stage in self._found
        ]


def longest_gap_ms(times_ns: Sequence[int]) -> float:
    return max((later - sooner for sooner, later in pairwise(times_ns)), default=0) / 1e6


@dataclass(frozen=True)
class StoredVerdict:
    """Numbers of events that are not as they should be."""

    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0

    def __add__(self, other: StoredVerdict) -> StoredVerdict:
        return StoredVerdict(
            self.lost + other.lost, self.doubled + other.doubled, self.out_of_order + other.out_of_order
        )


def judge(acknowledged: Iterable[int], stored: Sequence[int]) -> StoredVerdict:
    """Compare the numbers that were acknowledged in one partition with those that are stored there, in their order."""
    first: dict[int, int] = {}
    for place, number in enumerate(stored):
        first.setdefault(number, place)
    ordered = list(first)
    backwards = sum(later < sooner for sooner, later in pairwise(ordered))
    lost = sum(number not in first for number in set(acknowledged))
    return StoredVerdict(lost, len(stored) - len(first), backwards)


def share_of_pace(moved_bytes: int, seconds: float, pace: int) -> float:
    """The rate of a move as a share of the pace that it may have."""
    return moved_bytes / seconds / pace


def leaderless_s(lost_at: float, led_at: Mapping[str, float]) -> tuple[float, float]:
    """Median and longest time without a leader. `led_at`: the first leader of each group since then."""
    waits = [at - lost_at for at in led_at.values()]
    return (statistics.median(waits), max(waits)) if waits else (0.0, 0.0)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Median and maximum; zeros for nothing."""
    return (statistics.median(values), max(values)) if values else (0.0, 0.0)


@dataclass(frozen=True)
class CancelFigure:
    answered_s: float
    in_force_s: float
    was_too_late: bool


def cancels(found: Sequence[CancelFigure]) -> list[tuple[str, str]]:
    """Rows of a table of cancels."""
    answered, in_force = spread([one.answered_s for one in found]), spread([one.in_force_s for one in found])
    within = sum(one.answered_s + one.in_force_s <= 1.0 for one in found)
    return [
        ("cancels", str(len(found))),
        ("answered: median, longest", f"{answered[0]:.3f} s, {answered[1]:.3f} s"),
        ("in force after the answer: median, longest", f"{in_force[0]:.3f} s, {in_force[1]:.3f} s"),
        ("answered and in force within a second", f"{within} of {len(found)}"),
        ("too late: the move was done", str(sum(one.was_too_late for one in found))),
    ]
