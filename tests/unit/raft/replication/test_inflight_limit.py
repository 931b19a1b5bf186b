"""A peer that comes back to a node that leads many groups: all have something for it, and the stream stays within
bounds."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from cluster.raft import MultiRaft, OutgoingMessage, RaftMessage, RaftOptions
from cluster.raft.replication import inflight_limit
from tests.simulation.world.disk import SimDisk
from tests.unit.raft.cluster import HandClock, ListMachine

GROUPS, ENTRIES, ENTRY_BYTES = 20, 8, 10_000
APPEND_BYTES, WINDOW_BYTES = 4 * ENTRY_BYTES, 8 * ENTRY_BYTES
MOST_BYTES = 3 * APPEND_BYTES
A_STEP_BYTES = ENTRY_BYTES
STEP_S = 0.002


class Link:
    """To the node that was away: so many bytes pass in a step."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.waiting_bytes = self.longest_bytes = 0

    def send(self, messages: list[OutgoingMessage]) -> None:
        encoded = [message.SerializeToString() for message in messages]
        self.messages += encoded
        self.waiting_bytes += sum(map(len, encoded))
        self.longest_bytes = max(self.longest_bytes, self.waiting_bytes)

    def step(self) -> Iterator[bytes]:
        left = A_STEP_BYTES
        while self.messages and left > 0:
            message = self.messages.popleft()
            self.waiting_bytes -= len(message)
            left -= len(message)
            yield message


class Cluster:
    """Node 1 leads everything; node 3 is slow to reach from there."""

    def __init__(self, *, eager: bool) -> None:
        self.clock, self.link = HandClock(), Link()
        options = RaftOptions(max_append_bytes=APPEND_BYTES, window_bytes=WINDOW_BYTES, eager_appends=eager)
        self.away = False
        self._arriving: list[tuple[int, int, bytes]] = []
        self.multirafts = {
            node: MultiRaft(node, SimDisk(), self.clock, random.Random(node), self._sender(node), options)
            for node in (1, 2, 3)
        }
        self.multirafts[1].room.waiting_bytes = lambda node: self.link.waiting_bytes if node == 3 else 0
        for node, multiraft in self.multirafts.items():
            for group in range(1, GROUPS + 1):
                multiraft.open_group(group, [1, 2, 3], ListMachine(), preferred=1)
            for peer in self.multirafts.keys() - {node}:
                multiraft.peer_up(peer)

    def _sender(self, node: int) -> Callable[[int, list[OutgoingMessage]], None]:
        def send(peer: int, messages: list[OutgoingMessage]) -> None:
            if self.away and 3 in (node, peer):
                return
            if (node, peer) == (1, 3):
                self.link.send(messages)
            else:
                self._arriving += [(node, peer, message.SerializeToString()) for message in messages]

        return send

    def until(self, condition: Callable[[], bool], most_steps: int = 20_000) -> None:
        for _ in range(most_steps):
            if condition():
                return
            arriving, self._arriving = self._arriving, []
            arriving += [(1, 3, message) for message in self.link.step()]
            for sender, receiver, message in arriving:
                self.multirafts[receiver].deliver(sender, [RaftMessage.FromString(message)])
            for multiraft in self.multirafts.values():
                if multiraft.has_work or multiraft.next_deadline() <= self.clock.now:
                    turn = multiraft.turn()
                    if turn is not None:
                        multiraft.release(turn)
            self.clock.now += STEP_S
        raise AssertionError("it did not come to that")


@pytest.mark.parametrize("eager", [False, True], ids=["after the sync", "before the sync"])
def test_what_all_groups_together_have_for_a_peer_that_returns_stays_within_bounds_and_arrives(
    monkeypatch: pytest.MonkeyPatch, eager: bool
) -> None:
    monkeypatch.setattr(inflight_limit, "MAX_WAITING_BYTES", MOST_BYTES)
    cluster = Cluster(eager=eager)
    leaders = [cluster.multirafts[1].groups[group] for group in range(1, GROUPS + 1)]
    cluster.until(lambda: all(group.ready for group in leaders))
    cluster.away = True
    for node in (1, 2):
        cluster.multirafts[node].peer_down(3)
    for group in leaders:
        for _ in range(ENTRIES):
            group.propose(b"\0" + bytes(ENTRY_BYTES), lambda _: None)
    cluster.until(lambda: all(group.commit_index == group.last_index for group in leaders))

    cluster.away = False
    cluster.link.longest_bytes = 0
    for node in (1, 2):
        cluster.multirafts[node].peer_up(3)
    cluster.until(lambda: all(group.match_index(3) == group.last_index for group in leaders))
    heartbeats_bytes = GROUPS * 200
    assert MOST_BYTES <= cluster.link.longest_bytes < MOST_BYTES + 1.1 * APPEND_BYTES + heartbeats_bytes
    assert len({group.term for group in leaders}) == 1, "nobody was deposed meanwhile"
