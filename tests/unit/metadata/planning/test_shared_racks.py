"""Targets that operators name: refused only where replicas share a rack, and a node of another one is free."""

from __future__ import annotations

import pytest

from cluster.metadata.planning import BalanceInput, SharedRack, shared_rack
from tests.unit.metadata.planning.loads import GIB, ON, cluster, nodes_of, with_node

RACKS = {1: "a", 2: "a", 3: "b", 4: "c", 5: "a"}


def at(*replicas: int, racks: dict[int, str] | None = None) -> BalanceInput:
    return cluster(nodes_of(racks or RACKS), [replicas], GIB)


def found(load: BalanceInput, *target: int) -> SharedRack | None:
    return shared_rack(load, ON, 1, target)


def free(load: BalanceInput, *target: int) -> list[int]:
    shared = found(load, *target)
    return [] if shared is None else [node for node, _ in shared.free]


def test_the_rack_and_the_nodes_that_are_free_are_named() -> None:
    assert found(at(1, 3), 1, 2) == SharedRack("a", (1, 2), ((3, "b"), (4, "c")))


def test_two_of_three_share_a_rack_where_there_are_two_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert free(at(1, 2, 3, racks=racks), 1, 4, 3) == []
    racks[5] = "a"
    assert free(at(1, 2, 3, racks=racks), 1, 2, 5) == [3, 4]


def test_a_node_that_names_no_rack_is_one_of_its_own() -> None:
    assert free(at(1, 3, racks={1: "a", 2: "a", 3: "b", 9: ""}), 1, 2) == [3, 9]
    assert free(at(1, 2, racks=dict.fromkeys(range(1, 5), "")), 3, 4) == []


def test_what_shares_a_rack_already_may_change_its_order_and_its_other_replicas() -> None:
    assert free(at(1, 2, 3), 2, 1, 3) == []
    assert free(at(1, 2, 3), 1, 2, 4) == []
    assert free(at(1, 2, 3), 1, 5, 3) == [4], "a replica that moves can as well move there"


@pytest.mark.parametrize(
    "changes",
    [
        {"away_s": 1.0},
        {"leaving": True},
        {"report_age_s": 31.0},
        {"capacity_bytes": 100 * GIB, "used_bytes": 80 * GIB},
    ],
    ids=["away", "leaving", "silent", "full"],
)
def test_a_node_that_cannot_take_the_replica_is_not_free(changes: dict[str, float]) -> None:
    assert free(with_node(at(1, 3), 4, **changes), 1, 2) == [3]


def test_a_node_gives_its_replica_up_if_its_disk_is_full() -> None:
    load = with_node(at(1, 3), 4, away_s=1.0)
    assert free(with_node(load, 3, capacity_bytes=100 * GIB, used_bytes=85 * GIB), 1, 2) == [3]
    assert free(with_node(load, 3, capacity_bytes=100 * GIB, used_bytes=86 * GIB), 1, 2) == []


def test_a_partition_that_is_no_more_shares_nothing() -> None:
    assert shared_rack(at(1, 3), ON, 2, (1, 2)) is None
