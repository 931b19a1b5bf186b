"""Runs schedules of a kind (the guarded code, a mutation of it, the bare library) and reports failures."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.simulation import mutations
from tests.simulation.nodes import SimNode
from tests.simulation.raw import RawNode
from tests.simulation.schedule import Plan, Schedule

Kind = tuple[Callable[..., Any], Callable[[Plan], Plan], Callable[[], contextlib.AbstractContextManager[None]]]


def as_drawn(plan: Plan) -> Plan:
    return plan


KINDS: dict[str, Kind] = {
    "guarded": (SimNode, as_drawn, contextlib.nullcontext),
    "contested": (SimNode, mutations.contested, contextlib.nullcontext),
    "bare-library": (RawNode, mutations.bare, mutations.library_random),
    "bare-library-fifo": (RawNode, mutations.bare_fifo, mutations.library_random),
    "no-append-rewrite": (SimNode, as_drawn, mutations.no_append_rewrite),
    "no-vote-dedup": (SimNode, mutations.contested_by_five, mutations.no_vote_dedup),
    "no-sync": (SimNode, mutations.crashing, mutations.no_sync),
    "forgotten-vote": (SimNode, mutations.contested, mutations.forgotten_vote),
    "forgotten-term": (SimNode, mutations.contested, mutations.forgotten_term),
    "commit-before-own-sync": (SimNode, mutations.alone, mutations.commit_before_own_sync),
    "hard-state-apart": (SimNode, mutations.crashing, mutations.hard_state_apart),
    "no-commit-clamp": (SimNode, mutations.replaying, mutations.no_commit_clamp),
    "every-reset-counts": (SimNode, mutations.replaying, mutations.every_reset_counts),
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Libraries' log lines say nothing without the schedule they belong to."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def run_schedule(kind: str, seed: int, *, tracing: bool = False) -> tuple[Schedule, BaseException | None]:
    make_node, plan, mutation = KINDS[kind]
    schedule = Schedule(seed, make_node, plan=plan, tracing=tracing)
    with quiet(), mutation():
        try:
            schedule.run()
        except Exception as error:  # noqa: BLE001 - whatever breaks inside a node is a finding
            return schedule, error
    return schedule, None


def run_one(kind: str, seed: int) -> str | None:
    """What was violated, or None."""
    _, error = run_schedule(kind, seed)
    return None if error is None else f"{type(error).__name__}: {error}"


def first_failure(kind: str, seeds: Iterable[int]) -> str | None:
    """A readable report of the first failing seed."""
    for seed in seeds:
        if run_one(kind, seed) is not None:
            schedule, error = run_schedule(kind, seed, tracing=True)
            lines = "\n".join(schedule.lines)
            where = "".join(traceback.format_exception(error)) if error else "not reproduced: not deterministic!"
            return (
                f"{lines}\n{where}\nseed {seed} of kind {kind} fails: {type(error).__name__}: {error}\n"
                f"plan: {schedule.plan}\nreplay: python -m tests.simulation --kind {kind} --seeds {seed}:{seed + 1}"
            )
    return None
