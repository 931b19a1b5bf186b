"""Placement is even whenever evenness is possible, and deterministic always."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.metadata.placement import place

nodes = st.integers(1, 7)


def counts(placed: list[tuple[int, ...]], node_ids: list[int]) -> tuple[list[int], list[int]]:
    held = Counter(node for replicas in placed for node in replicas)
    led = Counter(replicas[0] for replicas in placed)
    return [held[node] for node in node_ids], [led[node] for node in node_ids]


def loads(placed: list[tuple[int, ...]]) -> tuple[Counter[int], Counter[int]]:
    return Counter(n for replicas in placed for n in replicas), Counter(replicas[0] for replicas in placed)


def spread(values: list[int]) -> int:
    return max(values) - min(values)


@given(data=st.data(), node_count=nodes)
def test_logs_of_one_kind_are_spread_within_one_for_replicas_and_for_leaders(
    data: st.DataObject, node_count: int
) -> None:
    ids = list(range(1, node_count + 1))
    replicas = data.draw(st.integers(1, node_count))
    placed: list[tuple[int, ...]] = []
    for partitions in data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=8)):
        placed += place(partitions, replicas, ids, *loads(placed))
        held, led = counts(placed, ids)
        assert spread(held) <= 1
        assert spread(led) <= 1


@given(data=st.data(), node_count=nodes)
def test_replicas_are_distinct_and_stay_within_one_for_any_mixture_of_logs(
    data: st.DataObject, node_count: int
) -> None:
    ids = list(range(1, node_count + 1))
    placed: list[tuple[int, ...]] = []
    for _ in range(data.draw(st.integers(1, 10))):
        partitions, replicas = data.draw(st.integers(1, 9)), data.draw(st.integers(1, node_count))
        new = place(partitions, replicas, ids, *loads(placed))
        assert len(new) == partitions
        for members in new:
            assert len(members) == replicas == len(set(members))
            assert set(members) <= set(ids)
        placed += new
        assert spread(counts(placed, ids)[0]) <= 1


@given(data=st.data(), node_count=st.integers(2, 5))
def test_leaders_are_as_even_as_the_replicas_allow(data: st.DataObject, node_count: int) -> None:
    """No other choice of leaders from the same replicas has a lower sum of squares: compared with all of them."""
    ids = list(range(1, node_count + 1))
    before = {node: data.draw(st.integers(0, 4), label=f"leaders on {node}") for node in ids}
    held = {node: data.draw(st.integers(0, 4), label=f"replicas on {node}") for node in ids}
    placed = place(data.draw(st.integers(1, 4)), data.draw(st.integers(1, node_count)), ids, held, before)

    def unevenness(leaders: list[int]) -> int:
        led = Counter(leaders)
        return sum((before[node] + led[node]) ** 2 for node in ids)

    def best(rest: list[tuple[int, ...]], chosen: list[int]) -> int:
        if not rest:
            return unevenness(chosen)
        return min(best(rest[1:], [*chosen, node]) for node in rest[0])

    assert unevenness([replicas[0] for replicas in placed]) == best(placed, [])


@given(partitions=st.integers(1, 40), replicas=st.integers(1, 3))
def test_a_new_node_is_filled_first(partitions: int, replicas: int) -> None:
    old = place(60, 3, [1, 2, 3], {}, {})
    new = place(partitions, replicas, [1, 2, 3, 4], *loads(old))
    assert all(4 in members for members in new)


@given(data=st.data())
def test_the_order_in_which_nodes_are_given_does_not_matter(data: st.DataObject) -> None:
    ids = data.draw(st.permutations([1, 2, 3, 4, 5]))
    assert place(11, 3, ids, {1: 2}, {1: 2}) == place(11, 3, [1, 2, 3, 4, 5], {1: 2}, {1: 2})


@pytest.mark.parametrize(("replicas", "ids"), [(0, [1]), (2, [1]), (2, [1, 1]), (1, [])])
def test_impossible_placements_are_a_defect_of_the_caller(replicas: int, ids: list[int]) -> None:
    with pytest.raises(ValueError, match="cannot be placed"):
        place(1, replicas, ids, {}, {})


@pytest.mark.parametrize("node_count", range(1, 8))
def test_one_partition_at_a_time_is_as_even_as_many_at_once(node_count: int) -> None:
    """Placement has no choice left to chance, so this is every sequence there is, until it repeats."""
    ids = list(range(1, node_count + 1))
    for replicas in range(1, node_count + 1):
        placed: list[tuple[int, ...]] = []
        for _ in range(3 * node_count):
            placed += place(1, replicas, ids, *loads(placed))
            held, led = counts(placed, ids)
            assert spread(held) <= 1
            assert spread(led) <= 1
        assert placed == place(len(placed), replicas, ids, {}, {})


@given(data=st.data(), node_count=st.integers(1, 7))
def test_replicas_are_spread_over_racks_as_evenly_as_these_allow(data: st.DataObject, node_count: int) -> None:
    ids = list(range(1, node_count + 1))
    racks = {node: data.draw(st.sampled_from("abc"), label=f"rack of {node}") for node in ids}
    held = {node: data.draw(st.integers(0, 9), label=f"replicas on {node}") for node in ids}
    replicas = data.draw(st.integers(1, node_count))
    sizes = Counter(racks.values())
    for members in place(data.draw(st.integers(1, 6)), replicas, ids, held, {}, racks):
        assert len(set(members)) == replicas
        inside = Counter(racks[node] for node in members)
        for rack, other in itertools.permutations(sizes, 2):
            assert inside[rack] >= inside[other] - 1 or inside[rack] == sizes[rack]


@given(partitions=st.integers(1, 40), replicas=st.integers(1, 6))
def test_racks_of_one_size_are_filled_evenly(partitions: int, replicas: int) -> None:
    ids = [1, 2, 3, 4, 5, 6]
    placed = place(partitions, replicas, ids, {}, {}, {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"})
    held, led = counts(placed, ids)
    assert spread(held) <= 2  # where two nodes of a rack hold least, a partition takes one of them
    assert spread(led) <= 2


def test_a_node_without_a_rack_is_a_rack_of_its_own() -> None:
    placed = place(10, 3, [1, 2, 3, 4], {}, {}, {1: "a", 2: "a"})
    assert all({1, 2} - set(members) for members in placed)
