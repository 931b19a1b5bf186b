"""Schedule of the faults of a run, drawn from a seed before the run."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chaos.faults.catalogue import of
from chaos.faults.fault import Aborted, CannotStrike, Fault, Scene
from chaos.history import tables
from chaos.history.recorder import Recorder

FREE_SHARE = 0.25
"""Share of periods without a fault: bugs of recovery need peace to show."""
SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 3.0, 20.0
HELD_SHARE = 0.6
"""Share of a period in which its fault is in force; in the rest the cluster recovers."""


@dataclass(frozen=True)
class Period:
    """One period of a run. Its `faults` strike one inside the other; a free period has none."""

    seconds: float
    faults: tuple[Fault, ...]
    seed: int  # for everything that is drawn when they strike

    @property
    def named(self) -> str:
        return " + ".join(f"{fault.id} {fault.kind}" for fault in self.faults) or "no fault"


def draw(ids: Sequence[str], seconds: float, seed: int, nodes: int) -> list[Period]:
    """Draw periods that take about `seconds` in all. Each fault comes once before any repeats; some come together."""
    chance = random.Random(f"schedule {seed}")
    length_s = min(LONGEST_PERIOD_S, max(SHORTEST_PERIOD_S, seconds / 6))
    count = max(1, round(seconds / length_s))
    free = set(chance.sample(range(count), round(count * FREE_SHARE)))
    wanted = [one for one in ids if one != "F0"]
    queue: list[str] = []
    periods = []
    for place in range(count):
        struck: list[Fault] = []
        if wanted and place not in free:
            for _ in range(2 if len(wanted) > 1 and chance.random() < FREE_SHARE else 1):
                queue = queue or chance.sample(wanted, len(wanted))
                drawn = of(queue.pop(), chance, nodes)
                if drawn.id not in {fault.id for fault in struck}:
                    struck.append(drawn)
        periods.append(Period(length_s, tuple(struck), chance.getrandbits(32)))
    return periods


def play(periods: Sequence[Period], scene: Scene, recorder: Recorder, say: Callable[[str], None]) -> None:
    """Play the periods one after the other, until the last one or until the scene is over."""
    for number, period in enumerate(periods, 1):
        say(f"period {number} of {len(periods)}: {period.named}")
        scene.chance = random.Random(period.seed)
        scene.hold_s = period.seconds * HELD_SHARE if period.faults else period.seconds
        begun_s = time.monotonic()
        with contextlib.ExitStack() as healing:
            for fault in sorted(period.faults, key=lambda fault: -fault.heals):
                _strike(fault, scene, recorder, healing, f"{number}.{fault.id}")
            scene.wait(scene.hold_s)
        scene.cluster.start()  # waits for nodes that a fault only spawned
        scene.wait(max(0.0, period.seconds - (time.monotonic() - begun_s)))


def _strike(fault: Fault, scene: Scene, recorder: Recorder, healing: contextlib.ExitStack, name: str) -> None:
    """Start a fault that lasts until `healing` ends, and record its four moments.

    A fault that cannot strike has only the first of them."""
    block = fault.strike(scene)
    injecting_ns = time.monotonic_ns()
    kind = f"{fault.id} {fault.kind}"
    try:
        target = block.__enter__()
    except CannotStrike as error:
        recorder.fault(tables.FaultRow(name, kind, str(error), injecting_ns, None, None, None, fault.leaves_majority))
        return
    injected_ns = time.monotonic_ns()

    def heal(*why: object) -> None:
        healing_ns = time.monotonic_ns()
        healed_ns: int | None = None
        try:
            block.__exit__(None, None, None)
            healed_ns = time.monotonic_ns()
        finally:
            recorder.fault(
                tables.FaultRow(
                    name, kind, target, injecting_ns, injected_ns, healing_ns, healed_ns, fault.leaves_majority
                )
            )  # fmt: skip

    healing.callback(heal)


__all__ = ["Aborted", "Period", "draw", "play"]
