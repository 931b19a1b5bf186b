"""A preferred node that cannot hold the leadership is not given it again and again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from cluster.raft import RaftOptions
from tests.unit.raft.cluster import GROUP, ListMachine, RaftStage

OPTIONS = RaftOptions(prefer_after_s=0.5, prefer_retry_s=0.5)


def preferring_two(**options: float) -> RaftStage:
    stage = RaftStage(options=replace(OPTIONS, **options))
    for node in stage.ids:
        stage.stop(node)
    for node in stage.ids:
        stage.start(node, preferred=2)
    return stage


def test_each_return_of_the_leadership_doubles_the_wait() -> None:
    stage = preferring_two()
    waits: list[float] = []
    for _ in range(4):
        stage.isolate(2)
        stage.run(1.0)  # it gives up
        stage.elect(1)  # the same one takes over each time
        stage.heal()
        waits.append(stage.until(lambda: stage.leader == 2, seconds=60.0))
    assert all(later > 1.5 * earlier for earlier, later in pairwise(waits)), waits


def test_a_node_that_stores_slowly_is_not_given_the_leadership() -> None:
    stage = preferring_two()
    stage.elect(1)
    for _ in range(8):
        stage.hold(2, 1)  # its answers come when its disk is done
        stage.propose(1, "a")
        stage.run(0.35)
        stage.release_link(2, 1)
        stage.run(0.6)
        assert stage.leader == 1
    assert stage.group(1).match_index(2) == stage.group(1).last_index


def test_a_node_that_returns_gets_its_groups_back_one_after_the_other() -> None:
    """Groups beside the stage's own one, all of which prefer node 2."""
    stage = preferring_two(prefer_after_s=0.5, prefer_per_s=10.0)
    groups = range(GROUP + 1, GROUP + 21)
    for number in groups:
        for node in stage.ids:
            stage.multirafts[node].open_group(number, stage.ids, ListMachine(), preferred=2)
    stage.until(lambda: all(stage.multirafts[2].groups[number].is_leader for number in groups), 20.0)
    stage.isolate(2)
    stage.until(lambda: not any(stage.multirafts[2].groups[number].is_leader for number in groups), 5.0)
    stage.run(2.0)
    stage.heal()

    def back() -> int:
        return sum(stage.multirafts[2].groups[number].is_leader for number in groups)

    stage.until(lambda: back() > 0, 20.0)
    stage.run(0.3)
    assert 3 <= back() <= 10, "those of two leaders, ten a second each"
    stage.until(lambda: back() == len(groups), 5.0)
