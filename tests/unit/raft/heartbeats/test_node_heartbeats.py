"""What two nodes that lead groups for each other say to each other, and when."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from cluster.raft import OutgoingMessage, RaftMessage, RaftOptions
from cluster.raft.heartbeats.node_heartbeats import DIFFERENCES, UNLIKE, NodeHeartbeats
from cluster.raft.multiraft import Send
from cluster.raft.raft_pb2 import NodeHeartbeat, NodeHeartbeatReply
from tests.unit.raft.cluster import ListMachine, RaftStage

OPTIONS = RaftOptions()
PERIOD_S = OPTIONS.heartbeat_s
STEP_S = 0.001
BEAT_S = 1000.0
"""A moment at which all nodes beat."""
OF_A, OTHER_OF_A, OF_B = 11, 12, 21
TERM = 3


class Listener:
    """A group that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def speak_again(self, node: int, now: float) -> None:
        self.told.append("speak again")

    def doubt_leader(self, now: float) -> None:
        self.told.append("doubt")

    def trust_leader(self) -> None:
        self.told.append("trust")

    def rouse(self, now: float) -> None:
        self.told.append("rouse")


class Node:
    """Half of a pair: its frames, each with all that a turn says to the other node."""

    def __init__(self, number: int, other: int, seed: int) -> None:
        self.number, self.other = number, other
        self.groups = {group: Listener() for group in (OF_A, OTHER_OF_A, OF_B)}
        self.heartbeats = NodeHeartbeats(random.Random(seed), OPTIONS, self.groups, self._emit)
        self.frames: list[list[RaftMessage]] = []
        self._frame: list[RaftMessage] = []

    def _emit(self, node: int, message: OutgoingMessage) -> None:
        assert node == self.other
        self._frame.append(RaftMessage.FromString(message.SerializeToString()))

    def turn(self, now: float, *arrived: RaftMessage) -> list[RaftMessage]:
        """The order is that of `MultiRaft`: input first, then what is due."""
        self._frame = []
        for message in arrived:
            self.heartbeats.receive(self.other, message, now)
        if self.heartbeats.next_at <= now:
            self.heartbeats.run(now)
        if self._frame:
            self.frames.append(self._frame)
        return self._frame

    def leads(self, group: int, now: float) -> None:
        self.heartbeats.claim(self.other, group, TERM, now)

    def follows(self, group: int, now: float) -> None:
        self.heartbeats.rest(self.other, group, TERM, now)


class Pair:
    """Each leads a group in which the other rests. A message takes a step."""

    def __init__(self) -> None:
        self.a, self.b = Node(1, 2, seed=1), Node(2, 1, seed=2)
        self.now = BEAT_S + PERIOD_S / 2
        self.cut: set[int] = set()  # nodes whose frames get lost
        self._arriving: list[tuple[Node, list[RaftMessage]]] = []
        for leader, follower, group in ((self.a, self.b, OF_A), (self.b, self.a, OF_B)):
            leader.leads(group, self.now)
            follower.follows(group, self.now)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            arriving, self._arriving = self._arriving, []
            for node, peer in ((self.a, self.b), (self.b, self.a)):
                said = node.turn(self.now, *(m for receiver, frame in arriving if receiver is node for m in frame))
                if said and node.number not in self.cut:
                    self._arriving.append((peer, said))
            self.now += STEP_S


def kinds(frame: list[RaftMessage]) -> list[str]:
    return [message.WhichOneof("body") or "" for message in frame]


def answers(frame: list[RaftMessage]) -> list[NodeHeartbeatReply]:
    return [message.node_heartbeat_reply for message in frame if message.HasField("node_heartbeat_reply")]


def beats(frame: list[RaftMessage]) -> list[NodeHeartbeat]:
    return [message.node_heartbeat for message in frame if message.HasField("node_heartbeat")]


@pytest.fixture
def a() -> Node:
    """It leads a group, and has sent its first heartbeat."""
    node = Node(1, 2, seed=1)
    node.leads(OF_A, BEAT_S - STEP_S)
    node.turn(BEAT_S)
    return node


@pytest.fixture
def b() -> Node:
    """It leads a group, rests in another one, and has sent its first heartbeat just before that of `a` comes."""
    node = Node(2, 1, seed=2)
    node.leads(OF_B, BEAT_S - STEP_S)
    node.follows(OF_A, BEAT_S - STEP_S)
    node.turn(BEAT_S)
    return node


ARRIVAL_S = BEAT_S + STEP_S
NEXT_BEAT_S = BEAT_S + PERIOD_S


