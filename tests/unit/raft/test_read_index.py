"""Reads that a leader may answer, and leaders that may not answer any more."""

from __future__ import annotations

import pytest

from cluster.raft import NotLeader, RaftOptions
from tests.unit.raft.cluster import RaftStage


def led_by_one(nodes: int = 3) -> RaftStage:
    stage = RaftStage(nodes)
    stage.elect(1)
    stage.run(0.05)
    return stage


def read(stage: RaftStage, node: int) -> list[int | None]:
    answers: list[int | None] = []
    stage.group(node).read_index(answers.append)
    return answers


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_a_read_is_answered_with_what_is_committed_when_it_comes(nodes: int) -> None:
    stage = RaftStage(1) if nodes == 1 else led_by_one(nodes)
    stage.until(lambda: stage.group(1).ready)
    stage.propose(1, "a")
    stage.run(0.02)
    answers = read(stage, 1)
    assert answers == [], "nothing is known before a majority has answered"
    stage.run(0.02)
    assert answers == [stage.group(1).applied_index]


def test_followers_send_readers_to_the_leader() -> None:
    stage = led_by_one()
    with pytest.raises(NotLeader) as refused:
        read(stage, 2)
    assert refused.value.leader == 1


def test_reads_of_one_turn_cost_one_round() -> None:
    stage = led_by_one()
    stage.run(0.2)
    before = len(stage.sent)
    answers = [answer for _ in range(100) for answer in [read(stage, 1)]]
    stage.until(lambda: all(answers))
    appends = [m for s, _, m in stage.sent[before:] if s == 1 and m.HasField("append")]
    assert len(appends) <= 4, "two followers are asked once, and a heartbeat may fall in between"


def test_a_new_leader_answers_when_its_own_term_is_committed() -> None:
    stage = led_by_one()
    stage.propose(1, "a")
    stage.run(0.02)
    for node in (1, 3):
        stage.hold(node, 2)
    group = stage.group(2)
    group._core._SyncObj__transferInProgress = True
    group._core.election_deadline = 0.0
    stage.multirafts[2].mark_dirty(group)
    stage.run(0.01)
    for node in (1, 3):
        stage.release_link(node, 2)
        stage.hold(node, 2)
    stage.until(lambda: stage.group(2).is_leader)
    answers = read(stage, 2)
    stage.run(0.05)
    assert answers == [], "its no-op is not known to be committed"
    for node in (1, 3):
        stage.release_link(node, 2)
    stage.until(lambda: bool(answers))
    assert answers[0] is not None
    assert stage.machines[2].applied == [b"a"]


def test_an_isolated_leader_stops_answering_within_two_election_timeouts() -> None:
    stage = led_by_one()
    stage.isolate(1)
    answers = read(stage, 1)
    bound = 2 * RaftOptions().election_max_s
    stage.until(lambda: bool(answers), seconds=bound)
    assert answers == [None]
    assert not stage.group(1).is_leader
    with pytest.raises(NotLeader):
        read(stage, 1)


def test_a_deposed_leader_answers_nothing_old() -> None:
    """It still believes that it leads while another leader has already acknowledged a newer event."""
    stage = led_by_one()
    stage.isolate(1)
    stage.elect(2)
    outcomes = stage.propose(2, "newer")
    stage.run(0.05)
    assert outcomes
    assert stage.group(1).is_leader, "it has not noticed"
    answers = read(stage, 1)
    stage.run(0.1)
    stage.heal()
    stage.until(lambda: bool(answers))
    assert answers == [None]


def test_answers_to_appends_sent_before_the_read_prove_nothing() -> None:
    stage = led_by_one()
    stage.hold(2, 1)
    stage.hold(3, 1)
    stage.propose(1, "a")
    stage.run(0.02)
    answers = read(stage, 1)
    for link in ((1, 2), (1, 3)):
        stage.cut.add(link)
    stage.release_link(2, 1)
    stage.release_link(3, 1)
    stage.run(0.1)
    assert stage.machines[1].applied == [b"a"], "the old answers did arrive"
    assert answers == []


def test_a_leader_that_sends_but_does_not_hear_is_replaced_in_time() -> None:
    for seed_of_time in range(20):
        stage = led_by_one()
        stage.run(seed_of_time * 0.017)
        stage.cut = {(2, 1), (3, 1)}
        took_s = stage.until(lambda stage=stage: stage.group(2).is_leader or stage.group(3).is_leader)
        assert took_s < 1.5


def test_who_waits_for_an_index_is_told_when_it_is_applied() -> None:
    stage = led_by_one()
    told: list[int | None] = []
    stage.group(2).when_applied(stage.group(1).last_index + 1, told.append)
    stage.run(0.3)
    assert told == []
    stage.propose(1, "a")
    stage.until(lambda: bool(told))
    assert stage.machines[2].applied == [b"a"]


def test_closing_a_group_answers_its_readers() -> None:
    stage = led_by_one()
    answers = read(stage, 1)
    told: list[int | None] = []
    stage.group(1).when_applied(10**6, told.append)
    stage.multirafts[1].close_group(7, erase=False)
    assert (answers, told) == ([None], [None])
