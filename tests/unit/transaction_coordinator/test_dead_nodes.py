"""When a coordinator's leader takes a start of a node for gone, and what the machine makes of that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from node.partition.api import Failed
from node.transaction_coordinator import dead_nodes
from node.transaction_coordinator.coordinator_commands import Added, Decided, LastEnd, NodeStart, Register, Registered
from node.transaction_coordinator.coordinator_queries import AskLost, Lost
from node.transaction_coordinator.dead_nodes import GoneNodes
from tests.unit.transaction_coordinator.driving import GROUP, DrivenCoordinator, Pair, code_of

EARLIER, START, ELSEWHERE = NodeStart(3, 7, 1), NodeStart(3, 7, 2), NodeStart(4, 7, 2)
LONG_S = dead_nodes.GONE_AFTER_S


# ---------------------------------------------------------------- the leader


@dataclass
class Seen:
    """By node 1: whom it misses for how long, whose starts have successors, and what other members say."""

    lost: dict[int, float] = field(default_factory=dict)
    succeeded: set[NodeStart] = field(default_factory=set)
    says: dict[int, Any] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    node_id: int = 1

    def is_succeeded(self, start: NodeStart) -> bool:
        return start in self.succeeded

    def lost_s(self, node: int) -> float:
        return self.lost.get(node, 0.0)

    async def ask_member(self, member: int, group: int, question: Any) -> Any:
        assert (group, question) == (GROUP, AskLost(3))
        self.asked.append(member)
        await asyncio.sleep(0 if member in self.says else 3600.0)
        return self.says[member]


def gone(seen: Seen, *starts: NodeStart, members: tuple[int, ...] = (1, 2, 3)) -> set[NodeStart]:
    group: Any = SimpleNamespace(members=members)
    return asyncio.run(GoneNodes(GROUP, seen).among(starts, group))


def test_a_start_is_gone_when_a_later_one_is_registered() -> None:
    seen = Seen(succeeded={EARLIER})
    assert gone(seen, EARLIER, START, ELSEWHERE) == {EARLIER}
    assert seen.asked == []


def test_a_majority_that_misses_a_node_for_long_enough_takes_it_for_gone() -> None:
    seen = Seen(lost={3: LONG_S}, says={2: Lost(True)})
    assert gone(seen, EARLIER, START, ELSEWHERE) == {EARLIER, START}


def test_who_stands_still_for_a_moment_is_not_gone() -> None:
    seen = Seen(lost={3: LONG_S - 0.1}, says={2: Lost(True)})
    assert gone(seen, START) == set()
    assert seen.asked == []


@pytest.mark.parametrize("says", [Lost(False), Failed("unknown", True, "it did not answer")])
def test_one_that_another_member_hears_is_not_gone(says: Any) -> None:
    assert gone(Seen(lost={3: 60.0}, says={2: says}), START) == set()


def test_members_that_do_not_answer_in_time_or_are_away_have_not_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_nodes, "ANSWER_WITHIN_S", 0.01)
    assert gone(Seen(lost={3: 60.0}), START) == set()
    away = Seen(lost={3: 60.0, 2: 60.0}, says={2: Lost(True)})
    assert gone(away, START) == set()
    assert away.asked == [], "this node may be the one that is cut off"


@pytest.mark.parametrize("agreeing", [1, 2])
def test_a_majority_of_five_is_three_also_if_the_node_is_none_of_them(agreeing: int) -> None:
    others = (2, 4, 5, 6)
    seen = Seen(lost={3: 60.0}, says={one: Lost(one in others[:agreeing]) for one in others})
    assert gone(seen, START, members=(1, *others)) == ({START} if agreeing == 2 else set())
    assert sorted(seen.asked) == list(others)


@pytest.mark.parametrize("seconds", [0.0, dead_nodes.MISSED_AFTER_S - 0.1, dead_nodes.MISSED_AFTER_S])
def test_a_member_whose_stream_to_the_node_has_just_broken_does_not_agree(seconds: float) -> None:
    """It is dialled anew in a moment, while the leader's may be cut for long."""
    agrees = seconds >= dead_nodes.MISSED_AFTER_S
    assert GoneNodes(GROUP, Seen(lost={3: seconds})).answer(AskLost(3)) == Lost(agrees)


