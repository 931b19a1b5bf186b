"""Runs schedules of a kind (the code as it is, a mutation of it, the bare library) and reports failures."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulation import chosen_plans
from tests.simulation.bare_library import RawLoad, RawNode
from tests.simulation.checker import Empty, Violation
from tests.simulation.mutations import catalogue
from tests.simulation.plan import Plan
from tests.simulation.schedule import Schedule
from tests.simulation.workload.load import ClusterLoad
from tests.simulation.world.nodes import SimNode


@dataclass(frozen=True)
class Kind:
    plan: Callable[[Plan], Plan] = chosen_plans.as_drawn
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    node: Callable[..., Any] = SimNode
    load: Callable[..., Any] = ClusterLoad


KINDS: dict[str, Kind] = {
    "cluster": Kind(),
    "contested": Kind(chosen_plans.contested),
    "contested-by-five": Kind(chosen_plans.contested_by_five),
    "crashing": Kind(chosen_plans.crashing),
    "on-files": Kind(chosen_plans.on_files),
    "replacing": Kind(chosen_plans.replacing),
    "replacing-of-two": Kind(chosen_plans.replacing_of_two),
    "readmitting": Kind(chosen_plans.readmitting),
    "rolled-back": Kind(chosen_plans.rolled_back),
    "slow-for-minutes": Kind(chosen_plans.slow_for_minutes),
    "wrong-clocks": Kind(chosen_plans.wrong_clocks),
    "impatient": Kind(chosen_plans.impatient),
    "bare-library": Kind(chosen_plans.bare, chosen_plans.library_random, RawNode, RawLoad),
    "bare-library-fifo": Kind(chosen_plans.bare_fifo, chosen_plans.library_random, RawNode, RawLoad),
    **{name: Kind(mutation.plan, mutation.apply) for name, mutation in catalogue.BY_SCHEDULES.items()},
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Libraries' log lines say nothing without the schedule they belong to."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def run_schedule(kind: str, seed: int, *, tracing: bool = False) -> tuple[Schedule, BaseException | None]:
    chosen = KINDS[kind]
    with quiet(), chosen.mutation():
        schedule = Schedule(seed, chosen.node, chosen.load, plan=chosen.plan, tracing=tracing)
        try:
            schedule.run()
        except (Violation, Exception) as error:  # noqa: BLE001 - whatever breaks inside a node is a finding
            return schedule, error
        finally:
            schedule.close()
    return schedule, None


@dataclass
class Tally:
    """What a run of schedules has seen. Those that prove nothing are counted apart, and are no success."""

    counted: int = 0
    empty: list[int] = field(default_factory=list)
    failures: dict[int, str] = field(default_factory=dict)
    acknowledged: int = 0
    done: dict[str, int] = field(default_factory=dict)

    def add(self, schedule: Schedule, error: BaseException | None) -> None:
        if isinstance(error, Empty):
            self.empty.append(schedule.seed)
        elif error is not None:
            self.failures[schedule.seed] = f"{type(error).__name__}: {error}"
        else:
            self.counted += 1
            self.acknowledged += schedule.load.acknowledged
            for name, times in schedule.done.items():
                self.done[name] = self.done.get(name, 0) + times

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {times}" for name, times in sorted(self.done.items()))
        return (
            f"{self.counted} schedules counted, {len(self.empty)} proved nothing, {len(self.failures)} failed; "
            f"{self.acknowledged} events acknowledged; {faults}"
        )


def run_many(kind: str, seeds: Iterable[int], tell: Callable[[str], None] | None = None) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(*run_schedule(kind, seed))
        if seed in tally.failures and tell is not None:
            tell(f"seed {seed}: {tally.failures[seed]}")
    return tally


def is_noticed(kind: str, seed: int) -> bool:
    _, error = run_schedule(kind, seed)
    return error is not None and not isinstance(error, Empty)


def report(kind: str, seed: int) -> str:
    """The schedule again, with a trace that can be read."""
    schedule, error = run_schedule(kind, seed, tracing=True)
    lines = "\n".join(schedule.lines)
    where = "".join(traceback.format_exception(error)) if error else "not reproduced: not deterministic!"
    return (
        f"{lines}\n{where}\nseed {seed} of kind {kind} fails: {type(error).__name__}: {error}\n"
        f"plan: {schedule.plan}\nreplay: python -m tests.simulation --kind {kind} --seeds {seed}:{seed + 1}"
    )
