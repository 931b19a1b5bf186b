"""What a dry run shows is what happens, in any cluster: each move, and each byte; or it is refused as a whole."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from cluster.metadata import PartitionRecord, finish_move, leave_node, register_node, set_balance, set_rack
from cluster.raft.membership.configuration import Replica
from cluster.rpc import LoadReport
from node.admin.errors import AdminRequestFailed
from tests.unit.balancing.seen_cluster import GIB, MIB, SeenCluster

CLUSTERS = 200
IN_A_TEST = 20
MOST_MOVES = 1000

Happened = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A group, the nodes that have a replica now, and those that have none any more."""


@dataclass
class DrawnCluster:
    """A random cluster, and what its operator asks for: another balance, or that a node is emptied or replaced."""

    cluster: SeenCluster
    wish: dict[str, int]
    sizes: dict[int, int]


def drawn(chance: random.Random) -> DrawnCluster:
    cluster, founders = SeenCluster(chance.randint(3, 5)), 0
    cluster.do(set_balance("on"))
    racks = chance.randint(1, 4)
    founders = len(cluster.view.nodes)
    for number in range(chance.randint(1, 3)):
        cluster.create(f"log{number}", partitions=chance.randint(1, 12), replicas=chance.randint(1, 3))
    for node in range(founders + 1, founders + chance.randint(1, 3)):
        cluster.do(register_node(node, f"10.0.0.{node}:7101", {"default": f"10.0.0.{node}:5672"}))
    nodes = sorted(cluster.view.nodes)
    if chance.random() < 0.5:
        for node in nodes:
            cluster.do(set_rack(node, f"rack{node % racks}"))
    sizes = {one.group: chance.randint(0, 4000) * MIB for log in cluster.view.logs.values() for one in log.partitions}
    for node in nodes:
        led = {group for group, record in records(cluster).items() if record.replicas[0] == node}
        report = {group: sizes[group] for group in led}
        cluster.reports[node] = LoadReport(400 * GIB, chance.randint(100, 390) * GIB, report, GIB)
    if chance.random() < 0.2:
        cluster.do(leave_node(chance.choice(nodes)))
    wish: dict[str, int] = {}
    if chance.random() < 0.5:
        wish["remove"] = chance.choice(nodes)
        if chance.random() < 0.5:
            wish["successor"] = chance.choice([node for node in nodes if node != wish["remove"]])
    return DrawnCluster(cluster, wish, sizes)


def records(cluster: SeenCluster) -> dict[int, PartitionRecord]:
    return {one.group: one for log in cluster.view.logs.values() for one in log.partitions}


def carried_out(cluster: SeenCluster) -> Counter[tuple[int, Replica | None]]:
    """Let every group do what it is asked, one move after the other. Returns the replicas that came."""
    came: Counter[tuple[int, Replica | None]] = Counter()
    for _ in range(MOST_MOVES):
        moving = [(record, record.move) for record in records(cluster).values() if record.move is not None]
        if not moving:
            return came
        for record, move in moving:
            voters = {*record.settled, *filter(None, [move.add])} - {move.remove}
            cluster.do(finish_move(record.group, move.id, move.version + 3, {one for one in voters if one}))
            came[record.group, move.add] += move.add is not None
    raise AssertionError("the moves do not end")


def changed_since(cluster: SeenCluster, shown: dict[str, Any]) -> None:
    """One of the partitions has other replicas than the plan was made for."""
    record = records(cluster)[shown["moves"][-1]["group"]]
    cluster.do(finish_move(record.group, 1, record.configuration_version + 3, set(record.settled)))


@pytest.mark.parametrize("first", range(0, CLUSTERS, IN_A_TEST))
async def test_what_is_shown_is_what_happens(first: int) -> None:
    moved = 0
    for seed in range(first, first + IN_A_TEST):
        one = drawn(random.Random(seed))
        cluster, before = one.cluster, records(one.cluster)
        shown = await cluster.admin("cluster.balance", **one.wish)
        assert records(cluster) == before, f"seed {seed}: a dry run changes nothing"
        if not shown["partitions"]:
            continue
        await cluster.admin("cluster.balance", apply=shown["digest"], **one.wish)
        came = carried_out(cluster)
        after = records(cluster)
        happened = {
            (group, tuple(sorted({*now.replicas} - {*was.replicas})), tuple(sorted({*was.replicas} - {*now.replicas})))
            for (group, was), now in zip(before.items(), after.values(), strict=True)
            if now.replicas != was.replicas
        }
        told: set[Happened] = {(m["group"], tuple(sorted(m["to"])), tuple(sorted(m["from"]))) for m in shown["moves"]}
        assert happened == told, f"seed {seed}"
        assert {m["group"]: (m["preferred"], sorted(m["replicas"])) for m in shown["moves"]} == {
            group: (after[group].preferred, sorted(after[group].replicas)) for group, _, _ in told
        }, f"seed {seed}"
        copied = sum(one.sizes[group] * count for (group, _), count in came.items())
        assert copied == shown["bytes"] == sum(m["bytes"] for m in shown["moves"]), f"seed {seed}"
        moved += sum(came.values())
    assert moved > IN_A_TEST, "the clusters have become too even to show anything"


@pytest.mark.parametrize("first", range(0, CLUSTERS, IN_A_TEST))
async def test_a_plan_for_what_has_changed_is_refused_as_a_whole(first: int) -> None:
    refused = 0
    for seed in range(first, first + IN_A_TEST):
        one = drawn(random.Random(seed))
        shown = await one.cluster.admin("cluster.balance", **one.wish)
        if not shown["partitions"]:
            continue
        changed_since(one.cluster, shown)
        before = records(one.cluster)
        with pytest.raises(AdminRequestFailed, match=f"plan {shown['digest']} cannot be carried out any more"):
            await one.cluster.admin("cluster.balance", apply=shown["digest"], **one.wish)
        assert records(one.cluster) == before, f"seed {seed}"
        refused += 1
    assert refused > IN_A_TEST // 2
