"""Leaders whose metadata lag: when they are asked, for what, and what they do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.metadata import MoveRecord, PartitionRecord
from cluster.raft.membership.configuration import Replica
from cluster.rpc import AwaitedMove
from node.movement.lagging_leaders import ASK_AFTER_S, MAX_ASKED, LaggingLeaders, hand_over_if_lagging


class FakeGroup:
    """A group as its leader sees it; group 0 is that of the metadata."""

    def __init__(self, *, applied: int = 0, matched: Mapping[int, int] | None = None, leads: bool = True) -> None:
        self.applied_index = applied
        self.matched = dict(matched or {})
        self.is_leader = leads
        self.members = self.voters = tuple(self.matched)
        self.given_to: list[int] = []

    def match_index(self, node: int) -> int:
        return self.matched[node]

    def has_vote(self, node: int) -> bool:
        return True

    may_lead = has_vote

    @property
    def is_handing_over(self) -> bool:
        return bool(self.given_to)

    def transfer(self, node: int) -> None:
        self.given_to.append(node)


class Asking:
    """The metadata leader, node 1, and nodes that it asks."""

    def __init__(self) -> None:
        self.metadata = FakeGroup(applied=50, matched={1: 50, 2: 40, 3: 50, 4: 50})
        self.leaders: dict[int, int | None] = {}
        self.down: set[int] = set()
        self.asked: list[tuple[int, dict[int, tuple[int, int]], list[int]]] = []
        multiraft: Any = SimpleNamespace(node_id=1, groups={0: self.metadata})
        peers: Any = self
        self.lagging = LaggingLeaders(multiraft, peers)

    def leader_of(self, group: int) -> int | None:
        return self.leaders.get(group)

    def is_up(self, node: int) -> bool:
        return node not in self.down

    def client(self, node: int) -> Any:
        async def hand_over(moves: Iterable[AwaitedMove], successors: Iterable[int]) -> list[int]:
            told = {move.group: (move.index, move.leaving) for move in moves}
            self.asked.append((node, told, list(successors)))
            return []

        return SimpleNamespace(hand_over=hand_over)

    async def look(self, moving: list[PartitionRecord], now: float) -> None:
        self.lagging.look(moving, now)
        for _ in range(3):
            await asyncio.sleep(0)


def _moving(group: int, *, cancel_asked: bool = False) -> PartitionRecord:
    move = MoveRecord(group + 100, 1, Replica(4, group + 100), Replica(3, 1), cancel_asked=cancel_asked)
    return PartitionRecord("0", group, (1, 2, 3), move=move)


async def test_a_leader_is_asked_when_it_has_had_its_time() -> None:
    asking = Asking()
    asking.leaders = {7: 2, 8: 3, 9: 1, 10: None}
    moving = [_moving(7), _moving(8), _moving(9), _moving(10)]
    await asking.look(moving, 0.0)
    asking.metadata.applied_index = 60
    await asking.look(moving, ASK_AFTER_S - 0.1)
    assert not asking.asked
    await asking.look(moving, ASK_AFTER_S)
    assert asking.asked == [(2, {7: (50, 3)}, [1, 3, 4]), (3, {8: (50, 3)}, [1, 4])]
    asking.down = {4}
    await asking.look(moving, 1.5 * ASK_AFTER_S)
    assert len(asking.asked) == 2, "it is asked again too soon"
    await asking.look(moving, 2 * ASK_AFTER_S)
    assert asking.asked[2:] == [(2, {7: (50, 3)}, [1, 3]), (3, {8: (50, 3)}, [1])]


async def test_a_successor_is_as_far_as_every_move_of_the_question_asks() -> None:
    asking = Asking()
    asking.leaders = {7: 2, 8: 2}
    asking.metadata.matched[4] = 55
    await asking.look([_moving(7)], 0.0)
    asking.metadata.applied_index = 60
    asking.metadata.matched[3] = 60
    await asking.look([_moving(7), _moving(8)], 1.0)
    await asking.look([_moving(7), _moving(8)], 1.0 + ASK_AFTER_S)
    assert asking.asked == [(2, {7: (50, 3), 8: (60, 3)}, [1, 3])]


async def test_a_cancel_and_another_leader_have_their_own_time() -> None:
    asking = Asking()
    asking.leaders = {7: 2}
    await asking.look([_moving(7)], 0.0)
    asking.metadata.applied_index = 60
    await asking.look([_moving(7, cancel_asked=True)], ASK_AFTER_S)
    assert not asking.asked
    asking.leaders = {7: 3}
    asking.metadata.applied_index = 70
    await asking.look([_moving(7, cancel_asked=True)], 2 * ASK_AFTER_S)
    assert not asking.asked
    await asking.look([_moving(7, cancel_asked=True)], 3 * ASK_AFTER_S)
    assert asking.asked == [(3, {7: (70, 3)}, [1])]


async def test_a_metadata_leader_that_leads_again_waits_anew() -> None:
    asking = Asking()
    asking.leaders = {7: 2}
    await asking.look([_moving(7)], 0.0)
    await asking.look([], 1.0)
    asking.metadata.applied_index = 60
    await asking.look([_moving(7)], ASK_AFTER_S)
    assert not asking.asked
    await asking.look([_moving(7)], 2 * ASK_AFTER_S)
    assert asking.asked == [(2, {7: (60, 3)}, [1])]


async def test_one_question_is_bounded() -> None:
    asking = Asking()
    moving = [_moving(group) for group in range(1, MAX_ASKED + 3)]
    asking.leaders = dict.fromkeys(range(1, MAX_ASKED + 3), 2)
    await asking.look(moving, 0.0)
    await asking.look(moving, ASK_AFTER_S)
    await asking.look(moving, ASK_AFTER_S)
    assert [len(wanted) for _, wanted, _ in asking.asked] == [MAX_ASKED, 2]


def _leader(applied: int) -> Any:
    groups = {
        0: FakeGroup(applied=applied),
        7: FakeGroup(matched={1: 5, 2: 9, 3: 8}),
        8: FakeGroup(matched={1: 5, 2: 9, 3: 8}, leads=False),
    }
    return SimpleNamespace(node_id=2, groups=groups)


def _awaited(*groups: int, leaving: int = 0) -> list[AwaitedMove]:
    return [AwaitedMove(group=group, index=50, leaving=leaving) for group in groups]


def test_a_leader_that_lags_hands_over_to_a_voter_that_does_not() -> None:
    multiraft = _leader(applied=49)
    assert hand_over_if_lagging(multiraft, _awaited(7, 8, 9, 0), [1, 3]) == [7]
    assert multiraft.groups[7].given_to == [3]
    assert not multiraft.groups[8].given_to
    assert not multiraft.groups[0].given_to


def test_a_leadership_that_is_being_handed_over_is_left_alone() -> None:
    """Each try keeps proposals waiting: whoever asks again and again would stop the group."""
    multiraft = _leader(applied=49)
    assert hand_over_if_lagging(multiraft, _awaited(7, 7), [1, 3]) == [7]
    assert hand_over_if_lagging(multiraft, _awaited(7), [1, 3]) == []
    assert multiraft.groups[7].given_to == [3]


@pytest.mark.parametrize(("successors", "leader"), [([1, 3], 1), ([3], 3)])
def test_the_replica_that_leaves_leads_only_if_nobody_else_can(successors: list[int], leader: int) -> None:
    multiraft = _leader(applied=49)
    hand_over_if_lagging(multiraft, _awaited(7, leaving=3), successors)
    assert multiraft.groups[7].given_to == [leader]


def test_a_leader_that_is_as_far_keeps_its_group() -> None:
    multiraft = _leader(applied=50)
    assert hand_over_if_lagging(multiraft, _awaited(7), [1, 3]) == []
    assert not multiraft.groups[7].given_to


def test_a_group_is_given_to_nobody_whose_metadata_lag_too() -> None:
    multiraft = _leader(applied=49)
    assert hand_over_if_lagging(multiraft, _awaited(7), [4]) == []
