"""Batches, deliveries and the buffer, of any producer: what fits, what is told to whom, what waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from holdfast.amqp import decode_message
from holdfast.amqp.key_partitioner import partition_index
from holdfast.amqp.links.delivery_states import ACCEPTED
from holdfast.client import (
    BatchFullError,
    BufferFullError,
    ClosedError,
    ConfigurationError,
    Event,
    EventTooLargeError,
    InvalidOperationError,
    NotFoundError,
    ProducerClient,
    ProducerOptions,
    RejectedError,
    UndeliveredError,
)
from holdfast.client.produce import accumulator
from holdfast.client.produce.delivery import Delivery
from tests.unit.client.support.patience import impatient
from tests.unit.client.support.tiny_node import REJECTED, TinyNode

# ------------------------------------------------------------------------------------------------ batches


async def test_a_batch_refuses_what_does_not_fit(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades", idempotent=False) as producer:
        batch = await producer.create_batch(partition="1", max_bytes=1000)
        for _ in range(3):
            assert batch.try_add(bytes(300))
        assert not batch.try_add(bytes(300))
        with pytest.raises(BatchFullError, match="3 events"):
            batch.add(bytes(300))
        assert batch.try_add(b"small")
        with pytest.raises(EventTooLargeError):
            batch.try_add(bytes(1000))
        assert (len(batch), batch.partition) == (4, "1")
        assert batch.size_bytes <= batch.max_bytes
        result = await producer.send_batch(batch)
        assert (result.partition, result.count, result.sequence_number, result.offset) == ("1", 4, None, None)
    assert len(node.log.bodies("1")) == 4


async def test_a_batch_for_a_key_goes_where_the_key_goes_and_carries_it(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        batch = await producer.create_batch(key="IBM")
        batch.add("text")
        batch.add(Event(b"with properties", properties={"colour": "blue"}))
        batch.add(Event(b"same key", key="IBM"))
        with pytest.raises(ConfigurationError, match="does not belong"):
            batch.add(Event(b"other key", key="AAPL"))
        result = await producer.send_batch(batch)
    partition = str(partition_index("IBM", 4))
    assert result.partition == partition
    messages = [decode_message(payload) for _, payload in node.log.partitions[partition]]
    assert [message.body for message in messages] == [b"text", b"with properties", b"same key"]
    assert {message.message_annotations["event-streams-group-key"] for message in messages} == {"IBM"}
    assert messages[1].application_properties == {"colour": "blue"}


async def test_a_list_of_events_is_a_batch_too(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades", idempotent=False) as producer:
        assert (await producer.send_batch(["a", b"b", Event("c", key="k")], partition="2")).count == 3
        assert (await producer.send_batch([], partition="2")).count == 0
        whole = await producer.send_batch([f"{n}" for n in range(10)])  # all of it where it is the turn
        assert whole.partition is not None
        await producer.send_batch([f"{n}" for n in range(10)], key="IBM")
    assert node.log.bodies("2")[:3] == [b"a", b"b", b"c"]


async def test_a_plain_batch_is_locked_only_while_it_is_sent(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades", idempotent=False) as producer:
        batch = await producer.create_batch(partition="0")
        batch.add("once")
        sending = asyncio.create_task(producer.send_batch(batch))
        await asyncio.sleep(0)
        with pytest.raises(InvalidOperationError):
            batch.add("meanwhile")
        with pytest.raises(InvalidOperationError):
            await producer.send_batch(batch)
        await sending
        batch.add("more")
        await producer.send_batch(batch)
    assert node.log.bodies("0") == [b"once", b"once", b"more"]


async def test_wrong_use_of_batches_is_refused(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        with pytest.raises(ConfigurationError):
            await producer.create_batch(partition="0", key="k")
        with pytest.raises(ConfigurationError):
            await producer.create_batch(max_bytes=0)
        with pytest.raises(NotFoundError):
            await producer.create_batch(partition="9")
        batch = await producer.create_batch(partition="0")
        batch.add("x")
        with pytest.raises(ConfigurationError):
            await producer.send_batch(batch, partition="1")
        with pytest.raises(ConfigurationError):
            batch.add(17)  # type: ignore[arg-type]
    with pytest.raises(ClosedError):
        await producer.send_batch(batch)
    with pytest.raises(ClosedError):
        await producer.create_batch()


async def test_a_batch_of_which_some_fail_says_how_many(node: TinyNode) -> None:
    node.answer = lambda payload: REJECTED if b"bad" in payload else ACCEPTED
    async with ProducerClient(node.address, "trades", idempotent=False) as producer:
        with pytest.raises(RejectedError) as caught:
            await producer.send_batch(["good", "bad", "bad", "good"], partition="0")
        assert caught.value.__notes__ == ["2 of the 4 events failed; this is the first failure"]
        await producer.flush()  # it was told once, to him who asked
    assert node.log.bodies("0") == [b"good", b"good"]


async def test_many_batches_at_once_are_pipelined_in_order(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        batches = [[f"{n}:{m}" for m in range(300)] for n in range(10)]
        await asyncio.gather(*(producer.send_batch(batch, partition="0") for batch in batches))
    assert node.log.bodies("0") == [body.encode() for batch in batches for body in batch]


# ------------------------------------------------------------------------------------------------ deliveries


async def test_a_delivery_can_be_awaited_before_and_after_and_by_several(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        delivery = await producer.send(b"x", key="IBM")
        assert not delivery.is_done
        first, second = await asyncio.gather(delivery, delivery)
        assert first == second
        assert first.partition == str(partition_index("IBM", 4))
        assert await delivery == first


async def test_giving_up_on_a_delivery_harms_nobody(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        delivery = await producer.send(b"x", partition="0")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(_result(delivery)), 0)
        assert (await delivery).partition == "0"


async def _result(delivery: object) -> object:
    return await delivery  # type: ignore[misc]


async def test_a_failure_is_told_once_to_whoever_asks_first(node: TinyNode) -> None:
    node.answer = lambda payload: REJECTED if b"bad" in payload else ACCEPTED
    async with ProducerClient(node.address, "trades") as producer:
        asked, unasked = await producer.send(b"bad 1", partition="0"), await producer.send(b"bad 2", partition="0")
        told: list[object] = []
        await producer.send(b"bad 3", partition="0", done=told.append)
        with pytest.raises(RejectedError):
            await asked
        with pytest.raises(RejectedError):
            await producer.flush()
        await producer.flush()
        assert isinstance(unasked.error, RejectedError)
        assert [type(error) for error in told] == [RejectedError]


@pytest.mark.parametrize("problem", [ZeroDivisionError(), asyncio.CancelledError()], ids=repr)
async def test_a_callback_that_fails_does_not_end_the_connection(node: TinyNode, problem: BaseException) -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(str(context["message"])))

    def careless(error: object) -> None:
        raise problem

    async with ProducerClient(node.address, "trades") as producer:
        await producer.send(b"1", partition="0", done=careless)
        await producer.send(b"2", partition="0")
        await producer.flush()
        assert producer.stats.attached == 1
    assert reported == ["a callback of a delivery failed"]


@pytest.mark.parametrize("how", ["send_and_confirm", "await one", "await many", "send_batch"])
async def test_flush_raises_what_failed_after_its_wait_was_cancelled(node: TinyNode, how: str) -> None:
    """Who stopped waiting did not hear of it."""
    node.answer = lambda payload: REJECTED

    async def publish(producer: ProducerClient) -> None:
        if how == "send_and_confirm":
            await producer.send_and_confirm(b"x", partition="0")
        elif how == "await one":
            await (await producer.send(b"x", partition="0"))
        elif how == "await many":
            await (await producer.send_many([b"x"] * 5, partition="0"))
        else:
            await producer.send_batch([b"x"] * 5, partition="0")

    async with ProducerClient(node.address, "trades", idempotent=how != "send_batch") as producer:
        waiting = asyncio.create_task(publish(producer))
        while not producer.outstanding:  # noqa: ASYNC110 - it is cancelled before it is answered
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        assert producer.outstanding, "it was not answered before"
        with pytest.raises(RejectedError):
            await producer.flush()
        await producer.flush()


@pytest.mark.parametrize("count", [1, 5])
async def test_a_failure_that_was_known_when_its_wait_was_cancelled_is_not_lost(node: TinyNode, count: int) -> None:
    node.answer = lambda payload: REJECTED
    async with ProducerClient(node.address, "trades") as producer:
        delivery: Delivery = await (
            producer.send(b"x", partition="0") if count == 1 else producer.send_many([b"x"] * count, partition="0")
        )
        waiting = asyncio.ensure_future(_until(delivery))
        while not delivery.is_done:  # noqa: ASYNC110 - it is cancelled in the very turn in which it is settled
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if waiting.cancelled():
            with pytest.raises(RejectedError):
                await producer.flush()
        else:
            assert isinstance(waiting.exception(), RejectedError)


async def _until(delivery: Awaitable[object]) -> object:
    return await delivery


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("body", ["text", None, bytearray(b"x")], ids=repr)
async def test_an_event_whose_body_was_changed_is_refused_when_it_is_given(
    node: TinyNode, idempotent: bool, body: Any
) -> None:
    event = Event(b"x")
    event.body = body
    async with ProducerClient(node.address, "trades", ProducerOptions(idempotent=idempotent)) as producer:
        with pytest.raises(ConfigurationError, match="body"):
            await producer.send(event, partition="0")
        with pytest.raises(ConfigurationError, match="body"):
            await producer.send_many([b"y", event], partition="0")
        await producer.send(b"good", partition="0")
        await producer.flush()
        assert producer.outstanding == 0
    assert node.log.bodies("0")[-1] == b"good"


@pytest.mark.parametrize("problem", [ZeroDivisionError(), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("batch", [False, True])
async def test_an_on_confirmed_that_fails_stops_nothing(
    node: TinyNode, idempotent: bool, batch: bool, problem: BaseException
) -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(str(context["message"])))

    def careless(partition: str | None, events: int) -> None:
        raise problem

    async with ProducerClient(node.address, "trades", ProducerOptions(idempotent=idempotent)) as producer:
        producer.on_confirmed = careless
        for _ in range(2):
            if batch:
                filled = await producer.create_batch(partition="0")
                filled.add(b"1")
                await producer.send_batch(filled)
            else:
                await producer.send(b"1", partition="0")
                await producer.flush()
        assert producer.outstanding == 0
        assert producer.stats.attached == 1
        assert producer.stats.resent == 0
    assert len(node.log.bodies("0")) == 2
    assert reported == ["a callback of confirmed events failed"] * 2


# ------------------------------------------------------------------------------------------------ the buffer


@pytest.mark.parametrize("idempotent", [False, True])
async def test_back_pressure_reaches_the_program(
    node: TinyNode, idempotent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accumulator, "STUCK_AFTER_S", 1e9)  # what the silent partition holds counts until the end
    node.after_transfers = lambda connection, partition, count: True
    options = ProducerOptions(max_buffered_events=100, idempotent=idempotent)
    async with asyncio.timeout(40), ProducerClient(node.address, "trades", options) as producer:
        for _ in range(100):
            producer.send_nowait(b"x", partition="0")
        with pytest.raises(BufferFullError, match="unconfirmed"):
            producer.send_nowait(b"x", partition="0")
        waiting = asyncio.create_task(producer.send(b"waits", partition="0"))
        await asyncio.sleep(3 * accumulator.LOOK_AGAIN_S)
        assert not waiting.done()
        assert producer.outstanding == 100
        node.after_transfers = None
        node.close_links(None)  # the first 100 are sent again, and are answered this time
        await waiting
        await producer.flush()
    assert len(node.log.bodies("0")) == 101


@pytest.mark.parametrize("idempotent", [False, True])
async def test_events_that_are_given_up_are_told(node: TinyNode, idempotent: bool) -> None:
    node.after_transfers = lambda connection, partition, count: True
    options = ProducerOptions(idempotent=idempotent)
    async with ProducerClient(node.address, "trades", options) as producer, impatient(producer):
        delivery = await producer.send(b"x", partition="0")
        with pytest.raises(UndeliveredError):
            await delivery
        await producer.send(b"y", partition="0")
        with pytest.raises(UndeliveredError):
            await producer.flush()
        assert producer.stats.failed == 2
