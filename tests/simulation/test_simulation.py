"""The main test of the core: random schedules of faults over whole clusters, replayable by their number.

`python -m tests.simulation --seeds A:B` runs more of them; a failure here prints the number and how to replay it.
"""

from __future__ import annotations

import random
from itertools import chain

import pytest

from tests.simulation import chosen_plans
from tests.simulation.checker import GroupJudge, Violation
from tests.simulation.mutations import known_seeds
from tests.simulation.mutations.catalogue import BY_SCHEDULES
from tests.simulation.plan import draw
from tests.simulation.runner import (
    BARE_SCHEDULES,
    ScheduleTally,
    is_noticed,
    loses_committed_entries,
    report,
    run_many,
    run_schedule,
)

SCHEDULES = 250
"""Those that count: something was acknowledged, and enough was broken. `make soak` runs 20,000."""
WATCHED = 150
"""The first of them are looked at more closely, by `test_schedules_do_work`."""
CHUNK = 50
"""Schedules per test: small enough for parallel runs to share them evenly."""
READMITTING = 20
"""Schedules in which one disk after the other is lost. `make soak` runs thousands."""
MOVING = 50
"""Schedules in which groups change their members all the time. `make soak` runs thousands."""
TARGETED = 15
"""Of each kind in which the metadata's own state machine says what moves. `make soak` runs thousands."""
REBALANCED = 25
"""Schedules of the usual clients in which partitions move. In the usual mix a third of the schedules is so."""
BY_TARGETS = {
    "scaling": ("scaled up", "scaled down", "readmitted", "handed over"),
    "replacing-by-moves": ("lost for good", "replaced", "came back"),
    "to-and-fro": ("to", "fro", "cancel", "readmitted", "handed over"),
}
"""What has to happen in them."""
LEADERS_BESIDE_A_SLOW_DISK = 12
"""Of one group in two and a half minutes, connections breaking now and then."""
SPARE_FROM = 10_000_000
"""Seeds of the schedules that stand in for those that proved nothing."""
MOST_EMPTY = 15
"""Of a chunk; with more the schedules have become too harsh to prove anything."""


@pytest.mark.parametrize("first", range(WATCHED, SCHEDULES, CHUNK))
def test_no_schedule_breaks_an_invariant(first: int) -> None:
    tally = ScheduleTally()
    for seed in chain(range(first, first + CHUNK), range(SPARE_FROM + first, SPARE_FROM + first + MOST_EMPTY)):
        tally.add(*run_schedule("cluster", seed))
        if seed in tally.failures:
            pytest.fail(report("cluster", seed))
        if tally.counted == CHUNK:
            break
    assert tally.counted == CHUNK, f"too many schedules prove nothing: {tally}"


def test_contested_elections_elect_one_leader_per_term() -> None:
    tally = run_many("contested", range(30))
    assert not tally.failures, report("contested", min(tally.failures))
    assert tally.counted > 20


def test_groups_that_fall_silent_have_leaders_again() -> None:
    tally = run_many("quiet", range(20))
    assert not tally.failures, report("quiet", min(tally.failures))
    assert tally.counted > 12


def test_groups_that_fell_silent_are_left_in_peace() -> None:
    tally = run_many("peaceful", range(10))
    assert not tally.failures, report("peaceful", min(tally.failures))
    assert tally.counted > 6


