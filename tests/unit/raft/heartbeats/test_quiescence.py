"""Groups without news are quiet, and nobody has to come by for them to have a leader again."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest

from cluster.raft import NotLeader, RaftMessage, RaftOptions
from cluster.raft.heartbeats.node_heartbeats import DIFFERENCES, NODE_MESSAGES, UNANSWERED
from tests.unit.raft.cluster import GROUP, ListMachine, RaftStage

IDLE_S = 2.5
"""Until an idle group has been asked, and rests."""
OPTIONS = RaftOptions()
LED_AGAIN_S = 2 * OPTIONS.election_max_s
OTHERS = range(100, 120)


def quiet_stage(options: RaftOptions | None = None) -> RaftStage:
    stage = RaftStage(options=options)
    stage.elect(1)
    stage.propose(1, "a")
    stage.run(IDLE_S)
    assert all(stage.group(node).is_quiet for node in stage.ids)
    return stage


def of_groups(stage: RaftStage) -> Iterator[tuple[int, int, RaftMessage]]:
    return (sent for sent in stage.sent if sent[2].group != NODE_MESSAGES)


def is_served(stage: RaftStage, *nodes: int) -> bool:
    """One of them leads, and all of them know."""
    leaders = {stage.group(node).leader for node in nodes}
    return len(leaders) == 1 and leaders <= set(nodes) and any(stage.group(node).ready for node in nodes)


def test_an_idle_group_says_nothing_and_keeps_its_leader() -> None:
    stage = quiet_stage()
    term = stage.group(1).term
    stage.sent.clear()
    stage.run(30.0)
    assert not list(of_groups(stage))
    beats = 30.0 / OPTIONS.heartbeat_s
    assert len(stage.sent) <= 2 * 2 * (beats + 1), "one message to each other node, and its answer"
    assert [stage.group(node).leader for node in stage.ids] == [1, 1, 1]
    assert stage.group(1).term == term
    assert stage.group(1).status()["quiet"]


def test_a_proposal_wakes_it_at_once_and_it_falls_silent_again() -> None:
    stage = quiet_stage()
    outcomes = stage.propose(1, "b")
    assert stage.until(lambda: bool(outcomes), seconds=0.05) < 0.05
    stage.until(lambda: all(stage.machines[node].applied == [b"a", b"b"] for node in stage.ids), seconds=0.1)
    assert not stage.group(2).is_quiet
    stage.run(IDLE_S)
    assert all(stage.group(node).is_quiet for node in stage.ids)


def test_a_read_is_confirmed_by_those_who_rest() -> None:
    stage = quiet_stage()
    answers: list[int | None] = []
    stage.group(1).read_index(answers.append)
    stage.until(lambda: bool(answers), seconds=0.05)
    assert answers[0] is not None
    stage.isolate(1)
    stage.run(0.01)
    stage.group(1).read_index(answers.append)
    stage.until(lambda: len(answers) == 2, seconds=LED_AGAIN_S)
    assert answers[1] is None, "nobody confirms it, whatever the heartbeats said a moment ago"


def test_a_leader_whose_node_falls_silent_is_replaced_without_a_client() -> None:
    stage = quiet_stage()
    stage.stop(1, noticed=False)
    stage.until(lambda: is_served(stage, 2, 3), seconds=LED_AGAIN_S)


def test_a_leader_whose_connection_breaks_is_replaced_at_once() -> None:
    stage = quiet_stage()
    stage.stop(1)
    stage.until(lambda: is_served(stage, 2, 3), seconds=0.4)


def test_a_leader_that_hears_nobody_gives_up_although_it_is_heard() -> None:
    stage = quiet_stage()
    stage.cut |= {(2, 1), (3, 1)}
    stage.until(lambda: not stage.group(1).is_leader, seconds=LED_AGAIN_S)
    stage.until(lambda: is_served(stage, 2, 3), seconds=LED_AGAIN_S)


def test_a_leader_that_nobody_hears_is_replaced() -> None:
    stage = quiet_stage()
    stage.cut |= {(1, 2), (1, 3)}
    stage.until(lambda: is_served(stage, 2, 3), seconds=LED_AGAIN_S)
    stage.until(lambda: not stage.group(1).is_leader, seconds=LED_AGAIN_S)


def test_a_leader_that_loses_one_follower_after_the_other() -> None:
    """The one that was cut off first is awake and asks; the second may not stay loyal in its sleep."""
    stage = quiet_stage()
    stage.cut |= {(1, 2), (2, 1)}
    stage.run(5.0)
    assert stage.group(1).is_leader
    assert stage.group(3).leader == 1
    stage.cut |= {(1, 3), (3, 1)}
    stage.until(lambda: is_served(stage, 2, 3), seconds=LED_AGAIN_S)


def test_who_was_away_disturbs_nobody_and_rests_again() -> None:
    stage = quiet_stage()
    term = stage.group(1).term
    stage.isolate(3)
    stage.run(5.0)
    assert stage.group(1).is_leader
    assert stage.group(2).is_quiet
    stage.heal()
    stage.run(2 * IDLE_S)
    assert (stage.group(1).term, stage.leader) == (term, 1)
    assert all(stage.group(node).is_quiet for node in stage.ids)


def test_with_a_node_away_the_others_are_quiet_and_it_catches_up() -> None:
    stage = quiet_stage()
    stage.stop(3)
    stage.propose(1, "b")
    stage.run(IDLE_S)
    stage.sent.clear()
    stage.run(5.0)
    assert not list(of_groups(stage))
    assert stage.group(1).is_leader
    stage.start(3)
    stage.until(lambda: stage.machines[3].applied == [b"a", b"b"], seconds=0.5)
    stage.run(IDLE_S)
    assert all(stage.group(node).is_quiet for node in stage.ids)


def test_a_follower_that_restarts_unnoticed_is_spoken_to() -> None:
    stage = quiet_stage()
    term = stage.group(1).term
    stage.stop(2, noticed=False)
    stage.start(2)
    stage.until(lambda: stage.group(2).leader == 1, seconds=OPTIONS.election_min_s)
    stage.run(IDLE_S)
    assert stage.group(2).is_quiet
    assert stage.group(1).term == term


def test_leaders_that_restart_unnoticed_do_not_live_on_in_their_followers_sleep() -> None:
    stage = quiet_stage()
    stage.stop(1, noticed=False)
    stage.start(1)
    stage.until(lambda: is_served(stage, 1, 2, 3), seconds=LED_AGAIN_S)


def test_leadership_is_handed_over_in_a_quiet_group() -> None:
    stage = quiet_stage()
    stage.group(1).transfer(3)
    stage.until(lambda: is_served(stage, 1, 2, 3) and stage.group(3).is_leader, seconds=0.3)
    stage.run(IDLE_S)
    assert all(stage.group(node).is_quiet for node in stage.ids)


def test_a_member_that_lost_its_memory_gets_its_vote_back() -> None:
    """It takes an answer of each other member, so nobody may rest meanwhile."""
    stage = quiet_stage()
    stage.wipe(3)
    stage.until(lambda: all(stage.group(node).has_vote(3) for node in stage.ids), seconds=2.0)
    stage.run(IDLE_S)
    assert all(stage.group(node).is_quiet for node in stage.ids)


def test_what_was_asked_to_be_trimmed_goes_when_an_absent_member_is_given_up() -> None:
    stage = quiet_stage(RaftOptions(trim_wait_s=4.0))
    stage.group(1).trim(stage.group(1).applied_index)
    stage.run(IDLE_S)
    stage.stop(3)
    stage.propose(1, "b", "c")
    stage.run(0.1)
    wanted = stage.group(1).applied_index
    stage.group(1).trim(wanted)
    stage.run(3.0)
    assert stage.group(1).first_index <= wanted, "the absent one may still come back for it"
    stage.until(lambda: stage.group(1).first_index == wanted + 1, seconds=3.0)


@pytest.fixture
def many() -> RaftStage:
    """Beside GROUP, which node 1 leads, a few that all lie on the same nodes and are led by any of them."""
    stage = RaftStage()
    stage.elect(1)
    for group in OTHERS:
        for node in stage.ids:
            stage.multirafts[node].open_group(group, stage.ids, ListMachine(), preferred=1 + group % 3)
    stage.run(2 * IDLE_S)
    assert all(group.is_quiet for node in stage.ids for group in stage.multirafts[node].groups.values())
    return stage


def led(stage: RaftStage) -> dict[int, tuple[int, int | None]]:
    groups = stage.multirafts[2].groups
    return {number: (groups[number].term, groups[number].leader) for number in OTHERS}


def test_a_stuck_replica_loses_its_leadership_although_its_node_lives(many: RaftStage) -> None:
    many.may_quarantine = True
    before = led(many)
    many.multirafts[1].quarantine(GROUP, "a test says so")
    many.until(lambda: is_served(many, 2, 3), seconds=LED_AGAIN_S)
    assert led(many) == before, "the other groups of the node notice nothing"


def test_it_loses_it_too_when_nobody_hears_that_it_is_stuck(many: RaftStage) -> None:
    many.may_quarantine = True
    before = led(many)
    many.cut |= {(1, 2), (1, 3)}
    many.multirafts[1].quarantine(GROUP, "a test says so")
    many.run(1.5 * OPTIONS.heartbeat_s)
    many.heal()
    patience = (DIFFERENCES + UNANSWERED) * OPTIONS.heartbeat_s + LED_AGAIN_S
    many.until(lambda: is_served(many, 2, 3), seconds=patience)
    assert led(many) == before, "the other groups of the node keep their leaders"
    many.run(IDLE_S)
    assert all(many.multirafts[node].groups[group].is_quiet for node in (1, 2, 3) for group in OTHERS)


def test_one_busy_group_wakes_no_other(many: RaftStage) -> None:
    for round_number in range(50):
        many.propose(1, str(round_number))
        many.run(0.1)
    many.sent.clear()
    many.propose(1, "last")
    many.run(1.0)
    assert {message.group for _, _, message in of_groups(many)} == {GROUP}


def test_a_node_that_goes_takes_no_group_with_it(many: RaftStage) -> None:
    many.stop(2, noticed=False)

    def all_led() -> bool:
        groups = [many.multirafts[node].groups[group] for group in OTHERS for node in (1, 3)]
        return all(group.leader in (1, 3) for group in groups)

    many.until(all_led, seconds=LED_AGAIN_S)


def test_a_node_that_stood_still_for_a_moment_costs_no_messages_of_groups(many: RaftStage) -> None:
    before = led(many)
    many.sent.clear()
    for _ in range(3):
        many.hold(1, 2)
        many.run(OPTIONS.election_min_s + 0.06)
        many.release_link(1, 2)
        many.run(1.0)
    assert led(many) == before
    woken = {message.group for _, _, message in of_groups(many)}
    assert len(woken) < len(OTHERS), "only whose deadline came before the next heartbeat"


def test_a_term_of_which_one_member_heard_alone() -> None:
    """It has no leader in that term, and whose heartbeats it hears leads another."""
    stage = quiet_stage()
    term = stage.group(1).term
    campaign = RaftMessage(group=GROUP, version=1, term=term + 1)
    campaign.vote_request.transfer = True
    stage.inject(3, 2, campaign)
    stage.run(0.01)
    assert stage.group(2).term == term + 1
    stage.until(lambda: is_served(stage, 1, 2, 3), seconds=2 * LED_AGAIN_S)
    stage.run(IDLE_S)
    assert all(stage.group(node).is_quiet for node in stage.ids)


def test_a_late_agreement_is_none() -> None:
    """The follower agreed to the first question, was spoken to since, and has not answered the second one."""
    stage = quiet_stage()
    links = stage.group(1)._links
    links.speaks(2)
    links.asks(2, 1000, stage.clock.now)
    links.answered(2, 999, quiesced=True, now=stage.clock.now)
    assert not links.is_quiet(2)
    links.answered(2, 1000, quiesced=True, now=stage.clock.now)
    assert links.is_quiet(2)


def test_a_heartbeat_that_cannot_be_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stage = quiet_stage()
    lie = RaftMessage(group=NODE_MESSAGES)
    lie.node_heartbeat.life, lie.node_heartbeat.sequence = 1, (1 << 62) + 1
    lie.node_heartbeat.left.append(GROUP)
    stage.inject(1, 2, lie)
    stage.run(0.01)
    assert stage.group(2).is_quiet
    assert "a heartbeat of node 1 is refused" in caplog.text


def test_who_lies_about_what_rests_is_only_spoken_to() -> None:
    """Another life, another digest, groups that are not there: whoever rested hears its leader itself again."""
    stage = quiet_stage()
    term = stage.group(1).term
    for number in range(1, 30):
        lie = RaftMessage(group=NODE_MESSAGES)
        lie.node_heartbeat.life, lie.node_heartbeat.sequence, lie.node_heartbeat.quiet = 1 + number % 3, number, number
        lie.node_heartbeat.left.extend([GROUP, GROUP + 1])
        stage.inject(1, 2, lie)
        stage.run(0.05)
    stage.run(IDLE_S)
    assert (stage.leader, stage.group(1).term) == (1, term)
    assert all(stage.group(node).is_quiet for node in stage.ids)


def test_heartbeats_of_the_past_keep_no_leader_alive() -> None:
    stage = quiet_stage()
    beats = [sent for sent in stage.sent if sent[2].HasField("node_heartbeat") and sent[0] == 1]
    stage.stop(1, noticed=False)
    began = stage.clock.now
    while not is_served(stage, 2, 3):
        assert stage.clock.now - began < LED_AGAIN_S
        for sent in beats[-2:]:
            stage.inject(*sent)
        stage.run(0.05)


def test_a_lost_order_to_campaign_leaves_nobody_without_a_leader(many: RaftStage) -> None:
    """Its leader has told it something, so it rests no more; and all the others do."""
    many.cut |= {(1, 2)}
    many.group(1).transfer(2)
    many.run(0.5 * OPTIONS.heartbeat_s)
    many.heal()
    many.run(2 * OPTIONS.transfer_timeout_s + LED_AGAIN_S)
    assert {many.group(node).leader for node in many.ids} == {1}
    many.run(2 * IDLE_S)
    assert all(many.group(node).is_quiet for node in many.ids)


@pytest.mark.parametrize("seed", range(12))
def test_lost_messages_leave_nobody_asleep_under_nobody(many: RaftStage, seed: int) -> None:
    """Links fail at random for a while, under a few proposals; then everything is led, and falls silent again."""
    randomness = random.Random(seed)
    pairs = [(a, b) for a in many.ids for b in many.ids if a != b]
    for _ in range(100):
        many.cut = {pair for pair in pairs if randomness.random() < 0.3}
        for node in many.ids:
            group = many.multirafts[node].groups[randomness.choice(OTHERS)]
            if randomness.random() < 0.2 and group.ready:
                with contextlib.suppress(NotLeader):  # it hands over
                    group.propose(b"\0x", lambda outcome: None)
        many.run(randomness.choice((0.02, 0.1, 0.3)))
    many.heal()
    many.run(2 * LED_AGAIN_S)
    for group in OTHERS:
        members = [many.multirafts[node].groups[group] for node in many.ids]
        assert sum(member.is_leader for member in members) == 1
        assert len({(member.term, member.leader) for member in members}) == 1
    members = [many.multirafts[node].groups[group] for node in many.ids for group in OTHERS]
    many.until(lambda: all(member.is_quiet for member in members), seconds=60.0)  # once nobody hands over any more
