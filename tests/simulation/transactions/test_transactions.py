"""Transactions in random schedules; at each crash point of their code; with each of their questions a transaction late.

`python -m tests.simulation --kind transactions --seeds A:B` runs more of them, as `make soak` does.
"""

from __future__ import annotations

import pytest

from tests.simulation.checker import Empty
from tests.simulation.mutations import known_seeds
from tests.simulation.mutations.catalogue import BY_TRANSACTIONS
from tests.simulation.runner import (
    LATE,
    POINTS,
    REACHING_SCHEDULES,
    is_noticed,
    is_reached,
    report,
    run_many,
    run_schedule,
)

SCHEDULES = 10
A_LOG_MORE = 920590
"""A seed: in this schedule the administrator makes another log before the first faults."""
ENDS = ("committed transaction", "aborted transaction", "lost question or answer")


def test_transactions_are_whole_or_nothing() -> None:
    tally = run_many("transactions", range(SCHEDULES))
    assert not tally.failures, report("transactions", min(tally.failures))
    assert min(tally.done[what] for what in ENDS) > 2 * SCHEDULES, tally
    assert len([what for what in tally.done if what.startswith("crash ")]) > 5, tally


def test_a_log_that_the_administrator_makes_early_does_not_count_as_one_that_is_missing() -> None:
    _, error = run_schedule("transactions", A_LOG_MORE)
    assert error is None, report("transactions", A_LOG_MORE)


@pytest.mark.parametrize("kind", POINTS)
def test_nodes_that_die_between_two_steps_tear_nothing(kind: str) -> None:
    assert _reaches(kind), "nobody died there"


@pytest.mark.parametrize("kind", LATE)
def test_what_arrives_in_the_next_transaction_is_no_part_of_it(kind: str) -> None:
    assert _reaches(kind), "nothing arrived late"


def _reaches(kind: str) -> bool:
    for seed in known_seeds.first(kind, range(REACHING_SCHEDULES)):
        schedule, error = run_schedule(kind, seed)
        if error is not None and not isinstance(error, Empty):
            pytest.fail(report(kind, seed))
        if is_reached(kind, schedule):
            return True
    return False


@pytest.mark.parametrize("kind", sorted(BY_TRANSACTIONS))
def test_a_hole_in_transactions_is_noticed(kind: str) -> None:
    budget = BY_TRANSACTIONS[kind].budget
    assert any(is_noticed(kind, seed) for seed in known_seeds.first(kind, range(budget))), (
        f"{budget} schedules did not notice {kind}: they have become too mild"
    )


def test_a_schedule_with_transactions_replays_exactly() -> None:
    first, second = (run_schedule("transactions", 2, tracing=True)[0] for _ in range(2))
    assert list(first.lines) == list(second.lines)
    assert first.lines
