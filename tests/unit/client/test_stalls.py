"""What is decided while a client stood still, or read nothing, is said to its program."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from holdfast.client import ConsumerClient, ConsumerOptions, NetworkOptions, Start
from holdfast.client.consume import partition_receiver
from holdfast.client.transport import connection
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
    ticks, real = 0, connection.Connection._tick_now

    def counted(self: connection.Connection, due_s: float | None = None) -> None:
        nonlocal ticks
        ticks += due_s is not None
        real(self, due_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.Connection, "_tick_now", counted)
        async with asyncio.timeout(60), ConsumerClient(node.address, "trades", options=BRIEF):
            asleep(1.0)
            seen = ticks
            await eventually(lambda: ticks > seen + 1)
    assert not warned(caplog, "stood still")


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
