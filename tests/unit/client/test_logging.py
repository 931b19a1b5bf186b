"""What the client logs of its way through failures."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.amqp import Error
from holdfast.client import AdminClient, ConsumerClient, ProducerClient, Start
from holdfast.client.errors import UndeliveredError
from holdfast.client.transport import network
from holdfast.client.transport.network import PacedLog
from tests.ports import free_port
from tests.unit.client.support.idempotent import idempotent
from tests.unit.client.support.patience import impatient
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually

pytestmark = pytest.mark.usefixtures("_info")


@pytest.fixture
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.client")


def test_a_second_has_one_line_of_a_kind(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(network.time, "monotonic", lambda: now_s)
    lines = PacedLog()
    for number in range(3):
        lines.say("first %d", number)
        lines.say("second %d", number)
    now_s = 101.5
    lines.say("first %d", 3)
    assert caplog.messages == ["first 0", "second 0", "first 3 (2 more lines like this were left out)"]


async def test_a_failover_is_told(pair: tuple[TinyNode, TinyNode], caplog: pytest.LogCaptureFixture) -> None:
    first, second = pair
    async with asyncio.timeout(60), ProducerClient(first.address, "trades") as producer:
        await producer.send_and_confirm(b"event", partition="2")
        assert f"trades/2: redirected to {second.address}" in caplog.messages
        assert f"trades/2: leader found at {second.address}" in caplog.messages
        first.lead()
        refusals = [Error("amqp:internal-error", "not yet")]
        first.refuse = lambda address, partition: refusals.pop() if refusals and partition else None
        await second.crash()
        await producer.send_and_confirm(b"event", partition="2")
    for text in (
        f"a connection was lost: {second.address} ended the connection",
        "trades/2: trying again, since trades, partition 2: not yet",
        f"trades/2: the failover to {first.address} took ",
    ):
        assert any(message.startswith(text) for message in caplog.messages), caplog.messages
    assert {record.levelno for record in caplog.records} == {logging.INFO}


async def test_a_wait_is_warned_of_and_the_same_reason_not_all_the_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "PACE_S", 0.0)
    monkeypatch.setattr(network, "WARN_S", 0.02)
    monkeypatch.setattr(network, "SAME_S", 0.16)
    nobody = f"127.0.0.1:{free_port()}"
    async with asyncio.timeout(60), AdminClient(nobody, timeout_s=3600) as admin:
        asking = asyncio.create_task(admin.list_logs())

        def warned() -> list[str]:
            return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

        await eventually(lambda: any("after 0.16 s" in message for message in warned()))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    reason = f"{nobody} cannot be reached: Connection refused"
    told = [message for message in warned() if message.endswith(reason)]
    assert not [message for message in told[1:] if "after 0.04 s" in message or "after 0.08 s" in message]
    assert told


async def test_a_member_that_waits_for_its_turn_is_not_warned(
    node: TinyNode, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "WARN_S", 0.01)
    asked = 0

    def full(address: str, partition: str | None) -> Error:
        nonlocal asked
        asked += 1
        return Error("amqp:link:detach-forced", "every partition has its receiver")

    node.refuse = full
    async with asyncio.timeout(60), ConsumerClient(node.address, "trades", group="g", start=Start.earliest()):
        await eventually(lambda: asked > 5)
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [message for message in warned if "every partition" in message]


async def test_a_consumer_tells_it_too(node: TinyNode, caplog: pytest.LogCaptureFixture) -> None:
    node.log.append("0", [b"\x00\x53\x75\xa0\x01x"])
    async with asyncio.timeout(60), ConsumerClient(node.address, "trades", start=Start.earliest()) as consumer:
        assert len(await consumer.receive()) == 1
    assert any(": leader found at " in message for message in caplog.messages)


@pytest.mark.parametrize("way", ["plain", "idempotent", "batch"])
async def test_events_that_are_given_up_are_a_warning(
    node: TinyNode, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = ProducerClient(node.address, "trades") if way == "plain" else idempotent(node)
    async with asyncio.timeout(60), producer:
        node.after_transfers = lambda connection, partition, count: True
        async with impatient(producer):
            if way == "batch":
                with pytest.raises(UndeliveredError):
                    await producer.send_batch([b"1", b"2"], partition="0")
            else:
                await producer.send_many([b"1", b"2"], partition="0")
                await eventually(lambda: producer.stats.failed)
                with pytest.raises(UndeliveredError):
                    await producer.flush()
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage().startswith("trades, partition 0: 2 events were given up: none was confirmed for 0.3 s")


async def test_a_program_that_abandons_its_events_is_not_warned(
    node: TinyNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.after_transfers = lambda connection, partition, count: True
    for producer in (ProducerClient(node.address, "trades"), idempotent(node)):
        await producer.start()
        await producer.send(b"event", partition="0")
        await producer.abandon()
        assert not producer.outstanding
    assert not any(record.levelno > logging.INFO or "lost" in record.getMessage() for record in caplog.records)


async def test_a_handler_of_the_program_that_raises_keeps_no_outcome_from_its_owner(node: TinyNode) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise KeyError("no such place to log to")

    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
    handler, logger = Broken(), logging.getLogger("holdfast.client")
    async with asyncio.timeout(60), idempotent(node) as producer:
        await producer.send_and_confirm(b"before", partition="0")
        node.after_transfers = lambda connection, partition, count: True
        logger.addHandler(handler)
        try:
            async with impatient(producer):
                delivery = await producer.send(b"unanswered", partition="0")
                with pytest.raises(UndeliveredError):
                    await delivery
        finally:
            logger.removeHandler(handler)
        node.after_transfers = None
        await producer.send_and_confirm(b"after", partition="0")
    assert problems
    assert all(isinstance(problem, KeyError) for problem in problems)
