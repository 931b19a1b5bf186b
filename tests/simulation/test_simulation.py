"""The main test of cluster.raft: random schedules of faults, replayable by their number.

`python -m tests.simulation --seeds A:B` runs more of them; a failure here prints the number and how to replay it.
"""

from __future__ import annotations

import pytest

from tests.simulation.checker import Violation
from tests.simulation.runner import first_failure, run_schedule
from tests.simulation.schedule import Stuck

SCHEDULES = 1000
CHUNK = 25
"""Schedules per test: small enough for parallel runs to share them evenly."""

MUTATION_SEEDS = 200
"""A reopened hole must be found within so many schedules; most are within ten."""

MUTATIONS = (
    "no-append-rewrite",
    "no-vote-dedup",
    "no-sync",
    "forgotten-vote",
    "forgotten-term",
    "commit-before-own-sync",
    "hard-state-apart",
    "no-commit-clamp",
)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_no_schedule_breaks_an_invariant(first: int) -> None:
    report = first_failure("guarded", range(first, first + CHUNK))
    assert report is None, report


def test_contested_elections_elect_one_leader_per_term() -> None:
    report = first_failure("contested", range(40))
    assert report is None, report


@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_reopened_hole_is_noticed(kind: str) -> None:
    assert any(run_schedule(kind, seed)[1] is not None for seed in range(MUTATION_SEEDS)), (
        f"{MUTATION_SEEDS} schedules did not notice {kind}: the simulation has become too mild"
    )


def test_the_bare_library_loses_committed_entries() -> None:
    for seed in range(MUTATION_SEEDS):
        _, error = run_schedule("bare-library", seed)
        if isinstance(error, Violation) and not isinstance(error, Stuck):
            return
    pytest.fail(f"{MUTATION_SEEDS} schedules found nothing wrong with pysyncobj as shipped: they have become too mild")


def test_a_schedule_replays_exactly() -> None:
    first, _ = run_schedule("guarded", 11, tracing=True)
    second, _ = run_schedule("guarded", 11, tracing=True)
    assert list(first.lines) == list(second.lines)
    assert first.lines


def test_schedules_do_work() -> None:
    """A schedule that commits nothing, elects nobody twice or breaks nothing would pass for nothing."""
    committed = terms = acknowledged = discarded = 0
    for seed in range(20):
        schedule, error = run_schedule("guarded", seed)
        assert error is None, f"seed {seed}: {error}"
        for checker in schedule.checkers.values():
            committed += checker.highest
            acknowledged += len(checker.acknowledged)
            terms += len(checker.leaders)
            discarded += len(checker.discarded) + checker.unknown
    assert committed > 1000
    assert acknowledged > 700
    assert terms > 60
    assert discarded > 20
