"""What is decided while a client stood still, or read nothing, is said to its program."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client import AdminClient, ConsumerClient, ConsumerOptions, NetworkOptions, Start
from holdfast.client.consume import partition_receiver
from holdfast.client.transport import connection
from holdfast.client.waits.suspend_aware_timeout import Patience
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually

BRIEF = ConsumerOptions(network=NetworkOptions(idle_timeout_s=1.0))
"""Connections are looked at twice a second."""


def event(number: int) -> bytes:
    return b"\x00\x53\x75\xa0\x01" + bytes([number])


def warned(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "holdfast.client" and record.levelno == logging.WARNING and text in record.getMessage()
    ]


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that goes on by itself, and leaps when it is told."""
    leapt_s, real = [0.0], connection.since_boot_s
    monkeypatch.setattr(connection, "since_boot_s", lambda: real() + leapt_s[0])

    def leap(seconds: float) -> None:
        leapt_s[0] += seconds

    return leap


async def test_a_process_that_stood_still_is_told(
    node: TinyNode, caplog: pytest.LogCaptureFixture, asleep: Any
) -> None:
    async with asyncio.timeout(60), ConsumerClient(node.address, "trades", options=BRIEF):
        asleep(3600)
        await eventually(lambda: warned(caplog, "this process stood still for 3600 s"))


async def test_a_short_delay_is_not_told(node: TinyNode, caplog: pytest.LogCaptureFixture, asleep: Any) -> None:
    ticks, real = 0, connection.ClientConnection._tick_now

    def counted(self: connection.ClientConnection, due_s: float | None = None) -> None:
        nonlocal ticks
        ticks += due_s is not None
        real(self, due_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.ClientConnection, "_tick_now", counted)
        async with asyncio.timeout(60), ConsumerClient(node.address, "trades", options=BRIEF):
            asleep(1.0)
            seen = ticks
            await eventually(lambda: ticks > seen + 1)
    assert not warned(caplog, "stood still")


@pytest.fixture
async def stand_still(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The loop finds an hour gone in its next turn, as after a stop of this process."""
    loop, gone_s = asyncio.get_running_loop(), [0.0]
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + gone_s[0])

    def leap() -> None:
        gone_s[0] += 3600

    return leap


async def test_an_answer_that_came_while_the_process_stood_still_counts(
    node: TinyNode, stand_still: Callable[[], None]
) -> None:
    def manage(request: dict[str, Any], arguments: Any) -> tuple[dict[str, Any], Any]:
        stand_still()
        return {"status-code": 200}, {"groups": [{"group": "g"}]}

    node.manage = manage
    async with AdminClient(node.address, timeout_s=60) as admin:
        assert await admin.list_groups("trades") == [{"group": "g"}]


async def test_a_request_whose_connection_ended_while_the_process_stood_still_is_asked_again(
    node: TinyNode, stand_still: Callable[[], None]
) -> None:
    asked = 0

    def manage(request: dict[str, Any], arguments: Any) -> tuple[dict[str, Any], Any]:
        nonlocal asked
        asked += 1
        if asked == 1:
            stand_still()
            for connection in list(node.connections):
                connection.abort()
        return {"status-code": 200}, {"groups": [{"group": "g"}]}

    node.manage = manage
    async with AdminClient(node.address, timeout_s=60) as admin:
        assert await admin.list_groups("trades") == [{"group": "g"}]
    assert asked == 2


async def test_a_wait_behind_a_standstill_goes_on_and_ends(stand_still: Callable[[], None]) -> None:
    patience, never = Patience(2.5), asyncio.Event()
    async with patience:
        asyncio.get_running_loop().call_soon(stand_still)
        await asyncio.sleep(1800)
    assert 0 < patience.left_s < 2.5
    with pytest.raises(TimeoutError):
        async with patience:
            await never.wait()
    assert patience.left_s <= 0


async def test_what_came_in_a_standstill_at_the_end_of_a_wait_counts(stand_still: Callable[[], None]) -> None:
    async with Patience(1.0):
        asyncio.get_running_loop().call_soon(stand_still)
        await asyncio.sleep(1800)


async def test_a_program_that_stands_still_all_the_time_does_not_wait_for_ever(
    stand_still: Callable[[], None],
) -> None:
    loop = asyncio.get_running_loop()

    def again() -> None:
        stand_still()
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(TimeoutError):
        async with Patience(60):
            await asyncio.Event().wait()


async def test_what_retention_took_before_it_was_read_is_told(node: TinyNode, caplog: pytest.LogCaptureFixture) -> None:
    node.log.append("0", [event(number) for number in range(2)])
    async with asyncio.timeout(60), ConsumerClient(node.address, "trades", start=Start.earliest()) as consumer:
        assert len(await consumer.receive()) == 2
        await node.crash()
        node.log.append("0", [event(number) for number in range(5)])
        node.log.begins["0"] = 4
        await node.start()
        (first, *_) = await consumer.receive()
        assert first.offset == f"{4:016x}"
        told = f"retention has deleted up to 2 events before they were read, behind offset {1:016x}"
        await eventually(lambda: warned(caplog, told))


async def test_what_was_only_left_out_is_not_told(
    node: TinyNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As events of transactions that were rolled back: the log begins before the gap."""
    monkeypatch.setattr(partition_receiver, "LOOK_PACE_S", 0.0)
    node.log.append("0", [event(number) for number in range(2)])
    async with asyncio.timeout(60), ConsumerClient(node.address, "trades", start=Start.earliest()) as consumer:
        read = [one.offset for one in await consumer.receive()]
        node.log.hidden["0"] = range(2, 4)
        node.log.append("0", [event(number) for number in range(4)])
        read += [one.offset for one in await consumer.receive()]
        (reader,) = [one for one in consumer._readers if one.partition == "0"]
        await eventually(lambda: reader._looking is None)
    assert read == [f"{number:016x}" for number in (0, 1, 4, 5)]
    assert not warned(caplog, "retention")
