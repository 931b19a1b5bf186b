"""`$info` of a log with many partitions: each is asked, and never all at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import protocol
from node.listener.attach.link_plan import LinkPlan
from node.listener.endpoint import EndpointHost
from node.listener.log_info import ASKED_AT_ONCE, Info
from node.partition.api import PartitionDescription
from tests.unit.listener.support.peer import eventually

PARTITIONS = 10 * ASKED_AT_ONCE


class Leaders:
    """The broker, and each partition's handle."""

    def __init__(self, refusals: int = 0) -> None:
        self.asked_now = self.asked_most = 0
        self.refusals = dict.fromkeys(map(str, range(PARTITIONS)), refusals)

    def handle(self, log: str, partition: str) -> Any:
        return SimpleNamespace(info=lambda: self.info(partition))

    async def info(self, partition: str) -> PartitionDescription:
        self.asked_now += 1
        self.asked_most = max(self.asked_most, self.asked_now)
        try:
            await asyncio.sleep(0)
            if self.refusals[partition]:
                self.refusals[partition] -= 1
                raise ConnectionError("nobody leads it")
            return PartitionDescription(partition, None, None, 0, 0, 0, 1)
        finally:
            self.asked_now -= 1


def info_of(leaders: Leaders, leader_wait_s: float) -> Info:
    host = SimpleNamespace(config=SimpleNamespace(info_interval_s=1.0, leader_wait_s=leader_wait_s))
    plan = SimpleNamespace(broker=leaders, log="log")
    return Info(cast(EndpointHost, host), cast(Any, None), cast(LinkPlan, plan))


async def answers(leaders: Leaders, leader_wait_s: float) -> list[Any]:
    info = info_of(leaders, leader_wait_s)
    entries = await asyncio.gather(*(info._entry(str(number)) for number in range(PARTITIONS)))
    assert [int(entry[protocol.INFO_PARTITION]) for entry in entries] == list(range(PARTITIONS))
    return [entry[protocol.INFO_AVAILABLE] for entry in entries]


async def test_a_bounded_number_of_partitions_is_asked_at_a_time() -> None:
    leaders = Leaders()
    assert all(await answers(leaders, 60.0))
    assert leaders.asked_most == ASKED_AT_ONCE


async def test_those_without_a_leader_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two questions to one of them its turn is another's, however long that is."""
    monkeypatch.setattr("node.listener.log_info.RETRY_DELAY_S", 3600.0)
    leaders = Leaders()
    for partition in range(2 * ASKED_AT_ONCE):
        leaders.refusals[str(partition)] = 1_000_000
    info = info_of(leaders, 60.0)
    entries = [asyncio.ensure_future(info._entry(str(number))) for number in range(PARTITIONS)]
    without, led = entries[: 2 * ASKED_AT_ONCE], entries[2 * ASKED_AT_ONCE :]
    assert all(entry[protocol.INFO_AVAILABLE] for entry in await asyncio.gather(*led))
    assert not any(entry.done() for entry in without)
    for entry in without:
        entry.cancel()
    await asyncio.gather(*without, return_exceptions=True)


async def test_those_that_get_no_leader_in_time_are_not_available() -> None:
    assert not any(await answers(Leaders(refusals=1_000_000), 0.2))


async def test_who_gets_a_leader_meanwhile_is_asked_again() -> None:
    assert all(await answers(Leaders(refusals=2), 60.0))


class Reader:
    """The link to a peer that has granted credit, and its connection."""

    credit, unsettled, drain = 1000, 0, False
    full, room = False, 1

    def __init__(self) -> None:
        self.config = SimpleNamespace(info_interval_s=0.01, leader_wait_s=60.0)
        self.sent = 0

    def send_many(self, payloads: list[bytes]) -> None:
        self.sent += len(payloads)
        self.credit -= len(payloads)
        self.unsettled += len(payloads)

    def spawn(self, work: Any) -> None:
        self.task = asyncio.ensure_future(work)

    def output_full(self) -> bool:
        return self.full

    def room_to_keep(self) -> int:
        return self.room

    def flush_soon(self) -> None: ...
    def delivered(self, count: int, size: int) -> None: ...


class Asked(Leaders):
    asked = 0

    def describe(self, log: str) -> Any:
        return SimpleNamespace(partitions=["0"])

    async def info(self, partition: str) -> PartitionDescription:
        self.asked += 1
        return await super().info(partition)


async def test_who_takes_nothing_is_sent_nothing_until_it_does() -> None:
    reader, leaders = Reader(), Asked()
    info = Info(
        cast(EndpointHost, reader), cast(Any, reader), cast(LinkPlan, SimpleNamespace(broker=leaders, log="log"))
    )
    reader.full = True
    info.on_credit(cast(Any, None))
    await asyncio.sleep(0.1)
    assert (reader.sent, leaders.asked) == (0, 0)
    reader.full = False
    await eventually(lambda: reader.sent >= 2)
    reader.room, sent = 0, reader.sent  # what was sent is not settled, and there is no room for more
    await asyncio.sleep(0.1)
    assert reader.sent == sent
    reader.unsettled = 0
    await eventually(lambda: reader.unsettled)
    info.gone()


async def test_what_fills_up_while_leaders_are_asked_is_seen_too() -> None:
    class Filling(Asked):
        async def info(self, partition: str) -> PartitionDescription:
            reader.full = True
            return await super().info(partition)

    reader, leaders = Reader(), Filling()
    info = Info(
        cast(EndpointHost, reader), cast(Any, reader), cast(LinkPlan, SimpleNamespace(broker=leaders, log="log"))
    )
    info.on_credit(cast(Any, None))
    await eventually(lambda: leaders.asked)
    await reader.task
    assert reader.sent == 0
    info.gone()
