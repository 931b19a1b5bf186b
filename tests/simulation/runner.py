"""Runs schedules of a kind (the code as it is, a mutation of it, the bare library) and reports failures."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.simulation import chosen_plans
from tests.simulation.bare_library import RawLoad, RawNode
from tests.simulation.checker import Empty, Violation
from tests.simulation.mixed.load import MixedLoad
from tests.simulation.mixed.node import MixedNode, with_notes
from tests.simulation.moving.load import MovingLoad
from tests.simulation.moving.node import MovingNode
from tests.simulation.moving.target_load import ReplacingByMoves, Scaling, TargetLoad, TargetNode, ToAndFro
from tests.simulation.mutations import catalogue
from tests.simulation.plan import Plan
from tests.simulation.rebalancing.load import usual_load
from tests.simulation.rebalancing.node import usual_node
from tests.simulation.schedule import Schedule, Stuck
from tests.simulation.transactions import plans
from tests.simulation.transactions.batches import GroupLoad
from tests.simulation.transactions.links import LinkLoad
from tests.simulation.transactions.load import TransactionalLoad
from tests.simulation.transactions.node import TransactionalNode
from tests.simulation.workload.load import ClusterLoad
from tests.simulation.world.nodes import SimNode
from tests.simulation.world.scarce_memory import scarce_memory
from tests.simulation.world.streams.node import StreamingNode, small_frames


@dataclass(frozen=True)
class ScheduleKind:
    plan: Callable[[Plan], Plan] = chosen_plans.as_drawn
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    node: Callable[..., Any] = SimNode
    load: Callable[..., Any] = ClusterLoad
    around: Callable[[Schedule], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


def _transactional(
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    plan: Callable[[Plan], Plan] = plans.transactional,
    **around: Any,
) -> ScheduleKind:
    return ScheduleKind(plan, mutation, TransactionalNode, TransactionalLoad, partial(plans.around, **around))


def _groups(
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    plan: Callable[[Plan], Plan] = plans.transactional,
    crash_points: Sequence[str] = plans.CRASH_POINTS + plans.OF_GROUPS,
) -> ScheduleKind:
    """Batches of many members."""
    return replace(_transactional(mutation, plan, crash_points=crash_points), load=GroupLoad)


def _by_links(
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> ScheduleKind:
    """At any node, with filters and record batches."""
    return replace(_transactional(mutation, plans.by_links), load=LinkLoad)


def _late(
    kind: str, mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
) -> ScheduleKind:
    """Questions of this kind are a transaction late, and nothing else goes wrong."""
    return _transactional(mutation, plans.undisturbed, crash_points=(), delayed=kind)


def _over_streams(
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> ScheduleKind:
    return ScheduleKind(chosen_plans.over_streams, mutation, StreamingNode, around=small_frames)


def _mixed(
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> ScheduleKind:
    return ScheduleKind(chosen_plans.mixed, mutation, MixedNode, MixedLoad, with_notes)


def _moving(
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    plan: Callable[[Plan], Plan] = chosen_plans.moving,
) -> ScheduleKind:
    return ScheduleKind(plan, mutation, MovingNode, MovingLoad)


def _usual(
    plan: Callable[[Plan], Plan],
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> ScheduleKind:
    """Clients of whole nodes, whose partitions move if the plan says so."""
    return ScheduleKind(plan, mutation, usual_node, usual_load)


def _targets(
    plan: Callable[[Plan], Plan],
    operators: Callable[..., Any],
    mutation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> ScheduleKind:
    """What moves is said by the metadata's own state machine."""
    return ScheduleKind(plan, mutation, TargetNode, partial(TargetLoad, operators=operators))


