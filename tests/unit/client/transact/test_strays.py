"""A producer takes no events of its own while a transaction of it is open: they would not be part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.client import ClosedError, InvalidOperationError, ProducerClient, sync
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def nowait(producer: ProducerClient) -> None:
    producer.send_nowait(b"stray")


STRAYS: dict[str, Callable[[ProducerClient], Awaitable[object]]] = {
    "send": lambda producer: producer.send(b"stray"),
    "send_nowait": nowait,
    "send_many": lambda producer: producer.send_many([b"stray"]),
    "send_and_confirm": lambda producer: producer.send_and_confirm(b"stray"),
    "send_batch": lambda producer: producer.send_batch([b"stray"]),
}


@pytest.mark.parametrize("stray", STRAYS)
async def test_what_would_not_be_part_of_the_open_transaction_is_refused(nodes: Nodes, stray: str) -> None:
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer:
        await producer.send_and_confirm(b"before")
        async with producer.transaction() as tx:
            await tx.send(b"inside")
            with pytest.raises(InvalidOperationError, match="would not be part of it") as refused:
                await STRAYS[stray](producer)
            assert "tx.send" in refused.value.advice
            batch = await producer.create_batch()
            assert batch.try_add(b"batch")
            await tx.send_batch(batch)
        await producer.flush()
        assert await bodies(nodes, log) == [b"before", b"inside", b"batch"]
        await STRAYS[stray](producer)
        await producer.flush()
        tx = producer.transaction()
        with pytest.raises(InvalidOperationError, match="not begun"):
            await tx.send(b"early")
        await producer.send_and_confirm(b"not begun")
        await tx.begin()
        await tx.abort()
        await producer.send_and_confirm(b"aborted")
    assert await bodies(nodes, log) == [b"before", b"inside", b"batch", b"stray", b"not begun", b"aborted"]
    with pytest.raises(ClosedError):
        await STRAYS[stray](producer)


async def test_the_rest_of_a_call_that_waits_is_refused_too(nodes: Nodes) -> None:
    """It began before the transaction, and goes on within it."""
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer:
        room = asyncio.Event()
        accumulator = producer._accumulator

        async def full() -> None:
            await room.wait()

        accumulator.wait_for_room, before = full, accumulator.wait_for_room  # type: ignore[method-assign]
        sending = asyncio.create_task(producer.send_batch([b"stray"]))
        await asyncio.sleep(0)
        async with producer.transaction() as tx:
            await tx.send(b"inside")
            room.set()
            with pytest.raises(InvalidOperationError, match="would not be part of it"):
                await sending
        accumulator.wait_for_room = before  # type: ignore[method-assign]
    assert await bodies(nodes, log) == [b"inside"]


async def test_the_synchronous_twin_refuses_too(nodes: Nodes) -> None:
    log = await nodes.log(1)

    def work() -> None:
        with sync.ProducerClient(nodes.servers, log) as producer, producer.transaction() as tx:
            tx.send(b"inside")
            with pytest.raises(InvalidOperationError, match="would not be part of it"):
                producer.send(b"stray")

    await asyncio.to_thread(work)
    assert await bodies(nodes, log) == [b"inside"]
