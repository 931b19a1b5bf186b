"""`async for event in consumer`: what the loop was given is handed out, and nothing else."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.client import (
    ClosedError,
    ConsumerClient,
    ConsumerOptions,
    InvalidOperationError,
    Start,
    encode_event,
    sync,
)
from holdfast.client.consume.prefetched_events import LentEvents
from holdfast.client.events import ReceivedEvent
from tests.unit.client.support.tiny_node import TinyNode

UNTIL_END = ConsumerOptions(until_end=True)


def fill(node: TinyNode, partition: str, count: int) -> None:
    node.log.append(partition, [encode_event(b"%d" % number) for number in range(count)])


def at(number: int) -> str:
    return f"{number:016x}"


async def some(consumer: ConsumerClient, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(20):
        async for event in consumer:
            found.append(int(event.body))
            if len(found) == count:
                break
    return found


async def test_a_loop_that_is_left_drops_nothing(node: TinyNode) -> None:
    fill(node, "0", 100)
    where = {"start": Start.earliest(), "partitions": ["0"], "options": UNTIL_END}
    async with ConsumerClient(node.address, "trades", **where) as consumer:  # type: ignore[arg-type]
        assert await some(consumer, 3) == [0, 1, 2]
        assert consumer.positions == {"0": at(2)}
        assert await consumer.lag() == {"0": 97}
        assert not consumer.at_end
        assert await some(consumer, 2) == [3, 4]
        assert [int(event.body) for event in await consumer.receive(5)] == [5, 6, 7, 8, 9]
        assert consumer.positions == {"0": at(9)}
        assert await some(consumer, 1000) == list(range(10, 100))
        assert consumer.at_end
        assert consumer.positions == {"0": at(99)}


async def test_a_pause_within_the_loop_counts_at_once(node: TinyNode) -> None:
    fill(node, "0", 50)
    fill(node, "1", 50)
    where = {"start": Start.earliest(), "partitions": ["0", "1"], "options": UNTIL_END}
    found: dict[str, list[int]] = {"0": [], "1": []}
    async with ConsumerClient(node.address, "trades", **where) as consumer, asyncio.timeout(20):  # type: ignore[arg-type]
        async for event in consumer:
            found[event.partition].append(int(event.body))
            if event.partition == "0" and len(found["0"]) == 5:
                consumer.pause("0")
            if len(found["1"]) == 50 and consumer.paused:
                assert len(found["0"]) in (0, 5)
                consumer.resume("0")
    assert found == {"0": list(range(50)), "1": list(range(50))}


async def test_a_reader_of_one_event_at_a_time_is_given_more(node: TinyNode) -> None:
    """What is lent and taken back counts as buffered, once."""
    fill(node, "0", 100)
    few = ConsumerOptions(until_end=True, prefetch=4)
    async with ConsumerClient(
        node.address, "trades", start=Start.earliest(), partitions=["0"], options=few
    ) as consumer:
        assert [await some(consumer, 1) for _ in range(99)] == [[number] for number in range(99)]
        assert [int(event.body) for event in await consumer.receive()] == [99]
    assert node.most_granted <= 4


async def test_a_second_loop_goes_on_where_the_first_was_left(node: TinyNode) -> None:
    fill(node, "0", 100)
    async with ConsumerClient(
        node.address, "trades", start=Start.earliest(), partitions=["0"], options=UNTIL_END
    ) as consumer:
        first = await some(consumer, 1)
        other = [event async for event in consumer]
    assert first + [int(event.body) for event in other] == list(range(100))


async def test_a_loop_without_a_loop_of_events(node: TinyNode) -> None:
    fill(node, "0", 100)

    def work() -> None:
        with sync.ConsumerClient(
            node.address, "trades", start=Start.earliest(), partitions=["0"], options=UNTIL_END
        ) as consumer:
            for number, event in enumerate(consumer):
                assert consumer.positions == {"0": at(number)} == {"0": event.offset}
                if number == 2:
                    break
            assert consumer.lag() == {"0": 97}
            assert not consumer.at_end
            assert [int(event.body) for event in consumer.receive(2)] == [3, 4]
            assert [int(event.body) for event in consumer] == list(range(5, 100))
            assert consumer.at_end

    await asyncio.to_thread(work)


def test_an_event_is_given_or_taken_back() -> None:
    """By two threads at once: none twice, none lost."""
    events = [ReceivedEvent("0", at(number), 0, b"", 0) for number in range(2000)]
    for _ in range(50):
        lent, given = LentEvents(None, events), []  # type: ignore[arg-type]
        begun = threading.Event()

        def give(lent: LentEvents = lent, given: list[ReceivedEvent] = given, begun: threading.Event = begun) -> None:
            for event in lent:
                given.append(event)
                begun.set()

        thread = threading.Thread(target=give)
        thread.start()
        begun.wait()
        back = lent.take_back()
        thread.join()
        assert given + back == events
        assert lent.is_done
        assert lent.count() == lent.offset == given[-1].offset
        assert lent.count() is None


async def test_nothing_is_given_to_a_loop_or_a_call_once_the_consumer_is_closed(node: TinyNode) -> None:
    fill(node, "0", 50)
    found = 0

    async def close_at_the_third(consumer: ConsumerClient) -> None:
        nonlocal found
        async for _ in consumer:
            found += 1
            if found == 3:
                await consumer.close()

    consumer = ConsumerClient(node.address, "trades", start=Start.earliest(), partitions=["0"])
    async with asyncio.timeout(20):
        await consumer.start()
        with pytest.raises(ClosedError):
            await close_at_the_third(consumer)
        assert found == 3
        with pytest.raises(ClosedError):
            await consumer.receive(timeout_s=1)


async def test_a_consumer_that_was_not_started_says_so_instead_of_waiting_for_ever(node: TinyNode) -> None:
    consumer = ConsumerClient(node.address, "trades", start=Start.earliest())
    for call in (consumer.receive(), anext(aiter(consumer))):
        with pytest.raises(InvalidOperationError, match="not started"):
            await call
    await consumer.close()


async def test_a_consumer_that_was_read_to_its_end_stays_at_its_end(node: TinyNode) -> None:
    fill(node, "0", 5)
    where = {"start": Start.earliest(), "partitions": ["0"], "options": UNTIL_END}
    async with ConsumerClient(node.address, "trades", **where) as consumer, asyncio.timeout(20):  # type: ignore[arg-type]
        assert await some(consumer, 10) == [0, 1, 2, 3, 4]
    assert consumer.at_end
    assert await consumer.receive(timeout_s=1) == []
