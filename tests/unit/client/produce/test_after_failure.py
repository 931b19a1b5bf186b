"""Nothing is stored behind a missing event unless the program has heard of it: what `send` does after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.amqp import Error
from holdfast.amqp.links.delivery_states import ACCEPTED
from holdfast.client import ConfigurationError, HoldfastError, ProducerClient, ProducerOptions, RejectedError, sync
from holdfast.client.errors import UndeliveredError
from holdfast.client.produce.failures import STOPPED
from tests.unit.client.support.idempotent import idempotent
from tests.unit.client.support.patience import IMPATIENT_S, impatient
from tests.unit.client.support.tiny_node import REJECTED, TinyNode
from tests.unit.listener.support.peer import eventually

Send = Callable[[ProducerClient, bytes], Awaitable[object]]


async def send_nowait(producer: ProducerClient, body: bytes) -> object:
    return producer.send_nowait(body, partition="0")


SENDS: dict[str, Send] = {
    "send": lambda producer, body: producer.send(body, partition="0"),
    "send_nowait": send_nowait,
    "send_many": lambda producer, body: producer.send_many([body], partition="0"),
    "send_batch": lambda producer, body: producer.send_batch([body], partition="0"),
    "send_and_confirm": lambda producer, body: producer.send_and_confirm(body, partition="0"),
}


def made(node: TinyNode, *, numbered: bool, **options: Any) -> ProducerClient:
    if numbered:
        return idempotent(node, **options)
    return ProducerClient(node.address, "trades", ProducerOptions(idempotent=False, **options))


async def give_up(producer: ProducerClient, node: TinyNode, send: Awaitable[object]) -> object:
    """What `send` sends to partition 0 is not answered, and given up; from then on the node is well."""
    node.after_transfers = lambda connection, partition, count: True
    async with impatient(producer):
        found = await send
        await eventually(lambda: producer.stats.failed)
        node.after_transfers = None
    return found


@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("name", SENDS)
async def test_once_an_event_was_given_up_each_call_raises_until_flush_has(
    node: TinyNode, numbered: bool, name: str
) -> None:
    send = SENDS[name]
    async with asyncio.timeout(60), made(node, numbered=numbered) as producer:
        await give_up(producer, node, producer.send(b"missing", partition="0"))
        for _ in range(2):
            with pytest.raises(UndeliveredError, match=r"1 events for .*partition 0 were not confirmed") as told:
                await send(producer, b"behind it")
        assert told.value.__notes__ == [STOPPED]
        with pytest.raises(UndeliveredError):
            await producer.flush()
        await producer.flush()  # it was told
        assert node.log.bodies("0") == []
        await send(producer, b"on purpose")
    assert node.log.bodies("0") == [b"on purpose"]


@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "idempotent"])
async def test_other_partitions_stop_as_well_and_close_raises_what_failed(node: TinyNode, numbered: bool) -> None:
    producer = made(node, numbered=numbered)
    await producer.start()
    async with asyncio.timeout(60):
        await give_up(producer, node, producer.send_many([b"missing", b"too"], partition="0"))
        with pytest.raises(UndeliveredError):
            await producer.send(b"behind it", partition="1")
        with pytest.raises(UndeliveredError):
            await producer.close()
    assert not any(node.log.bodies(partition) for partition in node.log.partitions)


@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "idempotent"])
async def test_what_was_taken_in_and_has_not_gone_out_fails_as_well(node: TinyNode, numbered: bool) -> None:
    async with asyncio.timeout(60), made(node, numbered=numbered) as producer:
        node.after_transfers = lambda connection, partition, count: True
        async with impatient(producer):
            await producer.send(b"missing", partition="0")
            producer._accumulator.pump()
            waiting = await producer.send(b"waits", partition="0")
            assert producer._accumulator._pumping is not None
            producer._accumulator._pumping.cancel()  # the turn in which it came is not over yet
            await eventually(lambda: producer.stats.failed)
            node.after_transfers = None
        with pytest.raises(UndeliveredError, match="1 events for"):
            await producer.flush()
        with pytest.raises(UndeliveredError, match="1 events were not sent, since one failed before") as told:
            await waiting
        assert isinstance(told.value.__cause__, UndeliveredError)
        assert producer.stats.failed == 2
        assert producer.outstanding == 0
    assert node.log.bodies("0") == []


@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "idempotent"])
async def test_a_long_call_ends_where_its_first_events_fail(node: TinyNode, numbered: bool) -> None:
    node.credit = 0
    options: dict[str, Any] = {"max_buffered_events": 10, "latency_target_s": None}
    async with asyncio.timeout(60), made(node, numbered=numbered, **options) as producer:
        async with impatient(producer):
            with pytest.raises(UndeliveredError):
                await producer.send_many([b"%d" % number for number in range(5000)], partition="0")
        with pytest.raises(UndeliveredError):
            await producer.flush()
        assert producer.stats.failed < 5000
    assert node.log.bodies("0") == []


@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "idempotent"])
async def test_a_failure_that_somebody_hears_of_stops_nothing(node: TinyNode, numbered: bool) -> None:
    told: list[HoldfastError | None] = []
    async with asyncio.timeout(60), made(node, numbered=numbered) as producer:
        await give_up(producer, node, producer.send(b"missing", partition="0", done=told.append))
        assert [type(error) for error in told] == [UndeliveredError]
        await producer.send(b"behind it", partition="0")
        await producer.flush()
    assert node.log.bodies("0") == [b"behind it"]


async def test_who_awaits_it_has_heard_of_it_before_or_afterwards(node: TinyNode) -> None:
    async with asyncio.timeout(60), ProducerClient(node.address, "trades") as producer:
        delivery = await give_up(producer, node, producer.send(b"missing", partition="0"))
        with pytest.raises(UndeliveredError):
            await producer.send(b"too early", partition="0")
        with pytest.raises(UndeliveredError):
            await delivery  # type: ignore[misc]
        await producer.send_and_confirm(b"behind it", partition="0")
        await producer.flush()
    assert node.log.bodies("0") == [b"behind it"]


async def test_who_was_cancelled_has_not_heard_of_it(node: TinyNode) -> None:
    async with asyncio.timeout(60), ProducerClient(node.address, "trades") as producer:
        node.after_transfers = lambda connection, partition, count: True
        async with impatient(producer):
            asked = asyncio.ensure_future(producer.send_and_confirm(b"missing", partition="0"))
            await eventually(lambda: producer.outstanding)
            asked.cancel()
            await eventually(lambda: producer.stats.failed)
        node.after_transfers = None
        with pytest.raises(UndeliveredError):
            await producer.send(b"behind it", partition="0")
        with pytest.raises(UndeliveredError):
            await producer.flush()


async def test_a_refused_event_stops_what_is_sent_when_it_is_known(node: TinyNode) -> None:
    node.answer = lambda payload: REJECTED if b"bad" in payload else ACCEPTED
    async with asyncio.timeout(60), ProducerClient(node.address, "trades") as producer:
        await producer.send(b"bad", partition="0")
        await producer.send(b"under way with it", partition="0")
        await eventually(lambda: producer.stats.rejected)
        with pytest.raises(RejectedError, match="not wanted"):
            await producer.send(b"behind it", partition="0")
        with pytest.raises(RejectedError):
            await producer.flush()
        await producer.send(b"on purpose", partition="0")
    assert node.log.bodies("0") == [b"under way with it", b"on purpose"]


@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "idempotent"])
async def test_a_program_may_choose_to_go_on(node: TinyNode, numbered: bool) -> None:
    async with asyncio.timeout(60), made(node, numbered=numbered, after_failure="continue") as producer:
        await give_up(producer, node, producer.send_many([b"missing"] * 1000, partition="0"))
        for send in SENDS.values():
            await send(producer, b"behind it")
        with pytest.raises(UndeliveredError, match="1000 events"):
            await producer.flush()
    assert node.log.bodies("0") == [b"behind it"] * len(SENDS)
    with pytest.raises(ConfigurationError, match="after_failure is one of raise, continue"):
        ProducerOptions(after_failure="stop").check()  # type: ignore[arg-type]


async def test_the_synchronous_twin_raises_too(node: TinyNode) -> None:
    node.after_transfers = lambda connection, partition, count: True

    def send_on(many: bool) -> None:
        options = ProducerOptions(delivery_timeout_s=IMPATIENT_S)
        with sync.ProducerClient(node.address, "trades", options) as producer:
            while True:
                if many:
                    producer.send_many([b"event"], partition="0")
                else:
                    producer.send(b"event", partition="0")

    def work() -> None:
        for many in (False, True):
            with pytest.raises(UndeliveredError):
                send_on(many)

    async with asyncio.timeout(60):
        await asyncio.to_thread(work)


async def test_who_may_not_publish_is_not_told_to_look_for_a_majority(node: TinyNode) -> None:
    node.refuse = lambda address, partition: Error("amqp:unauthorized-access", "'ann' may not") if partition else None
    for producer in (ProducerClient(node.address, "trades"), idempotent(node)):
        async with asyncio.timeout(60), producer:
            with pytest.raises(HoldfastError, match="'ann' may not") as told:
                await producer.send_and_confirm(b"event", partition="0")
            assert "grant" in told.value.advice
            with pytest.raises(HoldfastError, match="'ann' may not") as told:
                await producer.send_batch([b"event"], partition="0")
            assert "grant" in told.value.advice
