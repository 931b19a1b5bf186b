"""What a consumer promises: each partition's events once and in order, whatever happens to the links."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from holdfast.amqp import Error
from holdfast.client import (
    ConfigurationError,
    ConsumerClient,
    ConsumerOptions,
    DamagedEventError,
    HoldfastError,
    NetworkOptions,
    NotFoundError,
    ProtocolError,
    ReceivedEvent,
    Start,
    TimeoutExpiredError,
    encode_event,
)
from tests.unit.client.support.tiny_node import TinyLog, TinyNode

UNTIL_END = ConsumerOptions(until_end=True)


def fill(log: TinyLog, count: int, size: int = 0) -> None:
    for partition in log.partitions:
        numbers = range(len(log.partitions[partition]), len(log.partitions[partition]) + count)
        log.append(partition, [encode_event(f"{partition}:{n}:".encode() + bytes(size), f"k{n}") for n in numbers])


async def read_all(consumer: ConsumerClient) -> dict[str, list[ReceivedEvent]]:
    found: dict[str, list[ReceivedEvent]] = defaultdict(list)
    async with asyncio.timeout(40):
        async for event in consumer:
            found[event.partition].append(event)
    return found


async def read_numbers(consumer: ConsumerClient, count: int) -> dict[str, list[int]]:
    """The numbers in the bodies of the next `count` events, by partition."""
    found: dict[str, list[int]] = defaultdict(list)
    async with asyncio.timeout(40):
        while count > 0:
            for event in await consumer.receive(min(count, 1000)):
                partition, number, _ = event.body.split(b":", 2)
                assert partition.decode() == event.partition
                found[event.partition].append(int(number))
                count -= 1
    return found


async def test_everything_from_the_earliest_to_the_end(pair: tuple[TinyNode, TinyNode]) -> None:
    first, second = pair
    fill(first.log, 300)
    async with ConsumerClient(second.address, "trades", start=Start.earliest(), options=UNTIL_END) as consumer:
        found = await read_all(consumer)
        assert consumer.at_end
    for partition in ("0", "1", "2", "3"):
        events = found[partition]
        assert [event.body for event in events] == first.log.bodies(partition)
        offsets = [event.offset for event in events]
        assert offsets == sorted(set(offsets))
        assert events[7].key == "k7"
        assert events[7].timestamp_ms == first.log.partitions[partition][7][0]


async def test_an_empty_log_is_at_its_end_at_once(node: TinyNode) -> None:
    async with ConsumerClient(node.address, "trades", start=Start.earliest(), options=UNTIL_END) as consumer:
        assert await read_all(consumer) == {}


async def test_without_a_start_only_what_comes_later_is_read_and_all_of_it(node: TinyNode) -> None:
    fill(node.log, 50)
    async with ConsumerClient(node.address, "trades") as consumer:
        fill(node.log, 20)  # perhaps before the links are attached: it counts all the same
        found = await read_numbers(consumer, 80)
    assert found == {partition: list(range(50, 70)) for partition in node.log.partitions}


async def test_after_an_offset_and_from_a_time(node: TinyNode) -> None:
    log = node.log
    log.partitions["0"] = [(1000 + n, encode_event(f"0:{n}:".encode())) for n in range(100)]
    after = {"0": Start.after(f"{89:016x}")}
    async with ConsumerClient(node.address, "trades", start=after, partitions=["0"], options=UNTIL_END) as consumer:
        assert await read_numbers(consumer, 10) == {"0": list(range(90, 100))}
    at = Start.from_time(1095)
    async with ConsumerClient(node.address, "trades", start=at, partitions=["0"], options=UNTIL_END) as consumer:
        assert await read_numbers(consumer, 5) == {"0": list(range(95, 100))}
        assert await consumer.receive() == []


@pytest.mark.parametrize("start", [Start.from_time(5000), Start.after(f"{99:016x}"), Start.latest()])
async def test_a_start_behind_the_end_is_an_end(node: TinyNode, start: Start) -> None:
    node.log.partitions["0"] = [(1000 + n, encode_event(b"event")) for n in range(100)]
    async with ConsumerClient(node.address, "trades", start=start, partitions=["0"], options=UNTIL_END) as consumer:
        assert await read_all(consumer) == {}


async def test_positions_continue_where_another_consumer_stopped(node: TinyNode) -> None:
    fill(node.log, 40)
    async with ConsumerClient(node.address, "trades", start=Start.earliest(), partitions=["2"]) as consumer:
        first_half = await consumer.receive(15)
        positions = consumer.positions
    assert len(first_half) == 15
    start = {partition: Start.after(offset) for partition, offset in positions.items()}
    async with ConsumerClient(node.address, "trades", start=start, partitions=["2"]) as consumer:
        assert await read_numbers(consumer, 25) == {"2": list(range(15, 40))}


@pytest.mark.parametrize("politely", [True, False], ids=["the node closes the links", "the node crashes"])
async def test_reading_goes_on_elsewhere_without_loss_or_copies(
    pair: tuple[TinyNode, TinyNode], politely: bool
) -> None:
    first, second = pair
    fill(first.log, 500)
    servers = [first.address, second.address]
    options = ConsumerOptions(prefetch=50)
    async with ConsumerClient(servers, "trades", start=Start.earliest(), options=options) as consumer:
        found = await read_numbers(consumer, 1200)
        assert len(found) == 4, "with so small a window every partition was read from"
        first.lead()
        if politely:
            second.close_links(Error("amqp:link:detach-forced", "leadership moves"))
        else:
            await second.crash()
        fill(first.log, 100)
        for partition, numbers in (await read_numbers(consumer, 4 * 600 - 1200)).items():
            found[partition] += numbers
        assert consumer.links_opened > 4
    assert found == {partition: list(range(600)) for partition in first.log.partitions}


async def test_a_reader_that_rests_fills_no_memory(node: TinyNode) -> None:
    fill(node.log, 3000)
    options = ConsumerOptions(prefetch=100)
    async with ConsumerClient(
        node.address, "trades", start=Start.earliest(), partitions=["0"], options=options
    ) as consumer:
        assert len(await consumer.receive(10)) == 10
        await asyncio.sleep(0.1)
        (connection,) = node.connections
        assert max(connection.sent.values()) <= 10 + 100
        assert (await read_numbers(consumer, 2990))["0"] == list(range(10, 3000))


async def test_big_messages_get_little_credit(node: TinyNode) -> None:
    fill(node.log, 150, size=100_000)
    options = ConsumerOptions(prefetch_bytes=1_000_000)
    async with ConsumerClient(
        node.address, "trades", start=Start.earliest(), partitions=["1"], options=options
    ) as consumer:
        assert (await read_numbers(consumer, 150))["1"] == list(range(150))
    assert node.most_granted <= 64, "the first credit is given before a size is known; later ones are smaller"


async def test_waiting_is_bounded_by_the_callers_timeout(node: TinyNode) -> None:
    async with ConsumerClient(node.address, "trades") as consumer:
        assert await consumer.receive(timeout_s=0.05) == []
        assert not consumer.at_end


async def test_no_such_log_and_no_such_partition(node: TinyNode) -> None:
    with pytest.raises(NotFoundError):
        async with ConsumerClient(node.address, "nothing"):
            pass
    with pytest.raises(NotFoundError, match="no partition '7'"):
        async with ConsumerClient(node.address, "trades", partitions=["7"]):
            pass


async def test_a_partition_that_stays_away_is_an_error(node: TinyNode) -> None:
    fill(node.log, 1)
    node.refuse = lambda address, partition: Error("amqp:internal-error", "no leader") if partition == "3" else None
    options = ConsumerOptions(reconnect_timeout_s=0.5)
    async with asyncio.timeout(20):
        async with ConsumerClient(node.address, "trades", start=Start.earliest(), options=options) as consumer:
            with pytest.raises(HoldfastError, match="no leader") as caught:
                await read_all(consumer)
    assert caught.value.retriable


async def test_an_end_that_is_unknown_is_not_taken_for_an_empty_partition(node: TinyNode) -> None:
    fill(node.log, 5)
    node.unavailable = {"2"}
    options = ConsumerOptions(until_end=True, reconnect_timeout_s=3.0)
    with pytest.raises(TimeoutExpiredError, match="no leader answers for partition 2"):
        async with ConsumerClient(node.address, "trades", start=Start.earliest(), options=options):
            pass


async def test_without_redirects_everything_comes_through_the_entry_node(node: TinyNode) -> None:
    fill(node.log, 10)
    options = ConsumerOptions(until_end=True, network=NetworkOptions(follow_redirects=False))
    async with ConsumerClient(node.address, "trades", start=Start.earliest(), options=options) as consumer:
        assert sum(map(len, (await read_all(consumer)).values())) == 40


async def test_events_of_other_clients_are_readable(node: TinyNode) -> None:
    from holdfast.amqp import Message, Value, encode_message

    node.log.append("0", [encode_message(Message(body=Value("text"), durable=True, application_properties={"a": 1}))])
    node.log.append("0", [encode_message(Message(body=[b"two ", b"sections"], subject="hello"))])
    node.log.append("0", [encode_message(Message(body=b"x" * 300))])
    node.log.append("0", [encode_message(Message(body=Value(None)))])
    async with ConsumerClient(node.address, "trades", start=Start.earliest(), options=UNTIL_END) as consumer:
        events = (await read_all(consumer))["0"]
    assert [event.body for event in events] == [b"text", b"two sections", b"x" * 300, b""]
    assert events[0].properties == {"a": 1}
    assert events[1].message.subject == "hello"
    assert [event.key for event in events] == [None] * 4


@pytest.mark.parametrize("make", [lambda: Start.after(""), lambda: Start.after("@latest"), lambda: Start.from_time(-1)])
def test_places_that_are_none_are_refused(make: object) -> None:
    with pytest.raises(ConfigurationError):
        make()  # type: ignore[operator]


async def test_a_paused_partition_rests_while_the_others_are_read(node: TinyNode) -> None:
    fill(node.log, 100)
    options = ConsumerOptions(prefetch=20)
    async with ConsumerClient(node.address, "trades", start=Start.earliest(), options=options) as consumer:
        await consumer.receive(1)
        consumer.pause("0", "1")
        assert consumer.paused == {"0", "1"}
        found: dict[str, int] = defaultdict(int)
        while sum(found.values()) < 200 - 1:
            events = await consumer.receive(timeout_s=1)
            if not events:
                break
            found[events[0].partition] += len(events)
        assert set(found) <= {"2", "3"}
        assert await consumer.receive(timeout_s=0.05) == []
        (connection,) = node.connections
        assert all(sent <= 100 for link, sent in connection.sent.items() if connection.links[link] in ("0", "1"))
        consumer.resume()
        assert consumer.paused == set()
        rest = await read_numbers(consumer, 400 - 1 - sum(found.values()))
    assert rest["0"][-1] == rest["1"][-1] == 99
    assert rest["0"] == list(range(rest["0"][0], 100)), "in order, and nothing lost"


async def test_a_paused_partition_is_not_at_its_end(node: TinyNode) -> None:
    fill(node.log, 10)
    async with ConsumerClient(node.address, "trades", start=Start.earliest(), options=UNTIL_END) as consumer:
        consumer.pause()
        assert await consumer.receive(timeout_s=0.1) == []
        assert not consumer.at_end
        consumer.resume()
        assert sum(map(len, (await read_all(consumer)).values())) == 40
        with pytest.raises(NotFoundError):
            consumer.pause("9")


async def test_lag_is_what_lies_behind_the_last_event_handed_out(node: TinyNode) -> None:
    fill(node.log, 50)
    node.log.partitions["3"] = []
    start = {"0": Start.earliest(), "1": Start.after(f"{29:016x}"), "2": Start.latest(), "3": Start.earliest()}
    async with ConsumerClient(node.address, "trades", start=start) as consumer:
        assert await consumer.lag() == {"0": 50, "1": 20, "2": 0, "3": 0}
        consumer.pause("1", "2", "3")
        assert len(await consumer.receive(15)) == 15
        fill(node.log, 5)
        assert await consumer.lag() == {"0": 40, "1": 25, "2": 5, "3": 5}
        node.unavailable = {"2"}
        assert (await consumer.lag())["2"] is None
    async with ConsumerClient(node.address, "trades", start=Start.from_time(1), partitions=["0"]) as consumer:
        assert await consumer.lag() == {"0": None}
        await consumer.receive(1)
        assert await consumer.lag() == {"0": 54}


async def test_a_node_that_knows_no_groups_is_found_out(node: TinyNode) -> None:
    async with ConsumerClient(node.address, "trades", group="readers", partitions=["0"]) as consumer:
        with pytest.raises(ProtocolError, match="does not know consumer groups"):
            await consumer.receive(timeout_s=10)


@pytest.mark.parametrize("fault", [ValueError("the program's own fault"), asyncio.CancelledError()], ids=repr)
async def test_a_callback_of_a_damaged_event_that_fails_loses_no_other_event(
    node: TinyNode, fault: BaseException
) -> None:
    fill(node.log, 5)
    node.log.partitions["0"].append((1, b"\x00\x53\x75\xa0\xffcut off"))
    fill(node.log, 5)
    damaged: list[DamagedEventError] = []
    told: list[dict[str, Any]] = []

    def on_damaged(error: DamagedEventError) -> None:
        damaged.append(error)
        raise fault

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    options = ConsumerOptions(until_end=True, on_damaged=on_damaged)
    async with ConsumerClient(node.address, "trades", start=Start.earliest(), options=options) as consumer:
        found = await read_all(consumer)
        assert consumer.links_opened == 4
    assert {partition: len(events) for partition, events in found.items()} == dict.fromkeys("0123", 10)
    assert [error.offset for error in damaged] == [f"{5:016x}"]
    assert [context["exception"] for context in told] == [fault]


async def test_to_start_twice_is_to_start_once(node: TinyNode) -> None:
    fill(node.log, 10)
    consumer = ConsumerClient(node.address, "trades", start=Start.earliest(), options=UNTIL_END)
    await asyncio.gather(consumer.start(), consumer.start())
    async with consumer:
        assert {partition: len(events) for partition, events in (await read_all(consumer)).items()} == dict.fromkeys(
            "0123", 10
        )


async def test_a_start_that_failed_can_be_tried_again(node: TinyNode) -> None:
    consumer = ConsumerClient(node.address, "later", start=Start.earliest(), partitions=["0", "1"], options=UNTIL_END)
    with pytest.raises(NotFoundError):
        await consumer.start()
    node.log.name = "later"
    del (one := node.log.partitions)["1"]
    with pytest.raises(NotFoundError):
        await consumer.start()
    one["1"] = []
    fill(node.log, 10)
    async with consumer:
        found = await read_all(consumer)
    assert {partition: len(events) for partition, events in found.items()} == {"0": 10, "1": 10}
