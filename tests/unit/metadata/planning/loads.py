"""Clusters for tests of the planner, and what becomes of them when a plan is carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from cluster.metadata.placement import place
from cluster.metadata.planning import BalanceInput, BalancePlan, NodeLoad, PartitionLoad
from cluster.metadata.types import BalanceSettings

MIB = 1 << 20
GIB = 1 << 30
ON = BalanceSettings(balance="on")


def cluster(
    nodes: Sequence[NodeLoad], replicas: Sequence[Sequence[int]], sizes: Sequence[int] | int = MIB
) -> BalanceInput:
    """A cluster with a partition for each entry of `replicas`, led by its preferred leader."""
    of_all = [sizes] * len(replicas) if isinstance(sizes, int) else sizes
    return BalanceInput(
        tuple(nodes),
        tuple(
            PartitionLoad(group, f"trades/{group}", tuple(members), size_bytes=size, leader=members[0])
            for group, (members, size) in enumerate(zip(replicas, of_all, strict=True), 1)
        ),
    )


def nodes_of(racks: Mapping[int, str] | int) -> list[NodeLoad]:
    named = racks if isinstance(racks, Mapping) else dict.fromkeys(range(1, racks + 1), "")
    return [NodeLoad(node, rack) for node, rack in named.items()]


def with_node(load: BalanceInput, node: int, **changes: object) -> BalanceInput:
    told = tuple(replace(one, **changes) if one.node == node else one for one in load.nodes)  # type: ignore[arg-type]
    return replace(load, nodes=told)


def with_partition(load: BalanceInput, group: int, **changes: object) -> BalanceInput:
    told = tuple(
        replace(one, **changes) if one.group == group else one  # type: ignore[arg-type]
        for one in load.partitions
    )
    return replace(load, partitions=told)


def carried_out(load: BalanceInput, plan: BalancePlan) -> BalanceInput:
    """The cluster after a plan: replicas, versions, leaders and bytes on disks."""
    targets = {item.group: item.target for item in plan.reassignments}
    disks: Counter[int] = Counter()
    partitions = []
    for one in load.partitions:
        target = targets.get(one.group, one.replicas)
        disks.update(dict.fromkeys(set(target) - set(one.replicas), one.size_bytes))
        disks.subtract(dict.fromkeys(set(one.replicas) - set(target), one.size_bytes))
        version = one.configuration_version + (target != one.replicas)
        leader = None if one.leader is None else target[0]
        partitions.append(replace(one, replicas=target, configuration_version=version, leader=leader))
    nodes = [replace(node, used_bytes=node.used_bytes + disks[node.node]) for node in load.nodes]
    return BalanceInput(tuple(nodes), tuple(partitions))


def moved_bytes(load: BalanceInput, plan: BalancePlan) -> int:
    of_group = {one.group: one for one in load.partitions}
    return sum(
        of_group[item.group].size_bytes * len(set(item.target) - set(of_group[item.group].replicas))
        for item in plan.reassignments
    )


def held(load: BalanceInput) -> Counter[int]:
    return Counter(node for one in load.partitions for node in one.replicas)


def held_bytes(load: BalanceInput) -> Counter[int]:
    total: Counter[int] = Counter()
    for one in load.partitions:
        total.update(dict.fromkeys(one.replicas, one.size_bytes))
    return total


def led(load: BalanceInput) -> Counter[int]:
    return Counter(one.replicas[0] for one in load.partitions)


def spread(counts: Counter[int], nodes: Sequence[int]) -> int:
    return max(counts[node] for node in nodes) - min(counts[node] for node in nodes)


@st.composite
def clusters(draw: st.DrawFn) -> BalanceInput:
    """Any small cluster: nodes of any kind, replicas anywhere, some partitions being moved or without a leader."""
    count = draw(st.integers(2, 7))
    racks = {node: draw(st.sampled_from(["", "a", "b", "c"])) for node in range(1, count + 1)}
    nodes = []
    for node, rack in racks.items():
        leaving = draw(st.sampled_from([False] * 6 + [True]))
        away_s = draw(st.sampled_from([0.0] * 8 + [5.0, 2000.0]))
        age_s = draw(st.sampled_from([1.0] * 8 + [31.0]))
        nodes.append(NodeLoad(node, rack, leaving, 0, 0, away_s, age_s))
    partitions = []
    for group in range(1, draw(st.integers(1, 30)) + 1):
        members = draw(st.permutations(range(1, count + 1)))[: draw(st.integers(1, min(3, count)))]
        others = draw(st.permutations(range(1, count + 1)))[: len(members)]
        kind = draw(st.sampled_from(["sound"] * 8 + ["moving", "leaderless"]))
        partitions.append(
            PartitionLoad(
                group,
                f"log/{group}",
                tuple(members),
                draw(st.integers(1, 9)),
                tuple(others) if kind == "moving" else (),
                draw(st.sampled_from([0, MIB, 50 * MIB, GIB])),
                None if kind == "leaderless" else members[0],
            )
        )
    return BalanceInput(tuple(nodes), tuple(partitions))


@st.composite
def clusters_on_disks(draw: st.DrawFn) -> BalanceInput:
    """A cluster that is up, whose disks hold at least what its replicas take; some are above their mark."""
    count = draw(st.integers(2, 6))
    racks = {node: draw(st.sampled_from(["", "", "a", "b"])) for node in range(1, count + 1)}
    members = st.permutations(range(1, count + 1))
    replicas = [draw(members)[: draw(st.integers(1, min(3, count)))] for _ in range(draw(st.integers(1, 20)))]
    sizes = [draw(st.sampled_from([0, MIB, 100 * MIB, GIB, 3 * GIB])) for _ in replicas]
    load = cluster(nodes_of(racks), replicas, sizes)
    for node, size in ((node, held_bytes(load)[node]) for node in range(1, count + 1)):
        others = draw(st.sampled_from([0, 0, GIB]))
        percent = draw(st.sampled_from([10, 50, 74, 80, 84, 86, 95]))
        load = with_node(
            load, node, capacity_bytes=max(GIB, (size + others) * 100 // percent), used_bytes=size + others
        )
    return load


def placed(nodes: Sequence[NodeLoad], partitions: int, replicas: int, sizes: Sequence[int] | int = MIB) -> BalanceInput:
    """A cluster whose partitions lie where they are placed when they are made."""
    racks = {node.node: node.rack for node in nodes if node.rack}
    return cluster(nodes, place(partitions, replicas, [node.node for node in nodes], {}, {}, racks), sizes)