@pytest.mark.parametrize("first", range(0, READMITTING, READMITTING // 2))
def test_disks_are_lost_one_after_the_other(first: int) -> None:
    tally = run_many("readmitting", range(first, first + READMITTING // 2))
    assert not tally.failures, report("readmitting", min(tally.failures))
    assert tally.done["readmitted"] > READMITTING // 4, tally


def test_a_member_from_an_older_copy_loses_its_vote_where_its_leader_knows_better() -> None:
    tally = run_many("rolled-back", range(20))
    assert not tally.failures, report("rolled-back", min(tally.failures))
    assert tally.done["roll_back"] > 5, tally


def test_nobody_hears_a_copy_of_a_nodes_data_in_its_place_or_beside_it() -> None:
    tally = run_many("impostors", range(15))
    assert not tally.failures, report("impostors", min(tally.failures))
    assert min(tally.done["impostor"], tally.done["twin"]) > 30, tally
    assert tally.done["told that it is a copy"] == tally.done["impostor"] + tally.done["twin"], "each is told, and once"


def test_two_releases_stand_side_by_side_and_go_back_until_one_is_activated() -> None:
    tally = run_many("mixed", range(15))
    assert not tally.failures, report("mixed", min(tally.failures))
    assert tally.counted > 10
    changes = ("upgrade", "downgrade", "activation refused", "activated", "risen", "rewritten", "note")
    assert min(tally.done.get(what, 0) for what in (*changes, "refused an earlier program")) > 3, tally


@pytest.mark.parametrize("first", range(0, MOVING, MOVING // 2))
def test_groups_change_their_members_under_all_faults(first: int) -> None:
    tally = run_many("moving", range(first, first + MOVING // 2))
    assert not tally.failures, report("moving", min(tally.failures))
    assert tally.counted == MOVING // 2
    wished = (*(f"move: {kind}" for kind in ("swap", "add", "remove", "demote", "promote", "drop")), "cancel")
    assert min(tally.done.get(what, 0) for what in (*wished, "joint", "handed over", "erased", "piece")) > 1, tally


def test_partitions_of_the_usual_clients_move() -> None:
    tally = run_many("rebalanced", range(REBALANCED))
    assert not tally.failures, report("rebalanced", min(tally.failures))
    assert tally.counted > REBALANCED * 3 // 4
    wanted = ("aimed", "cancel", "move: learner", "move: joint", "move: end", "reported", "erased")
    assert min(tally.done.get(what, 0) for what in wanted) > 2, tally


def test_a_third_of_the_usual_mix_has_moves() -> None:
    drawn = [chosen_plans.usual_mix(draw(random.Random(seed))).rebalances for seed in range(300)]
    assert 80 < sum(drawn) < 120


@pytest.mark.parametrize("kind", sorted(BY_TARGETS))
def test_the_metadata_say_what_moves(kind: str) -> None:
    tally = run_many(kind, range(TARGETED))
    assert not tally.failures, report(kind, min(tally.failures))
    assert tally.counted == TARGETED
    wanted = (*BY_TARGETS[kind], "joint", "erased", "piece", "reported")
    assert min(tally.done.get(what, 0) for what in wanted) > 2, tally


def test_what_passes_through_gateways_is_stored_once_and_in_order() -> None:
    tally = run_many("through-gateways", range(12))
    assert not tally.failures, report("through-gateways", min(tally.failures))
    passed = ("through a gateway", "read through a gateway", "unknown at a link", "turned away at a link")
    passed = (*passed, "sealed through a gateway")
    assert min(tally.done.get(what, 0) for what in passed) > 100, tally


def test_streams_lose_and_reorder_nothing_up_to_where_they_end() -> None:
    tally = run_many("over-streams", range(10))
    assert not tally.failures, report("over-streams", min(tally.failures))
    assert tally.done["frame of a stream"] > 3000, tally
    assert min(tally.done["dropped with its backlog"], tally.done["reset"]) > 20, tally


def test_what_waits_for_company_is_proposed_or_refused() -> None:
    tally = run_many("in-bulk", range(20))
    assert not tally.failures, report("in-bulk", min(tally.failures))
    assert tally.counted > 12
    assert tally.done["waits for company"] > 1000, tally


def test_what_there_is_no_room_to_remember_is_known_when_it_comes_again() -> None:
    tally = run_many("scarce-memory", range(40))
    assert not tally.failures, report("scarce-memory", min(tally.failures))
    assert tally.done["place forgotten"] > 4, tally


def test_a_disk_that_is_slow_for_minutes_costs_no_more_than_its_own_leaderships() -> None:
    schedule, error = run_schedule("slow-for-minutes", 0)
    assert error is None, report("slow-for-minutes", 0)
    assert schedule.done["slow_disk"]
    assert schedule.load.acknowledged > 1000
    leaders = {group_id: len(judge.leaders) for group_id, judge in schedule.judges.items()}
    assert max(leaders.values()) <= LEADERS_BESIDE_A_SLOW_DISK, leaders


@pytest.mark.parametrize("kind", sorted(BY_SCHEDULES))
def test_a_reopened_hole_is_noticed(kind: str) -> None:
    budget = BY_SCHEDULES[kind].budget
    assert any(is_noticed(kind, seed) for seed in known_seeds.first(kind, range(budget))), (
        f"{budget} schedules did not notice {kind}: the simulation has become too mild"
    )


def test_who_lost_its_disk_may_vote_where_only_itself_had_its_vote() -> None:
    """Its candidacy is over with the process; but a vote that stands beside another's may have elected it."""
    alone, elected = GroupJudge(1), GroupJudge(1)
    for judge in (alone, elected):
        judge.members = (1, 2, 3)
        judge.votes(1, 2, 1)
    elected.votes(3, 2, 1)
    with pytest.raises(Violation):
        alone.votes(1, 2, 2)
    alone.disk_lost(1)
    alone.votes(1, 2, 2)
    elected.disk_lost(1)
    with pytest.raises(Violation):
        elected.votes(1, 2, 2)


def test_the_bare_library_loses_committed_entries() -> None:
    seeds = known_seeds.first("bare-library", range(BARE_SCHEDULES))
    assert any(loses_committed_entries("bare-library", seed) for seed in seeds), (
        f"{BARE_SCHEDULES} schedules found nothing wrong with pysyncobj as shipped: they have become too mild"
    )


def test_a_schedule_replays_exactly() -> None:
    for seed in (11, 12, 13):
        first, _ = run_schedule("cluster", seed, tracing=True)
        second, _ = run_schedule("cluster", seed, tracing=True)
        assert list(first.lines) == list(second.lines)
        assert first.lines


@pytest.mark.early
def test_schedules_do_work() -> None:
    """Everything that may go wrong does, within so many schedules, and everything that clients do is done."""
    duplicates = reads = trims = terms = refusals = groups = claims = 0
    tally = ScheduleTally()
    for seed in chain(range(WATCHED), range(SPARE_FROM, SPARE_FROM + MOST_EMPTY)):
        schedule, error = run_schedule("cluster", seed)
        tally.add(schedule, error)
        for judge in schedule.judges.values():
            terms += len(judge.leaders)
            refusals += judge.outcomes["Discarded"] + judge.outcomes["Unknown"]
        partitions = [judge for group_id, judge in schedule.judges.items() if group_id]
        groups += len(partitions)
        duplicates += sum(judge.duplicates for judge in partitions)
        reads += sum(judge.reads for judge in partitions)
        claims += sum(judge.claims for judge in partitions)
        trims += sum(judge.start_offset > 0 for judge in partitions)
    assert not tally.failures
    assert tally.counted > 85
    assert tally.acknowledged > 20_000
    assert min(duplicates, terms, refusals) > 200, (duplicates, terms, refusals)
    assert reads > 50_000
    assert trims > 20
    assert claims > 50
    assert groups > 130
    missing = (
        {*schedule.plan.weights, "bounce_voter", "refused", "piece", "piece of metadata", "readmitted"}
        - {"heal", "start"}
        - set(tally.done)
    )
    assert not missing, f"never happened: {missing}"
