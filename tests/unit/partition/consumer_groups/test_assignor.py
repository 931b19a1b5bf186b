"""Advice to members that ask again and again, over partitions whose leaders come and go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from node.partition.api import Failed, LogView
from node.partition.consumer_groups import assignor
from node.partition.consumer_groups.assignor import Assignor
from node.partition.consumer_groups.group_queries import Assign, Assigned, GroupList, GroupRow, ListGroups, Revoke
from node.partition.consumer_groups.group_state import Done

NO_LEADER = Failed("not_leader", True, "nobody leads")


@dataclass
class Partitions:
    """A log's partitions as their leaders would tell of them; also the handles."""

    owners: dict[str, str | None]  # partition -> member
    away: set[str] = field(default_factory=set)
    revoked: list[str] = field(default_factory=list)
    looks: int = 0

    def describe(self, log: str) -> LogView | None:
        return LogView(log, list(self.owners)) if log == "trades" else None

    def leader(self, log: str, partition: str) -> int | None:
        return 1

    def handle(self, log: str, partition: str) -> Any:
        return _Handle(self, partition)


@dataclass
class _Handle:
    partitions: Partitions
    name: str

    async def ask(self, question: Any) -> Any:
        known, name = self.partitions, self.name
        if isinstance(question, ListGroups):
            known.looks += 1
            assert not question.confirm, "a look twice a second would keep quiet groups awake"
        if name in known.away:
            return NO_LEADER
        if isinstance(question, Revoke):
            known.revoked.append(name)
            return Done(-1)
        owner = known.owners[name]
        rows = [] if owner is None else [GroupRow("g", 0, 5, True, True, owner, f"{owner}/{name}", -1, 0, 0)]
        return GroupList(rows, 0, 0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("GATHER_S", 0.02), ("BUSY_S", 0.005), ("IDLE_S", 0.01), ("ANSWER_S", 0.05)):
        monkeypatch.setattr(assignor, name, value)


def question(member: str, link: str = "x", log: str = "trades", **more: Any) -> Assign:
    return Assign(log, "g", member, f"{member}/{link}", 1, **more)


def assigner(partitions: Partitions) -> Assignor:
    return Assignor(partitions, asyncio.get_running_loop().time)


async def test_two_members_that_start_together_get_different_partitions() -> None:
    advice = assigner(Partitions({"0": None, "1": None}))
    one, two = await asyncio.gather(advice.assign(question("a")), advice.assign(question("b")))
    assert {one, two} == {Assigned("0"), Assigned("1")}


async def test_what_was_assigned_is_kept_until_its_member_says_that_it_left() -> None:
    advice = assigner(Partitions({"0": None}))
    assert await advice.assign(question("a")) == Assigned("0")
    assert await advice.assign(question("b")) == Assigned(None, False)
    await advice.assign(question("a", leaving=True))
    assert await advice.assign(question("b")) == Assigned("0")


async def test_who_waits_for_an_excess_is_told_so_and_one_partition_is_asked_for_once() -> None:
    partitions = Partitions({"0": "a", "1": "a", "2": "a"})
    advice = assigner(partitions)
    for _ in range(3):
        assert await advice.assign(question("b")) == Assigned(None, True)
    assert len(partitions.revoked) == 1
    partitions.owners[partitions.revoked[0]] = None
    assert await advice.assign(question("b")) == Assigned(partitions.revoked[0])


async def test_a_partition_without_a_leader_stops_no_assignment_but_every_move() -> None:
    partitions = Partitions({"0": "a", "1": "a", "2": None, "3": "a"}, away={"3"})
    advice = assigner(partitions)
    assert await advice.assign(question("b")) == Assigned("2")
    partitions.owners["2"] = "b"
    await advice.assign(question("c"))
    assert partitions.revoked == []
    partitions.away.clear()
    assert await advice.assign(question("c")) == Assigned(None, True)
    assert len(partitions.revoked) == 1


async def test_who_does_not_ask_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignor, "TICKET_S", 0.03)
    partitions = Partitions({"0": "a"})
    advice = assigner(partitions)
    await advice.assign(question("gone"))
    await asyncio.sleep(0.05)
    partitions.owners["0"] = None
    assert await advice.assign(question("b")) == Assigned("0")


async def test_a_deleted_log_and_too_many_members_are_told_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignor, "MAX_WAITING", 1)
    advice = assigner(Partitions({"0": "a"}))
    gone = await advice.assign(question("a", log="nowhere"))
    assert isinstance(gone, Failed)
    assert gone.kind == "deleted"
    await advice.assign(question("b"))
    full = await advice.assign(question("c"))
    assert isinstance(full, Failed)
    assert (full.kind, full.retriable) == ("overloaded", False)


async def test_many_who_wait_look_no_more_often_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignor, "IDLE_S", 10.0)
    partitions = Partitions({"0": "a"})
    advice = assigner(partitions)
    await advice.assign(question("b"))
    await asyncio.gather(*(advice.assign(question("b", str(link))) for link in range(20)))
    before = partitions.looks
    await asyncio.gather(*(advice.assign(question("b", str(link))) for link in range(20)))
    assert partitions.looks == before
