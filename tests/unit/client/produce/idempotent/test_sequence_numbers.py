"""Which number an event gets, and that it keeps it in every attempt and at every leader (IP-3, 4, 10 to 14)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.amqp import decode_message
from holdfast.amqp.links.delivery_states import ACCEPTED
from holdfast.client import Event, InvalidOperationError, ProducerClient
from holdfast.client.options import MAX_SEQUENCE
from tests.unit.client.support.idempotent import (
    batch_of,
    drop_connection_once,
    idempotent,
    last,
    lose_answers,
)
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually


async def test_ip_3_partitions_have_numbers_of_their_own_and_publish_at_the_same_time(node: TinyNode) -> None:
    held: list[Any] = []

    def hold_partition_zero(connection: Any, partition: str, count: int) -> bool:
        if partition == "0":
            held.append(connection)
        return partition == "0"

    node.after_transfers = hold_partition_zero
    async with idempotent(node, starting_sequence_number=40) as producer:
        stuck = asyncio.create_task(producer.send_batch([b"0"], partition="0"))
        await producer.send_batch([b"1", b"2"], partition="1")  # is not held up
        assert not stuck.done()
        assert await last(producer, "1") == 2
        assert await last(producer, "0") == 40
        await eventually(lambda: held)
        node.after_transfers = None
        held[0].abort()
        await stuck
        await producer.send_batch([b"3"], partition="1")
    assert node.log.numbers("0") == [41]
    assert node.log.numbers("1") == [1, 2, 3]


NAMED = pytest.mark.parametrize("own", [{}, {"owner_level": 0}], ids=["unnamed", "named"])


@NAMED
async def test_ip_4_one_publish_at_a_time_and_the_others_wait_in_line(node: TinyNode, own: dict[str, int]) -> None:
    seen: list[bytes] = []
    node.answer = lambda payload: (seen.append(decode_message(payload).body), ACCEPTED)[1]  # type: ignore[arg-type,func-returns-value]
    async with idempotent(node, **own) as producer:
        names = [f"{name}".encode() for name in range(8)]
        batches = [[name + b":" + str(n).encode() for n in range(600)] for name in names]  # more than one credit
        await asyncio.gather(*(producer.send_batch(batch, partition="0") for batch in batches))
    assert seen == [body for batch in batches for body in batch], "batches came one after the other, in order"
    assert node.log.numbers("0") == list(range(1, 8 * 600 + 1))


@NAMED
async def test_ip_4_nothing_is_sent_beside_a_batch_of_who_has_a_name(node: TinyNode, own: dict[str, int]) -> None:
    held: list[Any] = []

    def hold(connection: Any, partition: str, count: int) -> bool:
        held.extend([connection] * count)
        return True

    async with idempotent(node, named=bool(own), **own) as producer:
        await producer.send_batch([b"1"], partition="0")
        node.after_transfers = hold
        publishing = [asyncio.create_task(producer.send_batch([b"2"], partition="0"))]
        await eventually(lambda: held)
        single = await producer.send(b"3", partition="0")
        publishing += [asyncio.create_task(producer.send_batch([body], partition="0")) for body in (b"4", b"5")]
        if own:
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(held) == 1
        else:
            await eventually(lambda: len(held) == 4)
        node.after_transfers = None
        held[0].abort()
        numbers = [result.sequence_number for result in await asyncio.gather(*publishing)]
        assert (numbers, (await single).sequence_number) == ([2, 4, 5], 3)
    assert node.log.bodies("0") == [b"1", b"2", b"3", b"4", b"5"]


async def test_ip_4_the_buffer_and_batches_take_turns(node: TinyNode) -> None:
    async with idempotent(node) as producer:

        async def singles() -> None:
            for n in range(3000):
                await producer.send(f"single {n}", partition="0")

        async def batches() -> None:
            for n in range(10):
                await producer.send_batch([f"batch {n} {m}" for m in range(50)], partition="0")

        await asyncio.gather(singles(), batches())
        await producer.flush()
        assert producer.stats.accepted == 3500
    assert node.log.numbers("0") == list(range(1, 3501))
    bodies = node.log.bodies("0")
    for n in range(10):
        first = bodies.index(f"batch {n} 0".encode())
        assert bodies[first : first + 50] == [f"batch {n} {m}".encode() for m in range(50)], "nobody came between"
    assert [body for body in bodies if body.startswith(b"single")] == [f"single {n}".encode() for n in range(3000)]


async def test_ip_10_numbers_are_given_when_sending_so_batches_go_in_any_order(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        first, second = await batch_of(producer, b"a", b"b"), await batch_of(producer, b"c")
        assert first.starting_published_sequence_number is second.starting_published_sequence_number is None
        await producer.send_batch(second)
        await producer.send_batch(first)
        assert (second.starting_published_sequence_number, first.starting_published_sequence_number) == (1, 2)
    assert node.log.bodies("0") == [b"c", b"a", b"b"]


async def test_ip_10_numbers_cost_the_events_of_a_batch_no_room(node: TinyNode) -> None:
    async with idempotent(node, starting_sequence_number=MAX_SEQUENCE - 3) as producer:
        batch = await producer.create_batch(partition="0", max_bytes=5 * 105)
        assert [batch.try_add(bytes(100)) for _ in range(6)] == [True] * 5 + [False]
        await producer.send_batch(batch)
    assert node.log.numbers("0") == [MAX_SEQUENCE - 2, MAX_SEQUENCE - 1, MAX_SEQUENCE, 0, 1]


async def test_ip_10_numbers_run_over_from_the_largest_to_zero(node: TinyNode) -> None:
    async with idempotent(node, starting_sequence_number=MAX_SEQUENCE) as producer:
        assert (await producer.send_batch([b"x"], partition="0")).sequence_number == 0
        assert await last(producer) == 0


@pytest.mark.parametrize("stored", [True, False], ids=["the answer got lost", "the events got lost"])
async def test_ip_11_numbers_are_the_same_in_every_attempt(node: TinyNode, stored: bool) -> None:
    node.after_transfers = drop_connection_once()
    if stored:
        lose_answers(node, 2)
        node.after_transfers = None
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1", b"2", b"3")
        await producer.send_batch(batch)
        assert batch.starting_published_sequence_number == 1
        assert await last(producer) == 3
    assert node.log.numbers("0") == [1, 2, 3]
    assert node.log.bodies("0") == [b"1", b"2", b"3"]
    assert (node.log.producers.duplicates > 0) == stored


async def test_ip_11_numbers_are_the_same_at_another_leader(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    seen = 0

    def store_and_crash(payload: bytes) -> Any:
        nonlocal seen
        seen += 1
        if seen == 300:
            first.lead()
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(second.crash()))
        return ACCEPTED

    second.answer = store_and_crash
    servers = [first.address, second.address]
    async with ProducerClient(servers, "trades", idempotent=True) as producer:
        for n in range(10):
            await producer.send_batch([f"{n}:{m}" for m in range(100)], partition="3")
        assert await last(producer, "3") == 1000
        assert producer.stats.attached == 2
    assert first.log.numbers("3") == list(range(1, 1001))
    assert first.log.bodies("3") == [f"{n}:{m}".encode() for n in range(10) for m in range(100)]


async def test_ip_11_buffered_events_keep_their_numbers_too(node: TinyNode) -> None:
    connections: list[Any] = []

    def cut_sometimes(connection: Any, partition: str, count: int) -> bool:
        if len(node.log.partitions["0"]) > 700 * (len(connections) + 1) and len(connections) < 4:
            connections.append(connection)
            asyncio.get_running_loop().call_soon(connection.abort)
        return False

    node.after_transfers = cut_sometimes
    async with idempotent(node) as producer:
        deliveries = [await producer.send(f"{n}", partition="0") for n in range(5000)]
        await producer.flush()
        assert [delivery.sequence_number for delivery in deliveries] == list(range(1, 5001))
        assert (await deliveries[-1]).sequence_number == 5000
    assert len(connections) == 4
    assert node.log.bodies("0") == [f"{n}".encode() for n in range(5000)], "each once, in order"


async def test_ip_12_what_was_published_is_not_published_again(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"x")
        await producer.send_batch(batch)
        with pytest.raises(InvalidOperationError, match="published before"):
            await producer.send_batch(batch)
        events = [Event(b"1"), Event(b"2")]
        await producer.send_batch(events, partition="0")
        assert [event.published_sequence_number for event in events] == [2, 3]
        for again in ([events[1]], [Event(b"new"), events[0]]):
            with pytest.raises(InvalidOperationError, match="published before, with number"):
                await producer.send_batch(again, partition="0")
        with pytest.raises(InvalidOperationError):
            await producer.send(events[0], partition="1")
        fresh = Event(b"3")
        await producer.send_and_confirm(fresh, partition="0")
        assert fresh.published_sequence_number == 4
        with pytest.raises(InvalidOperationError):
            await producer.send(fresh, partition="0")
        twice = Event(b"4")
        with pytest.raises(InvalidOperationError, match="twice"):
            await producer.send_batch([twice, twice], partition="0")
        await producer.send_batch([twice], partition="0")
    assert node.log.numbers("0") == [1, 2, 3, 4, 5]


async def test_ip_12_what_is_being_published_is_not_published_a_second_time(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch, event = await batch_of(producer, b"x"), Event(b"y")
        first = asyncio.create_task(producer.send_batch(batch))
        second = asyncio.create_task(producer.send_batch([event], partition="0"))
        await asyncio.sleep(0)
        with pytest.raises(InvalidOperationError, match="is being published"):
            await producer.send_batch(batch)
        with pytest.raises(InvalidOperationError, match="being published"):
            await producer.send_batch([event], partition="1")
        await asyncio.gather(first, second)
    assert node.log.bodies("0") == [b"x", b"y"]
    assert node.log.bodies("1") == []


async def test_ip_13_a_batch_is_locked_while_and_after_it_is_published(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"x")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await asyncio.sleep(0)
        assert batch.is_locked
        with pytest.raises(InvalidOperationError, match="locked"):
            batch.try_add(b"y")
        await publishing
        assert batch.is_locked
        assert batch.is_published
        with pytest.raises(InvalidOperationError, match="locked"):
            batch.add(b"y")
        assert len(batch) == 1


async def test_ip_14_success_keeps_the_numbers_and_moves_the_state_on(node: TinyNode) -> None:
    lose_answers(node, 3)  # the node stores them, and answers "known" when they come again
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1", b"2", b"3")
        result = await producer.send_batch(batch)
        assert (result.partition, result.sequence_number, result.count, result.offset) == ("0", 1, 3, None)
        assert batch.starting_published_sequence_number == 1
        assert await last(producer) == 3
        assert node.log.producers.duplicates == 3
        events = [Event(b"4"), Event(b"5")]
        assert (await producer.send_batch(events, partition="0")).sequence_number == 4
        assert await last(producer) == 5
        assert (await producer.send_batch([], partition="0")).count == 0
        assert await last(producer) == 5
