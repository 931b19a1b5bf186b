"""Whose lease is over, by the clock of a leader that may itself have stood still; and how nodes renew leases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from node.client_transactions import transaction_group_member as member_module
from node.client_transactions.transaction_group_member import LeaseRenewer as HeldLeases
from node.client_transactions.transaction_group_member import MemberProducer, MemberTerms
from node.replica_manager import TICK_PERIOD_S
from node.transaction_coordinator.transaction_groups.group_queries import Renewed, RenewLeases
from node.transaction_coordinator.transaction_groups.group_state import MemberRecord
from node.transaction_coordinator.transaction_groups.member_leases import LONGEST_GAP_S, Leases

ROUNDS_S = 2.0
"""For the entry that ends the member, and its markers, to be replicated; more than an election takes."""

ONE, TWO = (MemberRecord(name, number, 0, "0", "0", "h", 3000, 0) for number, name in enumerate(("one", "two")))


def look(leases: Leases, *times_s: float) -> list[str]:
    found: list[MemberRecord] = []
    for time_s in times_s:
        found = leases.over([ONE, TWO], time_s)
    return [one.id for one in found]


def test_who_is_not_heard_of_for_a_lease_has_none() -> None:
    leases = Leases()
    assert look(leases, 100.0, 101.0, 102.0, 103.0) == []
    leases.renew(["one"])
    assert look(leases, 103.5) == ["two"]
    assert look(leases, 104.5, 105.5, 106.5) == ["two"]
    assert look(leases, 107.0) == ["one", "two"]


def test_a_renewal_counts_once() -> None:
    leases = Leases()
    leases.renew(["one"])
    assert look(leases, 100.0, 101.0, 102.0, 103.0) == []
    assert look(leases, 103.1) == ["one", "two"]


def test_a_new_leader_gives_everybody_a_whole_lease() -> None:
    leases = Leases()
    assert look(leases, 100.0, 101.0, 102.0, 103.5) == ["one", "two"]
    leases.clear()
    assert look(leases, 110.0, 111.0, 112.0, 113.0) == []


def test_what_a_leader_slept_through_counts_for_nobody() -> None:
    leases = Leases()
    assert look(leases, 100.0, 101.0, 141.0) == []
    assert look(leases, 141.0 + LONGEST_GAP_S) == ["one", "two"], "2.5 s of its own, and those since"


@pytest.mark.parametrize("phase_s", [0.0, 0.1, 0.24, 0.25, 0.4, 0.499])
def test_a_client_that_hangs_has_a_lease_for_no_more_than_five_seconds_too_long(phase_s: float) -> None:
    """However the looks of the leader fall between the renewals of the node that holds the member."""
    leases, now_s, heard_s = Leases(), 100.0, 110.0
    renewal_s = 100.0 + phase_s
    while True:
        if renewal_s < now_s:  # what was heard since the last renewal is told with the next one
            if renewal_s - member_module.RENEW_PERIOD_S <= heard_s:
                leases.renew(["one", "two"])
            renewal_s += member_module.RENEW_PERIOD_S
        if leases.over([ONE], now_s):
            break
        now_s += TICK_PERIOD_S
    lease_s = ONE.lease_ms / 1000
    assert heard_s + lease_s < now_s <= heard_s + lease_s + 5 - ROUNDS_S


# ---------------------------------------------------------------- at the node that holds the links


class Leader:
    """What it was asked, and who it says is over."""

    def __init__(self) -> None:
        self.asked: list[RenewLeases] = []
        self.over: list[str] = []

    async def ask(self, group: int, question: Any) -> Any:
        self.asked.append(question)
        return Renewed([one for one in [*question.members, *question.silent] if one in self.over])

    async def ask_until(self, group: int, question: Any, within_s: float) -> Any:
        return await self.ask(group, question)


def held(leader: Leader, name: str) -> MemberProducer:
    producer = MemberProducer(leader, 3, MemberTerms("w", 0, "r", "0"))
    producer.member = name
    return producer


async def until(leader: Leader, members: list[str], silent: list[str]) -> None:
    async with asyncio.timeout(60):
        while RenewLeases(members, silent) not in leader.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_node_renews_whom_it_hears_and_is_told_who_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "RENEW_PERIOD_S", 0.001)
    leader, told = Leader(), list[str]()
    leases = HeldLeases(leader)
    lively, silent = held(leader, "lively"), held(leader, "silent")
    leases.keep(lively, lambda: True, told.append)
    leases.keep(silent, lambda: False, told.append)
    await until(leader, ["lively"], ["silent"])
    leader.over = ["silent"]
    await until(leader, ["lively"], [])
    assert len(told) == 1
    leases.let_go(lively)
    leader.asked.clear()
    async with asyncio.timeout(60):
        while leases._renewing is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await leases.close()


async def test_a_bug_met_for_one_member_does_not_cost_the_others_their_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "RENEW_PERIOD_S", 0.001)
    leader, failed = Leader(), list[bool]()
    leases = HeldLeases(leader)

    def fails_once() -> bool:
        if not failed:
            failed.append(True)
            raise ZeroDivisionError
        return False

    leases.keep(held(leader, "broken"), fails_once, lambda _: None)
    leases.keep(held(leader, "sound"), lambda: True, lambda _: None)
    await until(leader, ["sound"], ["broken"])
    await leases.close()
