"""Disks, racks, and evenness: each goal by itself, and their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.metadata.planning import BalanceInput, plan_balance
from tests.unit.metadata.planning.loads import (
    GIB,
    MIB,
    ON,
    carried_out,
    cluster,
    held,
    held_bytes,
    led,
    moved_bytes,
    nodes_of,
    placed,
    spread,
    with_node,
    with_partition,
)


def disks(load: BalanceInput, used_gib: dict[int, int], capacity_gib: int = 100) -> BalanceInput:
    for node, used in used_gib.items():
        load = with_node(load, node, capacity_bytes=capacity_gib * GIB, used_bytes=used * GIB)
    return load


def percent_used(load: BalanceInput, node: int) -> float:
    told = next(one for one in load.nodes if one.node == node)
    return told.used_bytes / told.capacity_bytes * 100


def full_disk(used_gib: int = 86, sizes: list[int] | None = None) -> BalanceInput:
    of_all = sizes or [8, 4, 2, 1, 1, 1]
    load = cluster(nodes_of(3), [(1,)] * len(of_all), [size * GIB for size in of_all])
    return disks(load, {1: used_gib, 2: 50, 3: 50})


# -- disks


def test_a_disk_above_its_mark_is_brought_to_the_lower_one_by_the_largest_replicas_and_no_more() -> None:
    load = with_node(full_disk(), 3, report_age_s=31.0)  # so that nothing but the disk is looked at
    plan = plan_balance(load, ON)
    assert [(item.group, item.target) for item in plan.reassignments] == [(1, (2,)), (3, (2,)), (6, (2,))]
    assert {item.why for item in plan.reassignments} == {"the disk of node 1 is above its mark"}
    assert percent_used(carried_out(load, plan), 1) == 75


def test_a_disk_at_its_mark_is_left_alone() -> None:
    assert plan_balance(with_node(full_disk(85), 3, report_age_s=31.0), ON).reassignments == ()


def test_one_replica_that_is_too_large_is_better_than_a_full_disk() -> None:
    load = with_node(full_disk(86, [20, 30]), 3, report_age_s=31.0)
    assert [item.group for item in plan_balance(load, ON).reassignments] == [1]


def test_no_disk_is_relieved_at_the_cost_of_another_one() -> None:
    load = disks(full_disk(), {1: 86, 2: 79, 3: 80})
    plan = plan_balance(with_node(load, 3, report_age_s=31.0), ON)
    assert [(item.group, item.target) for item in plan.reassignments] == [(6, (2,))]
    assert "the disk of node 1 is above 85 %" in plan_balance(disks(load, {1: 96}), ON).obstacles[0]


def test_a_disk_is_relieved_within_the_racks_of_its_replicas() -> None:
    load = cluster(nodes_of({1: "a", 2: "b", 3: "b", 4: "a"}), [(1, 2)] * 2, 11 * GIB)
    load = disks(load, {1: 86, 2: 50, 3: 10, 4: 70})
    plan = plan_balance(load, ON)
    assert [item.target for item in plan.reassignments if "disk" in item.why] == []
    plan = plan_balance(disks(load, {4: 60}), ON)
    (target,) = [item.target for item in plan.reassignments if "disk" in item.why]
    assert 4 in target
    assert 1 not in target


def test_a_disk_that_is_relieved_gets_nothing_in_the_same_plan() -> None:
    """Else another replica of what leaves would come, for evenness, and the disk stay as full."""
    load = cluster(nodes_of(4), [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4, GIB)
    load = disks(load, {1: 20, 2: 20, 3: 86, 4: 10})
    plan = plan_balance(load, ON)
    after = carried_out(load, plan)
    assert percent_used(after, 3) <= 75
    assert all(
        3 in was.replicas for was, now in zip(load.partitions, after.partitions, strict=True) if 3 in now.replicas
    )
    of_disk = [item for item in plan.reassignments if item.why == "the disk of node 3 is above its mark"]
    assert of_disk
    assert all(3 not in item.target for item in of_disk)


def test_what_is_dead_on_a_disk_is_no_reason_to_move_replicas_away() -> None:
    """The node gives it back by itself. To another replica it is no room until then."""
    load = with_node(full_disk(91), 3, report_age_s=31.0)
    assert plan_balance(with_node(load, 1, garbage_bytes=6 * GIB), ON).reassignments == ()
    plan = plan_balance(with_node(load, 1, garbage_bytes=4 * GIB), ON)
    moved = sum({1: 8, 2: 4, 3: 2}.get(item.group, 1) for item in plan.reassignments)
    assert 91 - 4 - moved == 75
    load = with_node(disks(load, {2: 79}), 2, garbage_bytes=50 * GIB)
    assert moved_bytes(load, plan_balance(load, ON)) <= GIB


def test_a_full_disk_gives_for_evenness_too_and_leads_no_less() -> None:
    load = cluster(nodes_of(4), [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4, GIB)
    load = disks(disks(load, {1: 20, 2: 20, 4: 10}), {3: 13}, capacity_gib=15)
    after = carried_out(load, plan_balance(load, ON))
    assert held(after) == {1: 9, 2: 9, 3: 9, 4: 9}
    assert set(led(after).values()) == {3}


# -- racks


def test_replicas_in_one_rack_are_spread_over_those_that_there_are() -> None:
    load = cluster(nodes_of({1: "a", 2: "a", 3: "b", 4: "c"}), [(1, 2, 3), (1, 3, 4)])
    plan = plan_balance(load, ON)
    (moved,) = [item for item in plan.reassignments if item.why == "rack a has trades/1 more than once"]
    assert set(moved.target) in ({2, 3, 4}, {1, 3, 4})


def test_with_fewer_racks_than_replicas_they_are_shared_evenly() -> None:
    load = cluster(nodes_of({1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "b"}), [(1, 2, 3, 4), (1, 2, 4)])
    plan = plan_balance(load, ON)
    (item,) = plan.reassignments
    assert item.group == 1
    assert len({1, 2, 3} & set(item.target)) == 2


def test_a_rack_whose_nodes_are_full_or_away_is_none_to_spread_over() -> None:
    load = cluster(nodes_of({1: "a", 2: "a", 3: "b"}), [(1, 2)], GIB)
    assert plan_balance(load, ON).reassignments
    assert plan_balance(disks(load, {3: 80}), ON).reassignments == ()
    assert plan_balance(with_node(load, 3, away_s=1.0), ON).reassignments == ()


# -- evenness


def test_a_new_node_gets_its_share_and_each_group_moves_once() -> None:
    load = replace(placed(nodes_of(3), 60, 3), nodes=tuple(nodes_of(5)))
    plan = plan_balance(load, ON)
    assert set(held(carried_out(load, plan)).values()) == {36}
    assert moved_bytes(load, plan) == 72 * MIB


@pytest.mark.parametrize(("more", "moves"), [(2, 0), (3, 1)])
def test_few_replicas_are_uneven_from_three_on(more: int, moves: int) -> None:
    load = cluster(nodes_of(2), [(1,)] * (5 + more) + [(2,)] * 5)
    assert len([i for i in plan_balance(load, ON).reassignments if "replicas" in i.why]) == moves


@pytest.mark.parametrize(("more", "uneven"), [(10, False), (11, True)])
def test_many_replicas_are_uneven_by_more_than_five_percent(more: int, uneven: bool) -> None:
    load = cluster(nodes_of(2), [(1, 2)] * 200 + [(1,)] * more, 0)
    assert bool([i for i in plan_balance(load, ON).reassignments if "replicas" in i.why]) is uneven


def test_counts_are_made_even_by_the_smallest_replicas_when_bytes_are_even() -> None:
    sizes = [10 * MIB] * 4 + [1 * MIB] * 6 + [46 * MIB]
    load = cluster(nodes_of(2), [(1,)] * 10 + [(2,)], sizes)
    plan = plan_balance(load, ON)
    assert spread(held(carried_out(load, plan)), [1, 2]) <= 1
    assert moved_bytes(load, plan) == 4 * MIB


def test_counts_are_not_made_even_at_the_cost_of_racks() -> None:
    load = cluster(nodes_of({1: "a", 2: "b", 3: "b"}), [(1, 2), (3, 1)] * 6)
    assert held(carried_out(load, plan_balance(load, ON))) == {1: 12, 2: 6, 3: 6}


@pytest.mark.parametrize(("more", "uneven"), [(3, False), (4, True)])
def test_bytes_are_uneven_by_more_than_fifteen_percent(more: int, uneven: bool) -> None:
    """A mean of 21 to 22 GiB."""
    load = cluster(nodes_of(2), [(1,)] * 20 + [(2,)] * 20 + [(1,)] * 2, [GIB] * 40 + [more * GIB // 2] * 2)
    plan = plan_balance(load, ON)
    assert bool([item for item in plan.reassignments if "bytes" in item.why]) is uneven
    if uneven:
        assert spread(held_bytes(carried_out(load, plan)), [1, 2]) <= 2 * GIB
        assert spread(held(carried_out(load, plan)), [1, 2]) <= 2


def test_few_bytes_are_never_uneven() -> None:
    load = cluster(nodes_of(2), [(1,)] * 5 + [(2,)] * 5, [40 * MIB] * 5 + [1 * MIB] * 5)
    assert plan_balance(load, ON).reassignments == ()


def test_bytes_are_exchanged_where_counts_allow_no_move() -> None:
    load = cluster(nodes_of(2), [(1,)] * 30 + [(2,)] * 32, [GIB] * 30 + [MIB] * 32)
    after = carried_out(load, plan_balance(load, ON))
    assert spread(held(after), [1, 2]) <= 2
    total = held_bytes(after)
    assert spread(total, [1, 2]) <= 0.15 * sum(total.values()) / 2


def test_preferred_leaders_are_made_even_without_a_byte() -> None:
    load = cluster(nodes_of(3), [(1, 2, 3)] * 9)
    plan = plan_balance(load, ON)
    assert moved_bytes(load, plan) == 0
    after = carried_out(load, plan)
    assert set(led(after).values()) == {3}
    assert {item.why for item in plan.reassignments} == {"node 1 is preferred by more partitions than others"}


def test_two_preferred_leaders_more_are_even() -> None:
    assert plan_balance(cluster(nodes_of(2), [(1, 2)] * 4 + [(2, 1)] * 2), ON).reassignments == ()
    assert plan_balance(cluster(nodes_of(2), [(1, 2)] * 5 + [(2, 1)] * 2), ON).reassignments


# -- what evenness waits for


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"away_s": 1.0}, "waits for node 4, which is away: start it, or `holdfast node remove 4`"),
        ({"report_age_s": 31.0}, "waits for node 4's report"),
    ],
)
def test_evenness_waits_for_a_node(change: dict[str, object], told: str) -> None:
    load = replace(placed(nodes_of(3), 60, 3), nodes=tuple(nodes_of(5)))
    plan = plan_balance(with_node(load, 4, **change), ON)
    assert (plan.reassignments, plan.obstacles) == ((), (told,))


@pytest.mark.parametrize("change", [{"away_s": 901.0}, {"leaving": True}, {"leaving": True, "away_s": 9.0}])
def test_evenness_does_not_wait_for_a_node_that_is_lost_or_leaves(change: dict[str, object]) -> None:
    load = replace(placed(nodes_of(3), 60, 3), nodes=tuple(nodes_of(5)))
    plan = plan_balance(with_node(load, 4, **change), ON)
    after = carried_out(load, plan)
    assert spread(held(after), [1, 2, 3, 5]) <= 1
    assert held(after)[4] == 0


# -- their order


def test_what_comes_first_in_a_plan_is_what_is_most_urgent() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "c", 5: "d", 6: "e", 7: "f"}
    crowded, full, lost = [(1, 2, 3)], [(4,)] * 2, [(7, 3)]
    load = cluster(nodes_of(racks), [*crowded, *full, *lost], [MIB, 12 * GIB, 10 * GIB, MIB])
    load = with_node(disks(load, {4: 90}), 7, away_s=901.0)
    load = with_partition(load, 4, leader=3)
    whys = [item.why for item in plan_balance(load, ON).reassignments]
    assert list(dict.fromkeys(whys)) == [
        "node 7 is away",
        "the disk of node 4 is above its mark",
        "rack a has trades/1 more than once",
    ]
