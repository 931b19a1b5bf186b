"""Holes of quiet groups: a leader that is gone, and nobody who notices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from math import inf
from unittest import mock

from cluster.raft.elections.vote_recovery import VoteRecovery
from cluster.raft.heartbeats.node_heartbeats import NodeHeartbeats, _Followed, _Led
from cluster.raft.heartbeats.quiescence import QuietLinks
from cluster.raft.interfaces import NodeId


@contextlib.contextmanager
def silent_nodes_are_trusted() -> Iterator[None]:
    """Who rests goes on resting when the node of its leader is heard no more."""

    def trust(heartbeats: NodeHeartbeats, followed: _Followed, now: float) -> None:
        followed.deadline = inf

    with mock.patch.object(NodeHeartbeats, "_silent", trust):
        yield


@contextlib.contextmanager
def answers_wait_for_ever() -> Iterator[None]:
    """What waits for the own heartbeat never leaves with it: nodes that rest under each other take each other for
    silent, and leaders give up whose followers heard them."""
    beat = NodeHeartbeats._beat

    def beat_alone(heartbeats: NodeHeartbeats, node: NodeId, led: _Led, now: float) -> None:
        followed = heartbeats._followed.get(node)
        if followed is not None:
            followed.owes_answer = False
        beat(heartbeats, node, led, now)

    with mock.patch.object(NodeHeartbeats, "_beat", beat_alone):
        yield


@contextlib.contextmanager
def a_wiped_member_wakes_nobody() -> Iterator[None]:
    """Its vote comes back by answers of all the others, who rest and give none."""
    under_way = mock.patch.object(VoteRecovery, "is_under_way", new=False)
    with under_way, mock.patch.object(QuietLinks, "wake_all"):
        yield
