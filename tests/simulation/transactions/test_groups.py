"""Transaction groups in random schedules; the crash points of their code are with those of transactions.

`python -m tests.simulation --kind groups --seeds A:B` runs more of them, as `make soak` does.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutations.catalogue import BY_GROUPS
from tests.simulation.runner import ScheduleTally, is_noticed, report, run_many, run_schedule

SCHEDULES = 8
SEEN = ("committed batch", "hanging member", "replayed batch", "lost question or answer")


def test_a_batch_is_decided_once_and_is_whole() -> None:
    tally: ScheduleTally = run_many("groups", range(SCHEDULES))
    assert not tally.failures, report("groups", min(tally.failures))
    assert tally.done["committed batch"] > 2 * SCHEDULES, tally
    assert all(tally.done[what] for what in SEEN), tally


@pytest.mark.parametrize("kind", sorted(BY_GROUPS))
def test_a_hole_in_groups_is_noticed(kind: str) -> None:
    budget = BY_GROUPS[kind].budget
    assert any(is_noticed(kind, seed) for seed in range(budget)), (
        f"{budget} schedules did not notice {kind}: they have become too mild"
    )


def test_a_schedule_with_groups_replays_exactly() -> None:
    first, second = (run_schedule("groups", 2, tracing=True)[0] for _ in range(2))
    assert list(first.lines) == list(second.lines)
    assert first.lines
