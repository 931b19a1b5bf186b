"""Callbacks of a member: of each partition assigned, revoked, in turn, on whichever links it comes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from holdfast.client import ConsumerClient, Start
from holdfast.client.consume import group_members
from holdfast.client.consume.group_members import GroupMembers, GroupReceiver
from tests.unit.client.support.members import TinyMember, filled
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.peer import eventually

PARTITIONS = ("0", "1", "2")


def check(heard: list[tuple[str, str]], *, over: bool) -> None:
    """In turn; `over`: whatever was assigned was revoked."""
    for partition in {one for _, one in heard}:
        told = [what for what, one in heard if one == partition]
        assert told == (["assigned", "revoked"] * len(told))[: len(told)], heard
        assert not over or told[-1] == "revoked", heard


class Program:
    """Hears callbacks that take a while, and notes when each begins and ends."""

    def __init__(self, chance: random.Random) -> None:
        self.heard: list[tuple[str, str]] = []
        self.held: set[str] = set()
        """Partitions of which a link stands that the program was told of."""
        self._inside: set[str] = set()
        self._chance = chance

    async def _callback(self, what: str, partition: str) -> None:
        assert partition not in self._inside, f"{what} {partition} within another callback of it: {self.heard}"
        self._inside.add(partition)
        self.heard.append((what, partition))
        for _ in range(self._chance.randint(0, 4)):
            await asyncio.sleep(0)
        self._inside.discard(partition)

    async def on_assigned(self, partition: str) -> None:
        await self._callback("assigned", partition)

    async def on_revoked(self, partition: str) -> None:
        assert partition not in self.held, f"{partition} is revoked, and a link has it: {self.heard}"
        await self._callback("revoked", partition)


def links(program: Program, count: int) -> tuple[GroupMembers, list[GroupReceiver]]:
    consumer = ConsumerClient("127.0.0.1:1", "trades", group="g")  # it is not started: links come and go as we say
    callbacks = program.on_assigned, program.on_revoked
    members = GroupMembers(consumer, consumer._network, "g", None, (), Start.latest(), *callbacks)
    made = [GroupReceiver(members, f"g/{number}", None, Start.latest()) for number in range(count)]
    members.readers += made
    return members, made


@pytest.mark.parametrize("seed", range(60))
async def test_callbacks_are_paired_and_in_order_however_links_swap_partitions(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links lose what they had late, and are given what another one had, as nodes do with one that was away."""
    problems: list[BaseException] = []
    monkeypatch.setattr(group_members, "report", lambda what, problem: problems.append(problem))
    chance = random.Random(seed)
    program = Program(chance)
    members, made = links(program, 3)

    async def live(link: GroupReceiver) -> None:
        for _ in range(12):
            if link._doubt is not None and chance.random() < 0.5:
                await link._give_up_doubt()
            given = chance.choice([one for one in PARTITIONS if one not in taken])
            taken.add(given)
            await link._give_up_doubt()
            link.partition, link.owns = given, True
            await members.assigned(link)
            program.held.add(given)
            for _ in range(chance.randint(0, 3)):
                await asyncio.sleep(0)
            program.held.discard(given)
            link.owns, link._doubt = False, given
            taken.discard(given)  # the nodes may give it to another link of ours at once
            for _ in range(chance.randint(0, 3)):
                await asyncio.sleep(0)

    taken: set[str] = set()
    await asyncio.gather(*map(live, made))
    check(program.heard, over=False)
    assert problems == []
    await members.leave()
    check(program.heard, over=True)
    assert len(program.heard) > 30


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that broke stays in doubt, as in a program that stood still."""
    monkeypatch.setattr(group_members, "CONTINUE_WITHIN_S", 3600.0)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_partition_that_comes_back_on_another_link_was_revoked_before(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    log = await filled(nodes, 2, 10)
    attach, held_back, go_on = GroupReceiver._attach, set[str](), asyncio.Event()

    async def late(self: GroupReceiver, hint: Any) -> Any:
        if self.name in held_back:
            await go_on.wait()
        return await attach(self, hint)

    monkeypatch.setattr(GroupReceiver, "_attach", late)
    member = TinyMember(nodes, log)
    async with member:
        await eventually(lambda: sorted(member.heard) == [("assigned", "0"), ("assigned", "1")])
        members: Any = member.consumer._members
        first = next(one for one in members.owning if one.partition == "0")
        held_back.add(first.name)
        first._receiver.abandon()
        first.on_closed(group_members.ConnectionLostError("cut off"))
        await eventually(lambda: member.heard.count(("assigned", "0")) == 2)
        check(member.heard, over=False)
        go_on.set()
    check(member.heard, over=True)
