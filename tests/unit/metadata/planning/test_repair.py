"""Nodes that are lost, that leave, or that another one replaces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.metadata.planning import (
    BalanceInput,
    BalancePlan,
    plan_balance,
    plan_removal,
    plan_replacement,
)
from cluster.metadata.types import BalanceSettings
from tests.unit.metadata.planning.loads import GIB, MIB, ON, cluster, nodes_of, placed, with_node, with_partition

REPAIR = BalanceSettings()


def away(load: BalanceInput, *nodes: int, away_s: float = 901.0) -> BalanceInput:
    for node in nodes:
        load = with_node(load, node, away_s=away_s)
    led_by = {one.group: next((node for node in one.replicas if node not in nodes), None) for one in load.partitions}
    return replace(load, partitions=tuple(replace(one, leader=led_by[one.group]) for one in load.partitions))


def givers(load: BalanceInput, plan: BalancePlan) -> set[int]:
    was = {one.group: one.replicas for one in load.partitions}
    return {node for item in plan.reassignments for node in set(was[item.group]) - set(item.target)}


def test_what_lay_on_a_node_that_stays_away_is_made_elsewhere() -> None:
    load = away(placed(nodes_of(5), 10, 3), 2)
    plan = plan_balance(load, REPAIR)
    assert [item.group for item in plan.reassignments] == [one.group for one in load.partitions if 2 in one.replicas]
    assert givers(load, plan) == {2}
    assert {item.why for item in plan.reassignments} == {"node 2 is away"}


def test_a_node_is_not_replaced_before_its_time() -> None:
    assert plan_balance(away(placed(nodes_of(5), 10, 3), 2, away_s=900.0), REPAIR) == BalancePlan()


def test_nothing_is_done_when_all_of_it_is_off() -> None:
    assert plan_balance(away(placed(nodes_of(5), 10, 3), 2), BalanceSettings(balance="off")) == BalancePlan()


def test_a_repair_alone_makes_nothing_even() -> None:
    load = replace(placed(nodes_of(3), 30, 3), nodes=tuple(nodes_of(4)))
    assert plan_balance(load, REPAIR) == BalancePlan()
    assert plan_balance(load, ON).reassignments


def test_nodes_of_two_racks_that_are_away_are_not_replaced() -> None:
    racks = {node: "abcde"[node % 5] for node in range(1, 11)}
    one_rack = away(placed(nodes_of(racks), 20, 3), 2, 7)
    assert plan_balance(one_rack, REPAIR).reassignments
    plan = plan_balance(away(placed(nodes_of(racks), 20, 3), 2, 3), REPAIR)
    assert plan.reassignments == ()
    assert "nodes of 2 racks are away (c, d)" in plan.obstacles[0]


@pytest.mark.parametrize(("count", "repaired"), [(8, True), (7, False)])
def test_more_than_a_quarter_of_the_nodes_is_not_replaced(count: int, repaired: bool) -> None:
    plan = plan_balance(away(placed(nodes_of(count), 20, 3), 2, 3), REPAIR)
    assert bool(plan.reassignments) is repaired
    if not repaired:
        assert "2 of 7 nodes are away" in plan.obstacles[0]


def test_one_node_of_three_is_replaced_though_it_is_more_than_a_quarter() -> None:
    load = cluster(nodes_of(3), [(1, 2), (2, 3)])
    assert [item.target for item in plan_balance(away(load, 3), REPAIR).reassignments] == [(2, 1)]


def test_a_node_that_has_just_gone_counts_among_those_that_are_away() -> None:
    load = with_node(away(placed(nodes_of(7), 20, 3), 2), 3, away_s=1.0)
    assert plan_balance(load, REPAIR).reassignments == ()


def test_a_group_without_a_leader_is_left_alone_and_named() -> None:
    """It could not begin its move, and would hold the slot of one that can."""
    load = with_partition(away(cluster(nodes_of(5), [(2, 1, 3), (2, 1, 3)]), 2), 1, leader=None)
    plan = plan_balance(load, REPAIR)
    assert [item.group for item in plan.reassignments] == [2]
    assert plan.obstacles == ("trades/1 has no leader: a majority of its replicas must be up",)


def test_of_many_obstacles_the_first_are_told() -> None:
    load = away(cluster(nodes_of(5), [(2, 1, 3)] * 50), 2)
    leaderless = replace(load, partitions=tuple(replace(one, leader=None) for one in load.partitions))
    assert len(plan_balance(leaderless, REPAIR).obstacles) == 20


def test_a_group_with_a_target_is_left_to_that() -> None:
    load = away(cluster(nodes_of(5), [(2, 1, 3), (2, 1, 3)]), 2)
    assert [item.group for item in plan_balance(with_partition(load, 1, target=(4, 1, 3)), REPAIR).reassignments] == [2]
    still = plan_balance(with_partition(load, 1, target=(2, 1, 4)), REPAIR)
    assert still.obstacles == ("trades/1 is being moved already: see `holdfast cluster moves`",)


def test_a_group_that_is_to_have_another_number_of_replicas_is_left_to_that() -> None:
    """A target of the old size would be refused, and with it the whole plan."""
    load = away(cluster(nodes_of(5), [(2, 1, 3), (2, 1, 3)]), 2)
    resized = with_partition(load, 1, wanted_replicas=2)
    assert [item.group for item in plan_balance(resized, REPAIR).reassignments] == [2]


def test_a_node_that_leaves_is_emptied_by_a_repair() -> None:
    load = with_node(placed(nodes_of(4), 8, 3), 1, leaving=True)
    plan = plan_balance(load, REPAIR)
    assert givers(load, plan) == {1}
    assert {item.why for item in plan.reassignments} == {"node 1 leaves"}


def test_the_least_filled_node_takes_a_replica_then_the_one_that_holds_and_leads_the_fewest() -> None:
    load = cluster(nodes_of(5), [(1, 2), (3, 2), (4, 2), (4, 3), (5, 2), (5, 3)])

    def target_of_first(load: BalanceInput) -> tuple[int, ...]:
        return next(item.target for item in plan_removal(load, 2).reassignments if item.group == 1)

    for node in (1, 3, 4, 5):
        load = with_node(load, node, capacity_bytes=100 * GIB, used_bytes=50 * GIB)
    assert target_of_first(load) == (1, 4)  # 3 holds more; 4 and 5 are alike
    assert target_of_first(with_node(load, 4, used_bytes=60 * GIB)) == (1, 5)
    assert target_of_first(with_node(load, 3, used_bytes=10 * GIB)) == (1, 3)
    assert target_of_first(with_node(load, 3, used_bytes=49 * GIB)) == (1, 3)
    led_once = with_partition(load, 3, replicas=(2, 4))
    assert target_of_first(with_partition(led_once, 2, replicas=(2, 3))) == (1, 4)


def test_a_node_in_another_rack_takes_a_replica_before_a_less_filled_one() -> None:
    load = cluster(nodes_of({1: "a", 2: "b", 3: "c", 4: "b", 5: "c"}), [(1, 2, 3), (4, 5)])
    assert [item.target for item in plan_removal(load, 2).reassignments] == [(1, 4, 3)]


def test_with_too_few_racks_another_replica_in_one_is_better_than_none() -> None:
    load = cluster(nodes_of({1: "a", 2: "b", 3: "b", 4: "a"}), [(1, 2)])
    assert [item.target for item in plan_removal(with_node(load, 3, away_s=5.0), 2).reassignments] == [(1, 4)]


def test_the_preferred_leadership_of_a_node_that_leaves_goes_to_who_is_preferred_least() -> None:
    load = cluster(nodes_of(4), [(1, 2, 3), (2, 3, 4), (3, 4, 2), (4, 2, 3), (4, 3, 2)])
    assert plan_removal(load, 1).reassignments[0].target == (2, 4, 3)


@pytest.mark.parametrize("change", [{"leaving": True}, {"away_s": 1.0}, {"report_age_s": 31.0}], ids=str)
def test_a_node_that_is_not_active_up_and_reported_gets_nothing(change: dict[str, object]) -> None:
    load = cluster(nodes_of(4), [(1, 2)])
    assert plan_removal(load, 1).reassignments[0].target == (2, 3)
    assert plan_removal(with_node(load, 3, **change), 1).reassignments[0].target == (2, 4)


def test_no_disk_is_filled_above_the_mark_for_targets_by_all_that_is_on_its_way() -> None:
    load = cluster(nodes_of(3), [(1,), (1,), (1,)], 10 * GIB)
    for node in (2, 3):
        load = with_node(load, node, capacity_bytes=100 * GIB, used_bytes=70 * GIB)
    plan = plan_removal(load, 1)
    assert [item.target for item in plan.reassignments] == [(2,), (3,)]
    assert "no node has room for trades/3 (10240 MiB)" in plan.obstacles[0]
    under_way = plan_removal(with_partition(load, 1, replicas=(3,), target=(2,)), 1)
    assert [(item.group, item.target) for item in under_way.reassignments] == [(2, (3,))]


def test_a_node_cannot_be_removed_when_its_replicas_have_nowhere_to_go() -> None:
    plan = plan_removal(cluster(nodes_of(3), [(1, 2, 3)]), 2)
    assert plan.reassignments == ()
    assert plan.obstacles == (
        "trades has 3 replicas, and without node 2 there are 2 nodes for them; add a node, or `holdfast log "
        "alter trades --replicas` with fewer",
    )


def test_another_node_takes_the_place_of_one_whether_that_is_up_or_not() -> None:
    load = cluster([*nodes_of(3), *nodes_of({6: ""})], [(1, 2, 3), (2, 3, 1)])
    plan = plan_replacement(away(load, 3), 3, 6)
    assert [item.target for item in plan.reassignments] == [(1, 2, 6), (2, 6, 1)]
    assert {item.why for item in plan.reassignments} == {"node 6 replaces node 3"}


def test_a_successor_that_cannot_take_a_replica_is_named() -> None:
    load = cluster(nodes_of(4), [(1, 2, 3)])
    assert "trades/1 has a replica on node 2 already" in plan_replacement(load, 1, 2).obstacles[0]
    assert "node 4 cannot take trades/1" in plan_replacement(with_node(load, 4, away_s=9.0), 1, 4).obstacles[0]


def test_the_digest_names_exactly_the_targets() -> None:
    load = placed(nodes_of(4), 8, 3, MIB)
    plan = plan_removal(load, 1)
    assert len(plan.digest) == 8
    for change in (
        {"group": 99},
        {"configuration_version": 9},
        {"target": (3, 2)},
        {"why": "it should"},
    ):
        first = replace(plan.reassignments[0], **change)  # type: ignore[arg-type]
        assert BalancePlan((first, *plan.reassignments[1:])).digest != plan.digest
    assert BalancePlan(plan.reassignments[::-1]).digest != plan.digest
    assert BalancePlan(plan.reassignments, ("something",)).digest == plan.digest
