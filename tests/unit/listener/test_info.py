"""`$info` of a log with many partitions: each is asked, and never all at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from holdfast import protocol
from node.listener.attach.link_plan import Plan
from node.listener.endpoint import EndpointHost
from node.listener.info import ASKED_AT_ONCE, Info
from node.partition.api import PartitionInfo

PARTITIONS = 10 * ASKED_AT_ONCE


class Leaders:
    """The broker, and each partition's handle."""

    def __init__(self, refusals: int = 0) -> None:
        self.asked_now = self.asked_most = 0
        self.refusals = dict.fromkeys(map(str, range(PARTITIONS)), refusals)

    def handle(self, log: str, partition: str) -> Any:
        return SimpleNamespace(info=lambda: self.info(partition))

    async def info(self, partition: str) -> PartitionInfo:
        self.asked_now += 1
        self.asked_most = max(self.asked_most, self.asked_now)
        try:
            await asyncio.sleep(0)
            if self.refusals[partition]:
                self.refusals[partition] -= 1
                raise ConnectionError("nobody leads it")
            return PartitionInfo(partition, None, None, 0, 0, 0, 1)
        finally:
            self.asked_now -= 1


async def answers(leaders: Leaders, leader_wait_s: float) -> list[Any]:
    host = SimpleNamespace(config=SimpleNamespace(info_interval_s=1.0, leader_wait_s=leader_wait_s))
    plan = SimpleNamespace(broker=leaders, log="log")
    info = Info(cast(EndpointHost, host), cast(Any, None), cast(Plan, plan))
    entries = await asyncio.gather(*(info._entry(str(number)) for number in range(PARTITIONS)))
    assert [int(entry[protocol.INFO_PARTITION]) for entry in entries] == list(range(PARTITIONS))
    return [entry[protocol.INFO_AVAILABLE] for entry in entries]


async def test_a_bounded_number_of_partitions_is_asked_at_a_time() -> None:
    leaders = Leaders()
    assert all(await answers(leaders, 60.0))
    assert leaders.asked_most == ASKED_AT_ONCE


async def test_those_without_a_leader_keep_nobody_waiting() -> None:
    leaders = Leaders()
    for partition in range(2 * ASKED_AT_ONCE):
        leaders.refusals[str(partition)] = 1_000_000
    available = await answers(leaders, 1.0)
    assert available == [False] * (2 * ASKED_AT_ONCE) + [True] * (PARTITIONS - 2 * ASKED_AT_ONCE)


async def test_who_gets_a_leader_meanwhile_is_asked_again() -> None:
    assert all(await answers(Leaders(refusals=2), 60.0))
