"""Leaderships that have to go: not tried again before the last try is over, and longer each time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from cluster.metadata import MetadataMachine, MetadataView
from cluster.raft.membership.changes import HandLeadershipOver
from cluster.raft.membership.configuration import founding
from node.members.metadata_members import MetadataMembers
from node.movement.transfer_patience import FIRST_PATIENCE_S, LONGEST_PATIENCE_S, RETRY_S, TransferPatience


class LedGroup:
    """A group whose leader is to vote no more."""

    def __init__(self) -> None:
        self.configuration = founding([1, 2, 3])
        self.near = frozenset({1, 2, 3})
        self.tries: list[tuple[int, float | None]] = []

    def match_index(self, node: int) -> int:
        return {2: 7, 3: 9}[node]

    def transfer(self, node: int, patience_s: float | None = None) -> None:
        self.tries.append((node, patience_s))

    def next_step(self, _: object) -> HandLeadershipOver:
        return HandLeadershipOver(frozenset({2, 3}))


def test_each_try_waits_for_the_last_one_and_takes_longer() -> None:
    group: Any = LedGroup()
    patience, tries = TransferPatience(), frozenset({2, 3})
    now, given = 0.0, []
    while len(given) < 6:
        if patience.hand_over(group, tries, now) is not None:
            given.append(now)
        now += 0.1
    assert all(later - earlier >= RETRY_S for earlier, later in itertools.pairwise(given))
    assert [node for node, _ in group.tries] == [3] * 6, "it has the most of the log"
    patiences = [patience_s for _, patience_s in group.tries]
    assert patiences == [min(FIRST_PATIENCE_S * 2**times, LONGEST_PATIENCE_S) for times in range(6)]


async def test_the_leadership_of_the_metadata_is_handed_over_with_patience() -> None:
    group: Any = LedGroup()
    none: Any = SimpleNamespace()
    members = MetadataMembers(1, group, MetadataView(MetadataMachine()), none, none, none, lambda _: None)
    members._step()
    members._step()
    assert group.tries == [(3, FIRST_PATIENCE_S)]
    group.configuration = founding([1, 2])
    members._step()
    assert group.tries == [(3, FIRST_PATIENCE_S)], "the same change goes on"
