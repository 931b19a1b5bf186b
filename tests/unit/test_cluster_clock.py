"""What time a node replicates: its own, unless a majority's clocks say that it is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from node.cluster_clock import MAX_CLOCK_OFFSET_MS, ClusterClock
from node.startup.persisted_clock import NOTE_EVERY_MS, ClockMemory
from node.storage import NodeIdentity, Store
from tests.unit.rpc.support import cluster_of, until

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


class Clocks:
    """Of one node of several; the others tell theirs as offsets from the truth."""

    def __init__(self, nodes: int, own_ms: int = 0, floor_ms: int | None = None) -> None:
        self.own_ms = own_ms
        self.passed_s = 0.0
        self.clock = ClusterClock(nodes, lambda: self.true_ms + self.own_ms, lambda: 5000.0 + self.passed_s, floor_ms)

    @property
    def true_ms(self) -> int:
        return NOW_MS + int(self.passed_s * 1000)

    def hear(self, *offsets_ms: int) -> ClusterClock:
        for node, offset_ms in enumerate(offsets_ms, start=2):
            self.clock.heard(node, self.true_ms + offset_ms)
        return self.clock


@pytest.mark.parametrize("own_ms", [5 * DAY_MS, -5 * DAY_MS, MAX_CLOCK_OFFSET_MS + 100])
def test_one_of_three_that_is_wrong_stamps_the_time_of_the_others(own_ms: int) -> None:
    clock = Clocks(3, own_ms).hear(0, 40)
    assert clock.is_off
    assert abs(clock.now_ms() - NOW_MS) <= 40


@pytest.mark.parametrize("wrong_ms", [5 * DAY_MS, -5 * DAY_MS])
def test_those_that_are_right_go_by_their_own_clock_beside_one_that_is_wrong(wrong_ms: int) -> None:
    clock = Clocks(3, 25).hear(0, wrong_ms)
    assert not clock.is_off
    assert clock.now_ms() == NOW_MS + 25


def test_small_differences_change_nothing() -> None:
    clock = Clocks(3, 20_000).hear(0, 5)
    assert not clock.is_off
    assert clock.now_ms() == NOW_MS + 20_000


def test_of_two_the_earlier_one_counts() -> None:
    ahead, behind = Clocks(2, DAY_MS).hear(0), Clocks(2, 0).hear(DAY_MS)
    assert ahead.is_off
    assert ahead.now_ms() == NOW_MS
    assert not behind.is_off


def test_a_wrong_majority_is_followed() -> None:
    clock = Clocks(3, 0).hear(DAY_MS, DAY_MS)
    assert clock.is_off
    assert clock.now_ms() == NOW_MS + DAY_MS


def test_without_a_majority_the_clocks_that_are_heard_count_and_nobody_is_called_off() -> None:
    alone = Clocks(1, DAY_MS).clock
    assert not alone.is_off
    assert alone.now_ms() == NOW_MS + DAY_MS
    clocks = Clocks(5, DAY_MS)
    clock = clocks.hear(0)
    assert not clock.is_off
    assert clock.now_ms() == NOW_MS, "it may lead a partition with that one other node"
    assert clocks.hear(0, 0).is_off


def test_a_jump_of_the_own_clock_shows_at_once_and_its_correction_too() -> None:
    clocks = Clocks(3)
    clock = clocks.hear(0, 0)
    clocks.passed_s += 3600.0  # nothing heard meanwhile
    assert not clock.is_off
    clocks.own_ms = 30 * DAY_MS
    assert clock.is_off
    assert clock.now_ms() == clocks.true_ms
    clocks.own_ms = 0
    assert not clock.is_off


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_node_that_hears_nobody_deletes_by_the_time_that_it_lives_through(nodes: int) -> None:
    clocks = Clocks(nodes, floor_ms=NOW_MS - 1000)
    clocks.own_ms = 30 * DAY_MS
    assert clocks.clock.lived_ms() == NOW_MS - 1000
    clocks.passed_s += 3600.0
    assert clocks.clock.lived_ms() == clocks.true_ms - 1000
    clocks.own_ms = -DAY_MS
    assert clocks.clock.lived_ms() == clocks.true_ms - DAY_MS, "never later than what it would stamp"


def test_a_leap_after_the_start_deletes_nothing_either() -> None:
    clocks = Clocks(1)
    clocks.passed_s += 10.0
    clocks.own_ms = 30 * DAY_MS
    assert clocks.clock.lived_ms() == clocks.true_ms


def test_after_a_week_of_rest_a_majority_that_agrees_is_believed() -> None:
    clocks = Clocks(3, floor_ms=NOW_MS - 7 * DAY_MS)
    assert clocks.clock.lived_ms() == NOW_MS - 7 * DAY_MS
    assert clocks.hear(40).lived_ms() == NOW_MS
    clocks.own_ms = 30 * DAY_MS
    clocks.passed_s += 60.0
    assert clocks.clock.lived_ms() == clocks.true_ms, "the other one's word goes on, and so does what was known by it"


def test_two_that_do_not_agree_are_no_majority() -> None:
    clocks = Clocks(3, 30 * DAY_MS, floor_ms=NOW_MS - 1000)
    assert clocks.hear(29 * DAY_MS).lived_ms() == NOW_MS - 1000


@pytest.mark.parametrize("nodes", [2, 3])
def test_whose_clock_is_behind_what_was_lived_is_wrong_though_only_one_other_is_heard(nodes: int) -> None:
    floor_ms = NOW_MS - 3_600_000
    right = Clocks(nodes, 0, floor_ms).hear(-30 * DAY_MS)
    assert not right.is_off
    assert right.now_ms() == NOW_MS
    wrong = Clocks(nodes, -30 * DAY_MS, floor_ms).hear(0)
    assert wrong.is_off
    assert wrong.now_ms() == NOW_MS


def test_a_majority_that_agrees_counts_more_than_what_was_lived() -> None:
    clocks = Clocks(3, 0, floor_ms=NOW_MS + 30 * DAY_MS)
    clock = clocks.hear(0, 30 * DAY_MS)
    assert not clock.is_off
    assert clock.lived_ms() == NOW_MS
    clocks.passed_s += 1.0
    assert clock.lived_ms() == clocks.true_ms


def test_the_time_that_was_lived_is_noted_for_the_next_process(tmp_path: Path) -> None:
    with Store(tmp_path, NodeIdentity("dev", 1)) as disk:
        memory = ClockMemory(disk)
        assert memory.noted_ms is None
        memory.note(NOW_MS)
        memory.note(NOW_MS + NOTE_EVERY_MS - 1)
        assert memory.noted_ms == NOW_MS
        memory.note(NOW_MS + NOTE_EVERY_MS)
    with Store(tmp_path, NodeIdentity("dev", 1)) as disk:
        memory = ClockMemory(disk)
        assert memory.noted_ms == NOW_MS + NOTE_EVERY_MS
        memory.note(NOW_MS - DAY_MS)
        assert memory.noted_ms == NOW_MS - DAY_MS


async def test_nodes_tell_each_other_their_clocks() -> None:
    told: list[tuple[int, int]] = []

    def prepare(node: object) -> None:
        network = node.network  # type: ignore[attr-defined]
        network._wall_ms = lambda: NOW_MS + network.self_id
        network._inbound._on_clock = lambda peer, wall_ms: told.append((peer, wall_ms))

    async with cluster_of(1, 2, prepare=prepare):
        await until(lambda: set(told) >= {(1, NOW_MS + 1), (2, NOW_MS + 2)}, "both clocks")
        first = len(told)
        await until(lambda: len(told) >= first + 4, "them again")
        await asyncio.sleep(0)
