"""Properties of plans, for any cluster."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from cluster.metadata.placement import rack_of
from cluster.metadata.planning import BalanceInput, BalancePlan, plan_balance, plan_removal
from cluster.metadata.planning.projection import Projection
from tests.unit.metadata.planning.loads import (
    GIB,
    MIB,
    ON,
    carried_out,
    clusters,
    clusters_on_disks,
    held,
    held_bytes,
    led,
    moved_bytes,
    nodes_of,
    placed,
    spread,
)


@given(load=clusters(), number=st.integers(0, 2**32))
def test_a_plan_is_the_same_for_the_same_load_in_any_order(load: BalanceInput, number: int) -> None:
    nodes, partitions = list(load.nodes), list(load.partitions)
    random.Random(number).shuffle(nodes)
    random.Random(number).shuffle(partitions)
    plan = plan_balance(load, ON)
    again = plan_balance(BalanceInput(tuple(nodes), tuple(partitions)), ON)
    assert (again.reassignments, again.digest, again.obstacles) == (plan.reassignments, plan.digest, plan.obstacles)


@given(load=clusters())
def test_a_target_has_as_many_distinct_nodes_and_new_ones_only_where_it_may(load: BalanceInput) -> None:
    plan = plan_balance(load, ON)
    nodes = {node.node: node for node in load.nodes}
    partitions = {one.group: one for one in load.partitions}
    assert len({item.group for item in plan.reassignments}) == len(plan.reassignments)
    for item in plan.reassignments:
        partition = partitions[item.group]
        assert partition.is_movable
        assert item.configuration_version == partition.configuration_version
        assert item.target != partition.replicas
        assert len(set(item.target)) == len(item.target) == len(partition.replicas)
        for node in set(item.target) - set(partition.replicas):
            assert not nodes[node].leaving
            assert nodes[node].away_s == 0
            assert nodes[node].report_age_s <= 30


@given(load=clusters())
def test_a_plan_that_was_carried_out_leaves_nothing_to_plan(load: BalanceInput) -> None:
    """So nothing moves twice, however often the planner looks."""
    plan = plan_balance(load, ON)
    assert plan_balance(carried_out(load, plan), ON).reassignments == ()


@given(load=clusters())
def test_nobody_is_more_crowded_than_needed_after_a_plan_that_waits_for_nothing(load: BalanceInput) -> None:
    up = replace(
        load,
        nodes=tuple(replace(node, leaving=False, away_s=0.0, report_age_s=0.0) for node in load.nodes),
        partitions=tuple(replace(one, target=(), leader=one.replicas[0]) for one in load.partitions),
    )
    racks = {node.node: node.rack for node in up.nodes if node.rack}
    everywhere = {rack_of(racks, node.node) for node in up.nodes}
    for one in carried_out(up, plan_balance(up, ON)).partitions:
        stand = {rack_of(racks, node) for node in one.replicas}
        assert len(stand) == min(len(one.replicas), len(everywhere))


@given(load=clusters())
def test_a_node_that_is_removed_is_emptied_by_its_own_bytes_exactly(load: BalanceInput) -> None:
    node = load.nodes[0].node
    plan = plan_removal(load, node)
    planned = {item.group for item in plan.reassignments}
    ours = [one for one in load.partitions if node in one.replicas and one.group in planned]
    assert len(ours) == len(planned)
    assert all(node not in item.target for item in plan.reassignments)
    assert moved_bytes(load, plan) == sum(one.size_bytes for one in ours)
    left = [one for one in load.partitions if node in one.replicas and one.is_movable and one.group not in planned]
    assert not left or plan.obstacles


@given(
    before=st.integers(3, 6),
    new=st.integers(1, 3),
    replicas=st.integers(1, 3),
    number=st.integers(0, 2**32),
    equal=st.booleans(),
)
@example(before=5, new=1, replicas=1, number=477, equal=False)
def test_new_nodes_get_their_share_for_little_more_bytes_than_needed(
    before: int, new: int, replicas: int, number: int, equal: bool
) -> None:
    chance = random.Random(number)
    partitions = 30 * before
    sizes = [GIB] * partitions if equal else [chance.randint(500, 1500) * MIB for _ in range(partitions)]
    few = placed(nodes_of(before), partitions, replicas, sizes)
    load = replace(few, nodes=tuple(nodes_of(before + new)))
    plan = plan_balance(load, ON)
    after, nodes = carried_out(load, plan), range(1, before + new + 1)
    mean = partitions * replicas // (before + new)
    assert spread(held(after), nodes) <= max(2, mean * 5 // 100)
    total = held_bytes(after)
    average = sum(total.values()) / len(nodes)
    assert spread(total, nodes) <= 0.15 * average
    assert spread(led(after), nodes) <= 2
    # However it is done, each node has to be sent what it has more than before.
    gained = sum((total - held_bytes(load)).values())
    assert moved_bytes(load, plan) <= 1.1 * gained
    assert plan_balance(after, ON).reassignments == ()


MOST_PLANS = 10


def above_their_mark(load: BalanceInput) -> set[int]:
    return {node.node for node in load.nodes if node.used_bytes * 100 > node.capacity_bytes * ON.disk_high}


def told_truly(load: BalanceInput, plan: BalancePlan) -> None:
    """A reason that names a giver is told of a replica that goes away from it."""
    replicas = {one.group: set(one.replicas) for one in load.partitions}
    for item in plan.reassignments:
        gone = replicas[item.group] - set(item.target)
        if "disk of node" in item.why:
            assert any(f"the disk of node {node} is" in item.why for node in gone), item
        elif "holds more" in item.why:
            assert any(f"node {node} holds" in item.why for node in gone), item
        else:
            assert gone or "prefer" in item.why, item


@given(load=clusters_on_disks())
def test_full_disks_get_nothing_and_are_relieved_by_plans_that_end(load: BalanceInput) -> None:
    for _ in range(MOST_PLANS):
        full, plan = above_their_mark(load), plan_balance(load, ON)
        told_truly(load, plan)
        after = carried_out(load, plan)
        for was, now in zip(load.partitions, after.partitions, strict=True):
            assert not full & (set(now.replicas) - set(was.replicas)), "a disk above its mark gets a replica"
        assert above_their_mark(after) <= full
        load = after
        if not plan.reassignments:
            break
    else:
        raise AssertionError(f"still something to plan: {plan.reassignments}")
    projection = Projection(load, ON)
    for node in above_their_mark(load):
        free = sum(_can_move(projection, one.group, node) for one in load.partitions if one.size_bytes)
        assert not free, f"node {node} could be relieved"
        assert any(f"the disk of node {node} is above" in told for told in plan.obstacles)


def _can_move(projection: Projection, group: int, giver: int) -> bool:
    if giver not in projection.targets[group]:
        return False
    return any(projection.may_move(group, giver, node) for node in projection.nodes)