def of(node: Node) -> RaftMessage:
    """Its newest heartbeat."""
    return next(m for frame in reversed(node.frames) for m in frame if m.HasField("node_heartbeat"))


def test_an_answer_leaves_in_the_frame_of_a_heartbeat() -> None:
    pair = Pair()
    pair.run(3 * PERIOD_S)
    for node in (pair.a, pair.b):
        node.frames.clear()
    pair.run(10 * PERIOD_S)
    for node in (pair.a, pair.b):
        frames = [kinds(frame) for frame in node.frames]
        assert frames == [["node_heartbeat", "node_heartbeat_reply"]] * 10
        assert node.groups[OF_A].told == node.groups[OF_B].told == []


def test_it_answers_the_newest_heartbeat(a: Node, b: Node) -> None:
    assert b.turn(ARRIVAL_S, of(a)) == []
    a.turn(NEXT_BEAT_S)
    frame = b.turn(NEXT_BEAT_S, of(a))
    (answer,) = answers(frame)
    (beat,) = beats([of(a)])
    assert beat.sequence == 2
    assert (answer.asked_by, answer.sequence, answer.differs, list(answer.left)) == (beat.life, 2, False, [])
    a.turn(NEXT_BEAT_S + STEP_S, *frame)
    assert a.heartbeats.answered_at(2) == NEXT_BEAT_S + STEP_S
    assert answers(b.turn(NEXT_BEAT_S + PERIOD_S)) == [], "it was given"


@pytest.mark.parametrize("late_s", [0.0, STEP_S, PERIOD_S / 2, PERIOD_S - STEP_S])
def test_it_waits_for_one_period_at_most(a: Node, b: Node, late_s: float) -> None:
    """Right before the own heartbeat it does not wait at all, right after it for nearly the whole period."""
    b.turn(NEXT_BEAT_S - STEP_S)
    arrived_at = NEXT_BEAT_S + late_s
    waited_s = 0.0
    frame = b.turn(arrived_at, of(a)) if late_s == 0.0 else b.turn(NEXT_BEAT_S) and b.turn(arrived_at, of(a))
    while not answers(frame):
        waited_s += STEP_S
        frame = b.turn(arrived_at + waited_s)
    assert kinds(frame) == ["node_heartbeat", "node_heartbeat_reply"]
    assert waited_s == pytest.approx(0.0 if late_s == 0.0 else PERIOD_S - late_s, abs=1.5 * STEP_S)


def test_a_node_that_leads_nothing_there_answers_at_once(a: Node) -> None:
    follower = Node(2, 1, seed=2)
    follower.follows(OF_A, BEAT_S)
    assert kinds(follower.turn(ARRIVAL_S, of(a))) == ["node_heartbeat_reply"]


def test_a_node_that_leads_nothing_there_any_more_answers_at_once(a: Node, b: Node) -> None:
    b.heartbeats.disclaim(1, OF_B, tell=False)
    assert b.turn(NEXT_BEAT_S) == []
    assert kinds(b.turn(NEXT_BEAT_S + STEP_S, of(a))) == ["node_heartbeat_reply"]


@pytest.mark.parametrize("tell", [False, True])
def test_an_answer_that_waits_for_a_heartbeat_leaves_without_it_when_there_is_none(
    a: Node, b: Node, *, tell: bool
) -> None:
    assert b.turn(ARRIVAL_S, of(a)) == []
    b.heartbeats.disclaim(1, OF_B, tell=tell)
    frame = b.turn(NEXT_BEAT_S)
    assert kinds(frame) == ["node_heartbeat"] * tell + ["node_heartbeat_reply"]
    assert b.turn(NEXT_BEAT_S + PERIOD_S) == []


def test_a_difference_is_told_at_once_when_it_is_the_same_again(a: Node, b: Node) -> None:
    b.follows(OTHER_OF_A, BEAT_S)
    assert answers(b.turn(ARRIVAL_S, of(a))) == []
    a.turn(NEXT_BEAT_S)
    (answer,) = answers(b.turn(NEXT_BEAT_S - STEP_S, of(a)))
    assert answer.differs