def test_a_coordinator_of_one_replica_decides_alone() -> None:
    assert gone(Seen(lost={3: 60.0}), START, members=(1,)) == {START}


def test_members_are_asked_once_for_all_who_want_to_know_at_a_time() -> None:
    seen, group = Seen(lost={3: 60.0}, says={2: Lost(True)}), SimpleNamespace(members=(1, 2, 3))
    nodes: Any = GoneNodes(GROUP, seen)

    async def story() -> None:
        assert await asyncio.gather(*(nodes.among({START}, group) for _ in range(50))) == [{START}] * 50
        assert seen.asked == [2]
        seen.says[2] = Lost(False)
        assert await nodes.among({START}, group) == set(), "and anew later"

    asyncio.run(story())


# ---------------------------------------------------------------- the machine


@pytest.fixture
def coordinator() -> DrivenCoordinator:
    return DrivenCoordinator()


def held(coordinator: DrivenCoordinator, at: NodeStart | None, *, lost: Pair | None = None) -> Pair:
    result = coordinator.apply(Register("t", "h", 60_000, coordinator.now_ms, lost, at=at))
    assert isinstance(result, Registered), result
    return result.producer_id, result.epoch


def test_what_a_gone_node_has_open_aborts_and_its_holder_is_told_if_it_lives(coordinator: DrivenCoordinator) -> None:
    pair = held(coordinator, START)
    coordinator.add(pair, 11)
    for other in (EARLIER, ELSEWHERE):
        assert code_of(coordinator.expire(pair, gone=other)) == "ended"
    coordinator.restart()
    assert coordinator.expire(pair, gone=START) == Decided(False, False, "node", *pair)
    assert code_of(coordinator.end(pair, commit=True)) == "ended", "a late commit"
    coordinator.complete(pair)
    assert code_of(coordinator.end(pair, commit=True)) == "ended"
    assert code_of(coordinator.add(pair, 12)) == "ended"
    back = held(coordinator, START, lost=pair)
    assert back > pair
    assert isinstance(coordinator.add(back, 11), Added)
    one = coordinator.machine.get("t")
    assert one is not None
    assert one.last == LastEnd(*pair, False, "node")


def test_what_is_decided_when_its_node_is_gone_stays_so(coordinator: DrivenCoordinator) -> None:
    pair = held(coordinator, START)
    coordinator.add(pair, 11)
    coordinator.end(pair, commit=True)
    assert coordinator.expire(pair, gone=START) == Decided(True, False, "client", *pair)
    assert coordinator.machine.outcome(*pair) is True


def test_an_id_that_has_moved_is_not_taken_from_its_new_node(coordinator: DrivenCoordinator) -> None:
    """The node that held it died, and the same attach was tried at another one."""
    pair = held(coordinator, START)
    assert held(coordinator, ELSEWHERE) == pair, "nothing was done with it"
    coordinator.add(pair, 11)
    assert code_of(coordinator.expire(pair, gone=START)) == "ended"
    assert isinstance(coordinator.end(pair, commit=True), Decided)


def test_what_a_gone_node_had_begun_in_a_partition_only_never_begins(coordinator: DrivenCoordinator) -> None:
    pair = held(coordinator, START)
    assert code_of(coordinator.fence(pair, gone=EARLIER)) == "ended"
    assert coordinator.machine.outcome(*pair) is None
    assert isinstance(coordinator.fence(pair, gone=START), Decided)
    assert coordinator.machine.outcome(*pair) is False
    assert code_of(coordinator.add(pair, 11)) == "ended"
