"""Closing is done to its end, whoever stops waiting for it; and once, whoever asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from holdfast.client import (
    AdminClient,
    ConsumerClient,
    ProducerClient,
    RangeClient,
    TransactionGroup,
    UndeliveredError,
)
from holdfast.client.transport.connection import ClientConnection
from holdfast.client.transport.network import Network
from holdfast.client.waits.close_once import CloseOnce
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import WAIT_S, eventually


class Client(Protocol):
    async def close(self) -> None: ...


KINDS: dict[str, Callable[[str], Any]] = {
    "producer": lambda servers: ProducerClient(servers, "trades"),
    "consumer": lambda servers: ConsumerClient(servers, "trades"),
    "administration": AdminClient,
    "ranges": RangeClient,
    "group": lambda servers: TransactionGroup(servers, writer="w", batch=1, run="r"),
}


async def connected(client: Any) -> ClientConnection:
    """The client's connection to the one server that it has."""
    network: Network = client._partitions._network if isinstance(client, ProducerClient) else client._network
    if isinstance(client, ProducerClient | ConsumerClient):
        await client.start()
    return await network.connection(network._configured[0])


async def half_closed(client: Client, connection: ClientConnection) -> asyncio.Task[None]:
    """A task that closes the client, and waits for a socket that takes nothing now."""
    connection.pause_writing()
    closing = asyncio.create_task(client.close())
    await eventually(lambda: connection._closing)
    assert not closing.done()
    return closing


@pytest.mark.parametrize("kind", KINDS)
async def test_a_close_that_is_cancelled_is_done_to_its_end(
    node: TinyNode, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.transport.connection.CLOSE_BOUND_S", 0.3)  # nothing is to be taken in it
    client = KINDS[kind](node.address)
    connection = await connected(client)
    closing = await half_closed(client, connection)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(5):  # before the node is missed, which would end it, too
        await connection._closed  # though nobody asks for it a second time


@pytest.mark.parametrize("kind", KINDS)
async def test_a_second_close_waits_for_what_the_first_has_begun(node: TinyNode, kind: str) -> None:
    client = KINDS[kind](node.address)
    connection = await connected(client)
    closing = await half_closed(client, connection)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    second = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    assert not second.done()
    connection.resume_writing()
    async with asyncio.timeout(WAIT_S):
        await second
    assert connection._closed.done()


async def test_a_producer_whose_close_was_cancelled_lets_go_of_its_events(node: TinyNode) -> None:
    """A timeout around close, as the events are never confirmed."""
    node.after_transfers = lambda connection, partition, count: True
    producer = ProducerClient(node.address, "trades")
    await producer.start()
    delivery = await producer.send("never answered", partition="0")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await producer.close()
    with pytest.raises(UndeliveredError):
        await producer.close()
    assert producer.outstanding == 0
    assert delivery.is_done
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("partition sender")]


async def test_what_letting_go_raises_is_raised_to_the_first_who_is_there_to_hear_it() -> None:
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise OSError("the disk is full")

    release = CloseOnce(work, "work")
    first = asyncio.create_task(release.done())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go.set()
    with pytest.raises(OSError, match="full"):
        await release.done()
    await release.done()


async def test_who_has_stopped_waiting_for_a_consumer_to_close_waits_for_it_the_second_time(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = ConsumerClient(node.address, "trades")
    may_end, has_ended = asyncio.Event(), asyncio.Event()

    async def close_slowly(self: Network) -> None:
        await may_end.wait()
        has_ended.set()

    await consumer.start()
    network = consumer._network
    with monkeypatch.context() as patch:
        patch.setattr(Network, "close", close_slowly)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await consumer.close()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        async with asyncio.timeout(WAIT_S):  # in the same task
            await consumer.close()
        assert has_ended.is_set()
    await network.close()