_FAMILIES: dict[Any, Callable[..., ScheduleKind]] = {
    chosen_plans.over_streams: _over_streams,
    chosen_plans.mixed: _mixed,
    chosen_plans.moving: _moving,
    chosen_plans.moving_pairs: partial(_moving, plan=chosen_plans.moving_pairs),
    chosen_plans.slowly_copying: partial(_moving, plan=chosen_plans.slowly_copying),
    chosen_plans.rebalanced: partial(_usual, chosen_plans.rebalanced),
    chosen_plans.scaling: partial(_targets, chosen_plans.scaling, Scaling),
    chosen_plans.replacing_by_moves: partial(_targets, chosen_plans.replacing_by_moves, ReplacingByMoves),
    chosen_plans.to_and_fro: partial(_targets, chosen_plans.to_and_fro, ToAndFro),
}
"""Plans whose nodes or loads are others."""

KINDS: dict[str, ScheduleKind] = {
    "cluster": _usual(chosen_plans.usual_mix),
    "rebalanced": _FAMILIES[chosen_plans.rebalanced](),
    "contested": ScheduleKind(chosen_plans.contested),
    "contested-by-five": ScheduleKind(chosen_plans.contested_by_five),
    "crashing": ScheduleKind(chosen_plans.crashing),
    "killed": ScheduleKind(chosen_plans.killed),
    "on-files": ScheduleKind(chosen_plans.on_files),
    "replacing": ScheduleKind(chosen_plans.replacing),
    "replacing-of-two": ScheduleKind(chosen_plans.replacing_of_two),
    "readmitting": ScheduleKind(chosen_plans.readmitting),
    "rolled-back": ScheduleKind(chosen_plans.rolled_back),
    "impostors": ScheduleKind(chosen_plans.impostors),
    "through-gateways": ScheduleKind(chosen_plans.through_gateways),
    "over-streams": _over_streams(),
    "mixed": _mixed(),
    "moving": _moving(),
    "moving-pairs": _FAMILIES[chosen_plans.moving_pairs](),
    "slowly-copying": _FAMILIES[chosen_plans.slowly_copying](),
    "scaling": _FAMILIES[chosen_plans.scaling](),
    "replacing-by-moves": _FAMILIES[chosen_plans.replacing_by_moves](),
    "to-and-fro": _FAMILIES[chosen_plans.to_and_fro](),
    "quiet": ScheduleKind(chosen_plans.quiet),
    "peaceful": ScheduleKind(chosen_plans.peaceful),
    "transactions": _transactional(),
    "early-answers": _transactional(early=True),
    "transactions-by-links": _by_links(),
    **{f"at-{name}": _transactional(plan=plans.undisturbed, crash_points=(name,)) for name in plans.CRASH_POINTS},
    **{f"late-{kind.lower()}": _late(kind) for kind in plans.QUESTIONS},
    "groups": _groups(),
    **{f"at-{name}": _groups(plan=plans.undisturbed, crash_points=(name,)) for name in plans.OF_GROUPS},
    **{name: _groups(mutation.apply) for name, mutation in catalogue.BY_GROUPS.items()},
    **{name: _by_links(mutation.apply) for name, mutation in catalogue.BY_LINKS.items()},
    "slow-for-minutes": ScheduleKind(chosen_plans.slow_for_minutes),
    "wrong-clocks": ScheduleKind(chosen_plans.wrong_clocks),
    "impatient": ScheduleKind(chosen_plans.impatient),
    "in-bulk": ScheduleKind(chosen_plans.in_bulk),
    "scarce-memory": ScheduleKind(around=scarce_memory),
    "bare-library": ScheduleKind(chosen_plans.bare, chosen_plans.library_random, RawNode, RawLoad),
    "bare-library-fifo": ScheduleKind(chosen_plans.bare_fifo, chosen_plans.library_random, RawNode, RawLoad),
    **{
        name: _late(mutation.late, mutation.apply) if mutation.late else _transactional(mutation.apply)
        for name, mutation in catalogue.BY_TRANSACTIONS.items()
    },
    **{
        name: _FAMILIES.get(mutation.plan, partial(ScheduleKind, mutation.plan))(mutation.apply)
        for name, mutation in catalogue.BY_SCHEDULES.items()
    },
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


def run_schedule(
    kind: str, seed: int, *, tracing: bool = False, mutated: bool = True
) -> tuple[Schedule, BaseException | None]:
    """`mutated`: with the kind's mutation, if it has one."""
    chosen = KINDS[kind]
    with quiet(), chosen.mutation() if mutated else contextlib.nullcontext():
        schedule = Schedule(seed, chosen.node, chosen.load, plan=chosen.plan, tracing=tracing)
        try:
            with chosen.around(schedule):
                schedule.run()
        except (Violation, Exception) as error:  # noqa: BLE001 - whatever breaks inside a node is a finding
            return schedule, error
        finally:
            schedule.close()
    return schedule, None


@dataclass
class ScheduleTally:
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


def run_many(kind: str, seeds: Iterable[int], tell: Callable[[str], None] | None = None) -> ScheduleTally:
    tally = ScheduleTally()
    for seed in seeds:
        tally.add(*run_schedule(kind, seed))
        if seed in tally.failures and tell is not None:
            tell(f"seed {seed}: {tally.failures[seed]}")
    return tally


def _failed(kind: str, seed: int, *, mutated: bool = True) -> bool:
    _, error = run_schedule(kind, seed, mutated=mutated)
    return error is not None and not isinstance(error, Empty)


def is_noticed(kind: str, seed: int) -> bool:
    """The schedule fails with the mutation. It must not fail without: then it is a finding of its own."""
    if not _failed(kind, seed):
        return False
    assert not _failed(kind, seed, mutated=False), (
        f"it fails without the mutation, too: python -m tests.simulation --unmutated --kind {kind} "
        f"--seeds {seed}:{seed + 1}"
    )
    return True


def loses_committed_entries(kind: str, seed: int) -> bool:
    _, error = run_schedule(kind, seed)
    return isinstance(error, Violation) and not isinstance(error, Stuck | Empty)


# ---- kinds whose schedules are to show something

POINTS = tuple(kind for kind in KINDS if kind.startswith("at-"))
LATE = tuple(kind for kind in KINDS if kind.startswith("late-"))
BARE = ("bare-library",)
SHOWING = (*catalogue.BY_TRANSACTIONS, *catalogue.BY_LINKS, *catalogue.BY_SCHEDULES, *POINTS, *LATE, *BARE)
BARE_SCHEDULES = 200
REACHING_SCHEDULES = 10
"""Within which somebody dies at a crash point, or a question of a kind is late."""


def schedules_to_show(kind: str) -> int:
    """Within so many it must be seen."""
    if kind in BARE:
        return BARE_SCHEDULES
    mutation: Any = ({**catalogue.BY_TRANSACTIONS, **catalogue.BY_LINKS, **catalogue.BY_SCHEDULES}).get(kind)
    return REACHING_SCHEDULES if mutation is None else int(mutation.budget)


def is_reached(kind: str, schedule: Schedule) -> bool:
    """What a kind of the families `at-` and `late-` is about."""
    point = f"crash {kind.removeprefix('at-')}" if kind in POINTS else "in the next transaction"
    return any(what.endswith(point) for what in schedule.done)


def shows(kind: str, seed: int) -> bool:
    if kind in BARE:
        return loses_committed_entries(kind, seed)
    if kind in POINTS or kind in LATE:
        schedule, error = run_schedule(kind, seed)
        return error is None and is_reached(kind, schedule)
    return is_noticed(kind, seed)


def report(kind: str, seed: int, *, mutated: bool = True) -> str:
    """The schedule again, with a trace that can be read."""
    schedule, error = run_schedule(kind, seed, tracing=True, mutated=mutated)
    lines = "\n".join(schedule.lines)
    where = "".join(traceback.format_exception(error)) if error else "not reproduced: not deterministic!"
    return (
        f"{lines}\n{where}\nseed {seed} of kind {kind} fails: {type(error).__name__}: {error}\n"
        f"plan: {schedule.plan}\nreplay: python -m tests.simulation --kind {kind} --seeds {seed}:{seed + 1}"
    )
