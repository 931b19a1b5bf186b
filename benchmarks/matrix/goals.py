"""Goals of Holdfast, as ratios within one run, and their verdicts.

Absolute figures tell more about the machine than about the brokers. If a goal is "twice what it was", the old value is
a ratio, too: to Kafka in the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from benchmarks.matrix.contestants import Contestant

Measure = Literal["events", "received", "CPU"]
WORDS = {"events": "events/s", "received": "received/s", "CPU": "CPU for an event, of all processes"}

NOISE = 0.8
"""Share of an earlier ratio to RabbitMQ that must be kept; the same ratio differs between machines."""


@dataclass(frozen=True)
class Goal:
    """A goal: the best of `mine` reaches `factor` times the best of `theirs`; for CPU it needs at most that.

    The measure is events sent a second, events received a second, or CPU for each event. The best of a side is always
    the one with the highest rate.
    """

    mine: tuple[Contestant, ...]
    theirs: tuple[Contestant, ...]
    factor: float
    measure: Measure = "events"
    reason: str = ""  # explains the factor, if necessary


def rate_and_cpu(mine: Contestant, theirs: tuple[Contestant, ...]) -> tuple[Goal, Goal]:
    """Make the goals of at least the rivals' rate and at most their CPU for each event."""
    return Goal((mine,), theirs, 1.0), Goal((mine,), theirs, 1.0, "CPU")


def twice(mine: tuple[Contestant, ...], theirs: tuple[Contestant, ...], was: float, theirs_was: float) -> Goal:
    reason = f"twice what it was: {was:,.0f}/s beside {theirs_was:,.0f}/s"
    return Goal(mine, theirs, round(2 * was / theirs_was, 3), reason=reason)


def defaults(mine: Contestant, deep: Contestant) -> Goal:
    """Make the goal that the defaults of the client keep most of the rate of a deep window."""
    return Goal((mine,), (deep,), 0.9, reason="the defaults bound the latency, and are to cost little of the rate")


def kept(mine: Contestant, theirs: Contestant, was: float) -> Goal:
    """Make the goal that plain AMQP clients keep their ratio to a rival."""
    return Goal((mine,), (theirs,), round(NOISE * was, 2), reason=f"{NOISE:g} of {was:g}, which it was on 2026-11-20")


@dataclass(frozen=True)
class GoalVerdict:
    """Verdict on a goal. `subject`: what was measured; `mine`, `theirs`: contestant and value of each side."""

    subject: str
    mine: str
    theirs: str
    ratio: float
    factor: float
    at_most: bool = False
    reason: str = ""

    @property
    def reached(self) -> bool:
        return self.ratio <= self.factor if self.at_most else self.ratio >= self.factor

    @property
    def goal(self) -> str:
        return f"at {'most' if self.at_most else 'least'} {self.factor:g}"

    def values(self) -> tuple[str, ...]:
        """Return the texts of the table's columns."""
        reached = "reached" if self.reached else "NOT reached"
        return self.subject, self.mine, self.theirs, f"{self.ratio:.2f}", self.goal, reached, self.reason


COLUMNS = ("of what", "Holdfast", "beside", "ratio", "goal", "", "why this goal")


def limited(subject: str, value: float, limit: float, unit: str) -> GoalVerdict:
    """Judge a value by an upper bound, without a rival."""
    return GoalVerdict(
        subject, f"{value:.3g} {unit}", f"the bound of {limit:g} {unit}", value / limit, 1.0, at_most=True
    )


class Measured(Protocol):
    """One contestant's medians in a row."""

    @property
    def events_per_s(self) -> float: ...

    @property
    def received_per_s(self) -> float | None: ...

    def cpu_us(self, part: str) -> float | None: ...

    def latency_ms(self, percentile: str) -> float | None: ...

    def each(self, measure: Measure) -> Sequence[float]: ...


def judged(goal: Goal, title: str, lines: Mapping[Contestant, Measured]) -> GoalVerdict | None:
    """Judge a goal; None if one of the sides has no figures."""
    mine, theirs = _sides(goal, lines)
    if not mine or not theirs:
        return None
    one, my_value = _best(goal, mine, lines)
    other, their_value = _best(goal, theirs, lines)
    if not their_value:
        return None
    form, unit = (".2f", " us") if goal.measure == "CPU" else (",.0f", "/s")
    return GoalVerdict(
        f"{title}: {WORDS[goal.measure]}",
        f"{one.title}: {my_value:{form}}{unit}",
        f"{other.title}{', its best' if len(goal.theirs) > 1 else ''}: {their_value:{form}}{unit}",
        my_value / their_value,
        goal.factor,
        goal.measure == "CPU",
        goal.reason,
    )


def undecided(goal: Goal, lines: Mapping[Contestant, Measured]) -> tuple[Contestant, ...]:
    """Return both sides of a goal that some repeats reached and others missed; they need more repeats."""
    both = _sides(goal, lines)
    if not all(both):
        return ()
    sides = [_best(goal, side, lines)[0] for side in both]
    pairs = zip(*(lines[one].each(goal.measure) for one in sides), strict=False)
    beyond = {mine > goal.factor * theirs for mine, theirs in pairs}
    return tuple(sides) if len(beyond) > 1 else ()


def _sides(goal: Goal, lines: Mapping[Contestant, Measured]) -> tuple[tuple[Contestant, ...], tuple[Contestant, ...]]:
    """Return the contestants of both sides; no rivals if one of theirs is missing, since that may be their best."""
    mine = tuple(one for one in goal.mine if one in lines)
    if not all(one in lines for one in goal.theirs):
        return mine, ()
    return mine, goal.theirs


def _best(goal: Goal, side: tuple[Contestant, ...], lines: Mapping[Contestant, Measured]) -> tuple[Contestant, float]:
    """Return the best contestant of a side and its value of the goal's measure."""

    def rate(one: Contestant) -> float:
        return (lines[one].received_per_s or 0.0) if goal.measure == "received" else lines[one].events_per_s

    best = max(side, key=rate)
    return best, (lines[best].cpu_us("all") or 0.0) if goal.measure == "CPU" else rate(best)
