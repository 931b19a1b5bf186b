"""When a node is cut off: by whom it is in touch with, and how long it has not been."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from cluster.rpc import options
from cluster.rpc.raft_transport.minority_detection import MinorityDetector


class Story:
    """A node with peers; time goes by in ticks."""

    def __init__(self, *peers: int) -> None:
        self.changes = 0
        self.now_s = 100.0
        self.contact = MinorityDetector(peers, self._changed)
        self.contact.begin(self.now_s)
        self.go(options.TICK_S, peers)

    def _changed(self) -> None:
        self.changes += 1

    def go(self, seconds: float, in_touch: Collection[int], late_s: float = 0.0) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s - 1e-9:
            self.now_s += options.TICK_S
            self.contact.look(in_touch.__contains__, self.now_s, late_s)


ENOUGH_S = options.CUT_OFF_S + 2 * options.TICK_S


def test_without_a_majority_for_long_enough_a_node_is_cut_off_and_says_so() -> None:
    story = Story(2, 3)
    assert not story.contact.cut_off
    story.go(10.0, [2])
    assert not story.contact.cut_off, "with one of two others it is a majority"
    story.go(options.TICK_S, [])
    assert not story.contact.cut_off, "not at once"
    told = story.changes
    story.go(ENOUGH_S, [])
    assert story.contact.cut_off
    assert story.changes == told + 1
    story.go(options.TICK_S, [3])
    assert not story.contact.cut_off
    assert story.contact.in_touch(3)
    assert not story.contact.in_touch(2)


def test_links_that_come_and_go_cut_nobody_off() -> None:
    story = Story(2, 3)
    for _ in range(20):
        story.go(options.CUT_OFF_S, [])
        story.go(options.TICK_S, [2, 3])
        assert not story.contact.cut_off


@pytest.mark.parametrize("count", [1, 2, 4])
def test_who_is_away_must_be_a_majority_without_this_node(count: int) -> None:
    """Of two nodes, the other one can do nothing alone; of four, the two others of a half neither."""
    peers = range(2, count + 1)
    story = Story(*peers)
    story.go(10.0, peers[: (count - 1) // 2] if count == 4 else [])
    assert not story.contact.cut_off


def test_of_five_nodes_two_are_cut_off_together() -> None:
    story = Story(2, 3, 4, 5)
    story.go(10.0, [2, 3])
    assert not story.contact.cut_off
    story.go(ENOUGH_S, [2])
    assert story.contact.cut_off


def test_a_node_that_stood_still_gives_its_peers_the_time_back() -> None:
    story = Story(2, 3)
    story.go(options.TICK_S, [])
    story.now_s += 5.0
    story.contact.look([].__contains__, story.now_s, 5.0)
    assert not story.contact.cut_off
    story.go(ENOUGH_S, [])
    assert story.contact.cut_off


def test_a_node_that_starts_allows_its_peers_more_time() -> None:
    contact = MinorityDetector([2, 3], lambda: None)
    contact.begin(0.0)
    contact.look([].__contains__, options.FIRST_TOUCH_S)
    assert not contact.cut_off
    contact.look([].__contains__, options.FIRST_TOUCH_S, late_s=options.FIRST_TOUCH_S)
    assert not contact.cut_off
    contact.look([].__contains__, options.FIRST_TOUCH_S + ENOUGH_S)
    assert contact.cut_off


def test_how_long_a_peer_was_not_heard_of_is_counted_without_the_time_that_this_node_stood_still() -> None:
    story = Story(2, 3)
    assert story.contact.lost_s(3, story.now_s) == 0.0
    story.go(2.0, [2])
    assert story.contact.lost_s(3, story.now_s) == pytest.approx(2.0 - options.TICK_S)
    story.go(options.TICK_S, [2], late_s=options.TICK_S)
    assert story.contact.lost_s(3, story.now_s) == pytest.approx(2.0 - options.TICK_S)
    story.go(options.TICK_S, [2, 3])
    assert story.contact.lost_s(3, story.now_s) == 0.0


def test_a_node_that_starts_misses_nobody_at_once() -> None:
    contact = MinorityDetector((2, 3), lambda: None)
    contact.begin(100.0)
    contact.look(lambda _: False, 100.0 + options.FIRST_TOUCH_S)
    assert contact.lost_s(2, 100.0 + options.FIRST_TOUCH_S) == 0.0
    assert contact.lost_s(2, 101.0 + options.FIRST_TOUCH_S) == pytest.approx(1.0)
    assert contact.lost_s(9, 101.0) == 0.0, "this node itself"
