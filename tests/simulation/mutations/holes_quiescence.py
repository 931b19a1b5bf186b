"""Holes of quiet groups: a leader that is gone, and nobody who notices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from math import inf
from unittest import mock

from cluster.raft.elections.vote_recovery import VoteRecovery
from cluster.raft.quiescence.node_heartbeats import NodeHeartbeats, _Followed
from cluster.raft.quiescence.quiet_links import QuietLinks


@contextlib.contextmanager
def silent_nodes_are_trusted() -> Iterator[None]:
    """Who rests goes on resting when the node of its leader is heard no more."""

    def trust(heartbeats: NodeHeartbeats, followed: _Followed, now: float) -> None:
        followed.deadline = inf

    with mock.patch.object(NodeHeartbeats, "_silent", trust):
        yield


@contextlib.contextmanager
def a_wiped_member_wakes_nobody() -> Iterator[None]:
    """Its vote comes back by answers of all the others, who rest and give none."""
    under_way = mock.patch.object(VoteRecovery, "is_under_way", new=False)
    with under_way, mock.patch.object(QuietLinks, "wake_all"):
        yield
