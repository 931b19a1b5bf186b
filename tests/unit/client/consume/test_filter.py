"""A consumer that asks for some of the events only; the nodes choose."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.client import (
    AdminClient,
    ConfigurationError,
    ConsumerClient,
    ConsumerOptions,
    Event,
    LinkRefusedError,
    ProducerClient,
    Start,
)
from holdfast.client import sync as threaded
from tests.unit.client.support.members import TinyMember
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.peer import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNTIL_END = ConsumerOptions(until_end=True, prefetch=20)
COUNT = 1000


async def filled(nodes: Nodes, partitions: int = 2) -> str:
    """Event n has the property n and, every third one, a colour."""
    log = await nodes.log(partitions)
    async with ProducerClient(nodes.servers, log) as producer:
        for partition in range(partitions):
            for number in range(COUNT):
                more = {"colour": "red" if number % 2 else "blue"} if number % 3 == 0 else {}
                await producer.send(Event(b"%d" % number, properties={"n": number, **more}), partition=str(partition))
    return log


async def numbers(nodes: Nodes, log: str, where: str, **more: Any) -> list[int]:
    """Of the events of partition 0 that pass, up to the end."""
    given = {"start": Start.earliest(), "partitions": ["0"], "options": UNTIL_END} | more
    async with asyncio.timeout(30), ConsumerClient(nodes.servers, log, filter=where, **given) as consumer:
        return [int(event.body) async for event in consumer]


async def test_only_what_passes_comes_and_the_end_is_found_although_it_does_not_pass(nodes: Nodes) -> None:
    log = await filled(nodes)
    assert await numbers(nodes, log, "a.n >= 990") == list(range(990, 1000))
    assert await numbers(nodes, log, "a.colour = 'red' AND a.n < 30") == [3, 9, 15, 21, 27]
    assert await numbers(nodes, log, "a.n < 0") == []
    assert await numbers(nodes, log, "a.n % 2 = 0") == list(range(0, COUNT, 2))
    assert await numbers(nodes, log, "a.n < 100", start=Start.after(f"{49:016x}")) == list(range(50, 100))
    assert await numbers(nodes, log, "p.message-id IS NULL") == list(range(COUNT))
    async with (
        asyncio.timeout(30),
        ConsumerClient(nodes.servers, log, filter="a.n < 5", start=Start.earliest(), options=UNTIL_END) as consumer,
    ):
        both = [(event.partition, int(event.body)) async for event in consumer]
    assert sorted(both) == [(name, number) for name in "01" for number in range(5)]


async def test_the_fields_of_an_event_have_names(nodes: Nodes) -> None:
    log = await nodes.log(2)
    async with ProducerClient(nodes.servers, log) as producer:
        for number in range(20):
            key = "ann" if number % 4 == 0 else None
            await (await producer.send(Event(b"%d" % number, key=key), partition=str(number % 2)))
    both = {"partitions": None}
    assert await numbers(nodes, log, "key = 'ann'") == list(range(0, 20, 4))
    assert await numbers(nodes, log, "body LIKE '1%' AND partition = 0") == [10, 12, 14, 16, 18]
    assert await numbers(nodes, log, "partition = '1'", **both) == list(range(1, 20, 2))
    assert await numbers(nodes, log, f"offset >= '{8:016x}'") == [16, 18]
    with pytest.raises(ConfigurationError, match=r"no field 'colour'; it has key, body, .* is written a\.colour"):
        await numbers(nodes, log, "colour = 'red'")


async def test_what_comes_from_now_on(nodes: Nodes) -> None:
    log = await filled(nodes, 1)
    given = nodes.servers, log
    async with ConsumerClient(*given, filter="a.n > 5") as consumer, ProducerClient(*given) as out:
        for number in range(10):
            await out.send(Event(b"new", properties={"n": number}))
        await out.flush()
        found: list[Any] = []
        while len(found) < 4:
            found += await consumer.receive(timeout_s=20)
        assert [event.properties["n"] for event in found] == [6, 7, 8, 9]


async def test_a_group_with_a_filter_goes_on_where_it_was(nodes: Nodes) -> None:
    log = await filled(nodes, 1)
    async with TinyMember(nodes, log, filter="a.n % 100 = 0") as one:
        await eventually(lambda: one.got["0"] == list(range(0, COUNT, 100)))
        await one.consumer.commit()
    async with TinyMember(nodes, log, filter="a.n % 100 >= 98") as two:
        await eventually(lambda: two.got["0"] == [998, 999])
        await two.consumer.commit()
    async with AdminClient(nodes.servers) as admin:
        assert (await admin.describe_group(log, "g"))["lag"] == 0


@pytest.mark.parametrize(
    "where",
    ["a.n >", "a.n = 'unfinished", "a.n ==== 1", "(a.n = 1", "no such words", "n" * 5000, "n = 1", "key = 5"],
)
async def test_a_condition_that_is_none_is_refused_with_the_place(nodes: Nodes, where: str) -> None:
    log = await nodes.log(1)
    with pytest.raises(ConfigurationError, match="is refused") as caught:
        await numbers(nodes, log, where, options=ConsumerOptions(reconnect_timeout_s=5.0))
    assert not caught.value.retriable
    assert "docs/clients/filters.md" in caught.value.advice


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"filter": ""}, "a condition in SQL"),
        ({"filter": 7}, "a condition in SQL"),
        ({"filter": "a = 1", "group": "g"}, "begin at a place"),
        ({"filter": "a = 1", "group": "g", "start": Start.latest()}, "begin at a place"),
    ],
)
async def test_what_cannot_work_is_refused_at_once(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        ConsumerClient("127.0.0.1:5672", "trades", **arguments)


async def test_the_synchronous_twin(nodes: Nodes) -> None:
    log = await filled(nodes, 1)

    def read() -> list[int]:
        with threaded.ConsumerClient(
            nodes.servers, log, filter="a.n IN (1, 3)", start=Start.earliest(), options=UNTIL_END
        ) as consumer:
            return [int(event.body) for event in consumer]

    assert await asyncio.to_thread(read) == [1, 3]


@pytest.mark.parametrize("place", ["5", "zzz", "zzzzzzzzzzzzzzzz", "000000000000000A"])
async def test_an_offset_that_no_node_has_given_is_refused_by_the_node(nodes: Nodes, place: str) -> None:
    """It is not for the client to compare it with the end, and to say that all was read."""
    log = await filled(nodes, 1)
    options = ConsumerOptions(until_end=True, reconnect_timeout_s=5.0)
    async with ConsumerClient(nodes.servers, log, start=Start.after(place), options=options) as consumer:
        with pytest.raises(LinkRefusedError, match="no offset of this log"):
            await consumer.receive(timeout_s=10)
        assert not consumer.at_end
