"""Placement of new partitions: which nodes keep their replicas, and which of those should lead.

A pure function of the present load, so that every replica of the metadata group computes the same. The rules: the
replicas of a partition are on distinct nodes, and on distinct racks as far as there are enough; nodes with the fewest
replicas are taken first, so counts that differed by at most one still do afterwards, without racks. With them they may
differ by more, and a node that is alone in its rack has most. A node without a rack is one of its own. Leaders are then
shared out among the chosen replicas as evenly as those allow: a leadership is handed along a chain of partitions while
that takes one from a node that has two more than another.
Rejected: hashing (uneven for the handful of partitions that most logs have), and round robin per log (every log of one
partition would begin at the same node). Existing partitions are not moved: that is a command of its own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

NO_RACKS: Mapping[int, str] = MappingProxyType({})


def rack_of(racks: Mapping[int, str], node: int) -> str | int:
    """The rack of a node. A node without one is a rack of its own."""
    return racks.get(node, node)


def most_room_first(node: int, held: Mapping[int, int], led: Mapping[int, int], filled: int = 0) -> tuple[int, ...]:
    """Order in which nodes are given replicas: the least filled, then those that hold and lead the fewest."""
    return filled, held[node], led[node], node


def leader_of(members: Iterable[int], held: Mapping[int, int], led: Mapping[int, int]) -> int:
    """The member that should lead: it leads the fewest, and of such ones holds the most."""
    return min(members, key=lambda node: (led[node], -held[node], node))


def least_crowded(nodes: Iterable[int], members: Iterable[int], racks: Mapping[int, str]) -> list[int]:
    """Nodes whose racks have the fewest of the members."""
    crowd = Counter(rack_of(racks, node) for node in members)
    fewest, found = len(crowd) + crowd.total() + 1, list[int]()
    for node in nodes:
        there = crowd[rack_of(racks, node)]
        if there < fewest:
            fewest, found = there, []
        if there == fewest:
            found.append(node)
    return found


def place(
    partitions: int,
    replicas: int,
    nodes: Sequence[int],
    replica_load: Mapping[int, int],
    leader_load: Mapping[int, int],
    racks: Mapping[int, str] = NO_RACKS,
) -> list[tuple[int, ...]]:
    """Replicas of each new partition, preferred leader first. Needs 1 <= replicas <= number of nodes. `racks`: of the
    nodes that have one."""
    if not 1 <= replicas <= len(nodes) or len(set(nodes)) != len(nodes):
        raise ValueError(f"{replicas} replicas cannot be placed on nodes {list(nodes)}")
    held = {node: replica_load.get(node, 0) for node in nodes}
    led = {node: leader_load.get(node, 0) for node in nodes}
    together: dict[str | int, set[int]] = {}  # nodes of each rack
    for node in nodes:
        together.setdefault(rack_of(racks, node), set()).add(node)
    chosen: list[set[int]] = []
    leaders: list[int] = []
    for _ in range(partitions):
        leader, members = _spread(replicas, list(together.values()), held, led)
        for node in members:
            held[node] += 1
        led[leader] += 1
        chosen.append(members)
        leaders.append(leader)
    balance_leaders(chosen, leaders, led)
    return [(leader, *_after(leader, members - {leader})) for leader, members in zip(leaders, chosen, strict=True)]


def _spread(
    replicas: int, racks: Sequence[set[int]], held: Mapping[int, int], led: Mapping[int, int]
) -> tuple[int, set[int]]:
    """The leader and the members of one partition: one from each rack, then another one, until there are enough."""
    members: set[int] = set()
    while True:
        left = [rack - members for rack in racks if rack - members]
        front = [min(nodes, key=lambda node: most_room_first(node, held, led)) for nodes in left]
        if replicas - len(members) <= len(front):
            break
        members |= set(front)
    leader, others = _choose(replicas - len(members), {node: held[node] for node in front}, led)
    if members:
        leader = leader_of(members | others, held, led)
    return leader, members | others


def _choose(replicas: int, held: Mapping[int, int], led: Mapping[int, int]) -> tuple[int, set[int]]:
    """The leader and the members of one partition, from nodes of different racks."""
    most = sorted(held.values())[replicas - 1]  # what the fullest member holds when the emptiest nodes are taken
    leader = leader_of((node for node in held if held[node] <= most), held, led)
    members = {leader} | {node for node in held if held[node] < most}
    # Of those that hold the same, the ones with many leaderships fill up: those with few stay open for the next.
    others = sorted((node for node in held if held[node] == most and node != leader), key=lambda n: (-led[n], n))
    return leader, members | set(others[: replicas - len(members)])


def balance_leaders(chosen: Sequence[Collection[int]], leaders: list[int], led: dict[int, int]) -> None:
    """Hand leaderships on until no chain of hand-overs makes the counts more even. `chosen`: nodes that may lead each
    partition; `leaders`: those that do."""
    led_by: dict[int, list[int]] = {node: [] for node in led}
    for partition, leader in enumerate(leaders):
        led_by[leader].append(partition)
    while True:
        for donor in sorted(led, key=lambda node: (-led[node], node)):
            chain = _chain_from(donor, chosen, led_by, led)
            if chain:
                break
        else:
            return
        for partition, receiver in chain:
            giver = leaders[partition]
            led[giver] -= 1
            del led_by[giver][bisect_left(led_by[giver], partition)]
            leaders[partition] = receiver
            led[receiver] += 1
            insort(led_by[receiver], partition)


def _chain_from(
    donor: int, chosen: Sequence[Collection[int]], led_by: Mapping[int, Sequence[int]], led: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Hand-overs (partition, new leader) that take one leadership from `donor` to a node with at least two fewer."""
    came_by: dict[int, tuple[int, int] | None] = {donor: None}  # node -> (partition handed to it, its giver)
    frontier = [donor]
    while frontier:
        giver = frontier.pop(0)
        for partition in led_by[giver]:
            for receiver in sorted(node for node in chosen[partition] if node not in came_by):
                came_by[receiver] = (partition, giver)
                if led[receiver] <= led[donor] - 2:
                    return _unwind(receiver, came_by)
                frontier.append(receiver)
    return []


def _unwind(end: int, came_by: Mapping[int, tuple[int, int] | None]) -> list[tuple[int, int]]:
    chain = []
    node = end
    while (step := came_by[node]) is not None:
        partition, giver = step
        chain.append((partition, node))
        node = giver
    return chain


def _after(leader: int, others: set[int]) -> list[int]:
    """Order the others cyclically from the leader: when a node falls, its leaderships fall to different ones."""
    return sorted(node for node in others if node > leader) + sorted(node for node in others if node < leader)
