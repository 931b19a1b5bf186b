"""The model finds nothing wrong with the rules, and notices when one of them is left out."""

from __future__ import annotations

import pytest

from tests.simulation.membership_model.scopes import (
    FORGOTTEN_ENTRY,
    LED_BY_1,
    MOVE,
    MUTATIONS,
    READMITTED,
    READMITTED_OF_TWO,
    SCOPES,
    TRANSACTIONS,
    ModelMutation,
)
from tests.simulation.membership_model.search import at, explore, walk

COMPLETE = {"swap-of-two": 40_000, "readmitted-of-two": 45_000, "transaction": 20_000, "transactions": 20_000}
"""Scopes that are searched in full, and states that are enough for that."""
PARTLY = 6_000
"""States of each of the others, the nearest ones; the command searches on."""
WALKS = 60


@pytest.mark.parametrize("name", COMPLETE)
def test_no_state_within_the_bounds_is_broken(name: str) -> None:
    found = explore(SCOPES[name], COMPLETE[name])
    assert not found.broken, str(found)
    assert found.is_complete


@pytest.mark.parametrize("name", sorted(SCOPES.keys() - COMPLETE.keys()))
def test_none_of_the_nearest_states_is_broken(name: str) -> None:
    found = explore(SCOPES[name], PARTLY)
    assert not found.broken, str(found)
    assert found.states >= PARTLY


def test_no_random_way_leads_to_a_broken_state() -> None:
    found = [walk(MOVE, seed) for seed in range(WALKS)]
    assert [str(one) for one in found if one.broken] == []
    assert sum(one.states for one in found) > 20 * WALKS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.without)
def test_a_rule_that_is_left_out_is_missed(mutation: ModelMutation) -> None:
    found = explore(mutation.mutated, mutation.most, mutation.steps)
    assert found.broken, str(found)


def test_a_move_can_be_carried_out() -> None:
    """A model in which nothing can happen finds nothing."""
    steps = [*LED_BY_1, "term 1 appends v2", "2/1 has 2 entries of term 1", "term 1 commits", "node 4 learns"]
    steps += ["term 1 appends v3", "2/1 has 3 entries of term 1", "term 1 commits", "term 1 appends v4"]
    steps += ["2/1 has 4 entries of term 1", "term 1 commits", "term 1 reports", "node 3 learns", "node 3 learns"]
    state = at(MOVE, steps)
    assert state.members[2].birth == 0, "node 3 has erased its replica"
    assert len(state.committed) == 4


def test_a_vote_comes_back() -> None:
    steps = [*FORGOTTEN_ENTRY, "term 1 commits 2", "node 3 loses its disk", "3/1 answers", "2/1 answers"]
    state = at(READMITTED, [*steps, "3/1 votes again, with 2 of term 1"])
    assert (state.members[2].mute, state.members[2].vote) == (False, (1, 1))
    of_two = ["1/1 campaigns in term 1", "2/1 votes for 1/1", "1/1 leads", "node 2 loses its disk", "2/1 answers"]
    state = at(READMITTED_OF_TWO, [*of_two, "2/1 votes again, with 1 of term 1", "term 1 commits 1"])
    assert len(state.committed) == 1


def test_two_transactions_can_be_committed() -> None:
    one = ["writes 0 to 0", "0 confirms 0", "hears the end of 0, True", "0 is told that 0 ended, True", "0 is complete"]
    another = ["writes 1 to 0", "0 confirms 1", "hears the end of 1, True", "0 is told that 1 ended, True"]
    state = at(TRANSACTIONS, [*one, *another])
    assert [told.committed for told in state.over] == [True, True]
