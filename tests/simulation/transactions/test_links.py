"""Transactions of clients at any node, behind gateways, with filters and record batches, on disks that lose power.

`python -m tests.simulation --kind transactions-by-links --seeds A:B` runs more of them, as `make soak` does.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutations import known_seeds
from tests.simulation.mutations.catalogue import BY_LINKS
from tests.simulation.runner import is_noticed, report, run_many, run_schedule

KIND = "transactions-by-links"
SCHEDULES = 8
SEEN = ("committed transaction", "aborted transaction", "through a gateway", "batch read through a gateway",
        "filtered read through a gateway")  # fmt: skip


def test_links_see_transactions_whole_or_not_at_all() -> None:
    tally = run_many(KIND, range(SCHEDULES))
    assert not tally.failures, report(KIND, min(tally.failures))
    assert min(tally.done.get(what, 0) for what in SEEN) > SCHEDULES, tally


@pytest.mark.parametrize("kind", sorted(BY_LINKS))
def test_a_hole_at_links_is_noticed(kind: str) -> None:
    budget = BY_LINKS[kind].budget
    assert any(is_noticed(kind, seed) for seed in known_seeds.first(kind, range(budget))), (
        f"{budget} schedules did not notice {kind}: they have become too mild"
    )


def test_a_schedule_with_links_replays_exactly() -> None:
    first, second = (run_schedule(KIND, 2, tracing=True)[0] for _ in range(2))
    assert list(first.lines) == list(second.lines)
    assert first.lines