@pytest.mark.parametrize("group", [OTHER_OF_A, OF_A], ids=["that rests here only", "that does not rest here any more"])
def test_after_several_heartbeats_with_the_same_difference_both_begin_anew(group: int) -> None:
    pair = Pair()
    if group == OTHER_OF_A:
        pair.b.follows(group, pair.now)
    else:
        pair.b.heartbeats.stir(1, group, tell=False)
    pair.run((DIFFERENCES - 1) * PERIOD_S)
    assert [told for node in (pair.a, pair.b) for one in node.groups.values() for told in one.told] == []
    pair.run(1.5 * PERIOD_S)
    assert pair.a.groups[OF_A].told == ["speak again"]
    assert pair.b.groups[OTHER_OF_A if group == OTHER_OF_A else OF_B].told == ["rouse"] * (group == OTHER_OF_A)
    assert pair.b.groups[OF_A].told == ["rouse"] * (group == OTHER_OF_A)


def test_while_other_groups_come_and_go_at_each_heartbeat_nobody_begins_anew_for_long() -> None:
    """Each digest is wrong by what changed while it was under way: that alone is no reason to wake all the others."""
    pair = Pair()

    def changes(heartbeats: int) -> None:
        for number in range(heartbeats):
            pair.b.follows(1000 + number, pair.now)
            pair.b.heartbeats.stir(1, 999 + number, tell=False)
            pair.run(PERIOD_S)

    changes(UNLIKE)
    assert pair.a.groups[OF_A].told == pair.b.groups[OF_A].told == []
    changes(DIFFERENCES + 1)
    assert pair.b.groups[OF_A].told == ["rouse"], "something may be lost among all that"
    assert pair.a.groups[OF_A].told == ["speak again"]


def test_what_has_left_is_told_at_once(a: Node, b: Node) -> None:
    b.follows(OTHER_OF_A, BEAT_S)
    b.heartbeats.stir(1, OTHER_OF_A, tell=True)
    (answer,) = answers(b.turn(ARRIVAL_S, of(a)))
    assert not answer.differs
    assert list(answer.left) == [OTHER_OF_A]


def test_what_leaves_while_an_answer_waits_is_in_it(a: Node, b: Node) -> None:
    assert b.turn(ARRIVAL_S, of(a)) == []
    b.heartbeats.stir(1, OF_A, tell=True)
    frame = b.turn(NEXT_BEAT_S)
    (answer,) = answers(frame)
    assert not answer.differs, "it did not when the heartbeat came"
    assert list(answer.left) == [OF_A]
    a.turn(NEXT_BEAT_S + STEP_S, *frame)
    assert a.groups[OF_A].told == ["speak again"]


def test_an_answer_at_once_takes_the_place_of_one_that_waits(a: Node, b: Node) -> None:
    assert b.turn(ARRIVAL_S, of(a)) == []
    a.turn(NEXT_BEAT_S)
    b.heartbeats.stir(1, OF_A, tell=True)
    (answer,) = answers(b.turn(NEXT_BEAT_S - STEP_S, of(a)))
    assert answer.sequence == 2
    assert kinds(b.turn(NEXT_BEAT_S)) == ["node_heartbeat"]


def test_after_a_silence_the_first_answer_is_given_at_once(a: Node, b: Node) -> None:
    """The leaders at the other node may be about to give up."""
    b.turn(ARRIVAL_S, of(a))
    doubted_at = ARRIVAL_S + OPTIONS.election_min_s
    for number in range(round(OPTIONS.election_min_s / STEP_S) + 2):
        b.turn(ARRIVAL_S + number * STEP_S)
    assert b.groups[OF_A].told == ["doubt"]
    a.turn(doubted_at)
    b.frames.clear()
    assert kinds(b.turn(doubted_at + 2 * STEP_S, of(a))) == ["node_heartbeat_reply"]
    assert b.groups[OF_A].told == ["doubt", "trust"]
    a.turn(doubted_at + PERIOD_S)
    assert b.turn(doubted_at + 3 * STEP_S, of(a)) == [], "the next one waits again"


def test_an_answer_to_an_earlier_process_says_nothing_to_a_later_one(a: Node, b: Node) -> None:
    b.turn(ARRIVAL_S, of(a))
    restarted = Node(1, 2, seed=7)
    restarted.leads(OF_A, ARRIVAL_S)
    late = b.turn(NEXT_BEAT_S)
    assert len(answers(late)) == 1
    restarted.turn(NEXT_BEAT_S)
    restarted.turn(NEXT_BEAT_S + STEP_S, *late)
    assert restarted.heartbeats.answered_at(2) == ARRIVAL_S, "since when it counts"


def test_the_heartbeat_of_a_later_process_is_answered_and_no_other(a: Node, b: Node) -> None:
    b.turn(ARRIVAL_S, of(a))
    restarted = Node(1, 2, seed=7)
    restarted.leads(OF_A, ARRIVAL_S)
    restarted.turn(NEXT_BEAT_S)
    assert b.turn(NEXT_BEAT_S - STEP_S, of(restarted)) == []
    (answer,) = answers(b.turn(NEXT_BEAT_S))
    assert answer.asked_by == of(restarted).node_heartbeat.life != of(a).node_heartbeat.life


def test_a_node_that_no_longer_hears_counts_for_one_period_more() -> None:
    pair = Pair()
    pair.run(3.3 * PERIOD_S)
    cut_at = pair.now
    pair.cut.add(1)
    pair.run(3 * PERIOD_S)
    assert pair.a.heartbeats.answered_at(2) - cut_at <= PERIOD_S + STEP_S


def test_a_node_that_is_gone_is_noticed_as_soon_as_one_that_answers_at_once() -> None:
    pair = Pair()
    pair.run(3.3 * PERIOD_S)
    gone_at = pair.now
    pair.cut.add(2)
    pair.run(OPTIONS.quorum_check_s - PERIOD_S)
    assert pair.a.groups[OF_A].told == []
    pair.run(2 * PERIOD_S)
    assert "speak again" in pair.a.groups[OF_A].told
    assert pair.a.heartbeats.answered_at(2) <= gone_at


def test_a_node_that_stood_still_hears_before_it_blames(a: Node) -> None:
    """One answer waits at the other node when it stops. When it goes on it has as many heartbeats before it blames
    anybody as if answers came at once."""
    awake_at = BEAT_S + 2 * OPTIONS.quorum_check_s + STEP_S
    for number in range(4):
        a.turn(awake_at + number * PERIOD_S)
    assert a.groups[OF_A].told == []
    a.turn(awake_at + 4 * PERIOD_S)
    assert a.groups[OF_A].told == ["speak again"]


# ---- whole nodes


def stage_of_pairs(options: RaftOptions = OPTIONS) -> RaftStage:
    """Three nodes, and each leads groups in which both others rest."""
    stage = RaftStage(options=options)
    stage.elect(1)
    for group in range(100, 109):
        for node in stage.ids:
            stage.multirafts[node].open_group(group, stage.ids, ListMachine(), preferred=1 + group % 3)
    stage.until(lambda: are_quiet(stage) and len(leaders(stage)) == 3, seconds=20.0)
    stage.run(1.0)
    return stage


def are_quiet(stage: RaftStage) -> bool:
    return all(group.is_quiet for multiraft in stage.multirafts.values() for group in multiraft.groups.values())


def leaders(stage: RaftStage) -> set[int | None]:
    return {group.leader for group in stage.multirafts[1].groups.values()}


def terms(stage: RaftStage) -> list[int]:
    return [group.term for multiraft in stage.multirafts.values() for group in multiraft.groups.values()]


def test_idle_nodes_send_each_other_one_frame_in_a_period() -> None:
    stage = stage_of_pairs()
    frames: list[tuple[int, int]] = []
    for node, multiraft in stage.multirafts.items():
        multiraft._send = watched(node, multiraft._send, frames)
    stage.run(10 * PERIOD_S)
    counts = Counter(frames)
    assert len(counts) == 6, "each node and each other one"
    assert set(counts.values()) == {10}


def watched(node: int, send: Send, frames: list[tuple[int, int]]) -> Send:
    def watching(peer: int, messages: list[OutgoingMessage]) -> None:
        frames.append((node, peer))
        send(peer, messages)

    return watching


def test_no_leader_gives_up_while_answers_wait() -> None:
    """Nor with the shortest quorum check that there may be."""
    with pytest.raises(ValueError, match="quorum_check_s must be longer than 2"):
        RaftOptions(quorum_check_s=2 * PERIOD_S)
    stage = stage_of_pairs(RaftOptions(quorum_check_s=2 * PERIOD_S + 5 * STEP_S))
    before = terms(stage)
    for _ in range(5):
        for node in stage.ids:
            for group in stage.multirafts[node].groups.values():
                if group.is_leader:
                    group.propose(b"\0x", lambda outcome: None)
            stage.run(0.37)
        stage.run(2.0)
        assert are_quiet(stage)
    assert terms(stage) == before


def test_of_a_node_that_is_gone_for_good_nothing_is_left(b: Node) -> None:
    b.heartbeats.forget(1, ARRIVAL_S)
    assert (b.groups[OF_A].told, b.groups[OF_B].told) == (["rouse"], ["speak again"])
    assert b.turn(NEXT_BEAT_S) == []
    b.heartbeats.forget(1, ARRIVAL_S)  # repeated
