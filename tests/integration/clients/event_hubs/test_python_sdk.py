"""The Python SDK of Event Hubs, unmodified, with a connection string as the emulator has it."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.amqp.key_partitioner import partition_index
from holdfast.client import ConsumerClient, Event, ProducerClient, Start
from tests.integration.clients.event_hubs import sdk
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.event_hubs.sdk import Reading, consumer, producer, read, send
from tests.integration.clusters.cluster import Cluster, wait_until

pytestmark = pytest.mark.cluster

EventData = sdk.eventhub.EventData
exceptions = pytest.importorskip("azure.eventhub.exceptions")
aio = pytest.importorskip("azure.eventhub.aio")

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def hub(cluster: Cluster, log_name: str) -> str:
    """A connection string of a hub with four partitions. Most of them are led by other nodes than its own."""
    cluster.create(log_name, 4)
    cluster.wait_led(log_name)
    return connection_string(cluster.address(1), log_name)


def name_of(text: str) -> str:
    return text.rpartition("EntityPath=")[2]


def partition_of(key: str) -> str:
    return str(partition_index(key, 4))


# ---------------------------------------------------------------- producers


def test_a_batch_single_events_and_keys_arrive_with_what_the_service_adds(hub: str) -> None:
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=5)
    rich = EventData("rich")
    rich.properties = {"n": 7, b"raw": b"bytes"}
    rich.content_type, rich.correlation_id, rich.message_id = "text/plain", "c-1", "m-1"
    with producer(hub) as sender:
        batch = sender.create_batch(partition_id="2")
        batch.add(EventData("first"))
        batch.add(rich)
        sender.send_batch(batch)
        sender.send_event(EventData("third"), partition_id="2")
        sender.send_batch([EventData("keyed"), EventData("keyed too")], partition_key="order-42")
        sender.send_event(EventData("anywhere"))
    events = read(hub, 3, partition_id="2")[:3]  # the one for anywhere may stand behind them
    assert [(one.body_as_str(), one.sequence_number, one.offset) for one in events] == [
        ("first", 0, "0"), ("rich", 1, "1"), ("third", 2, "2"),
    ]  # fmt: skip
    assert all(before < one.enqueued_time < before + datetime.timedelta(hours=1) for one in events)
    assert [one.partition_key for one in events] == [None, None, None]
    got = events[1]
    assert (got.properties, got.content_type, got.correlation_id, got.message_id) == (
        {b"n": 7, b"raw": b"bytes"}, "text/plain", "c-1", "m-1",
    )  # fmt: skip
    keyed = [one for one in read(hub, 6) if one.partition_key is not None]
    assert [(one.partition_key, one.body_as_str()) for one in keyed] == [
        (b"order-42", "keyed"), (b"order-42", "keyed too"),
    ]  # fmt: skip


@pytest.mark.parametrize("listener", ["never", "always"])
def test_nobody_is_redirected(cluster: Cluster, hub: str, listener: str) -> None:
    text = connection_string(cluster.address(2, listener), name_of(hub))
    for partition in "0123":
        send(text, partition, [partition])
    assert sorted(event.body_as_str() for event in read(text, 4, owner_level=1)) == ["0", "1", "2", "3"]


def test_keys_go_to_the_partitions_of_the_service(hub: str) -> None:
    keys = [f"key-{number}" for number in range(12)]
    with producer(hub) as sender:
        for key in keys:
            sender.send_event(EventData(key), partition_key=key)
    reading = Reading(consumer(hub), starting_position="-1").until(lambda now: len(now.events) == 12).stop()
    assert {event.body_as_str(): partition for partition, event, _ in reading.events} == {
        key: partition_of(key) for key in keys
    }


def test_the_buffered_producer_reports_each_event_once(hub: str) -> None:
    done: list[str] = []
    failed: list[Any] = []

    def on_success(events: list[Any], partition: str) -> None:
        done.extend(event.body_as_str() for event in events)

    sender = producer(
        hub, buffered_mode=True, max_wait_time=0.2, on_success=on_success, on_error=lambda *what: failed.append(what)
    )
    bodies = [f"event {number}" for number in range(40)]
    with sender:
        for body in bodies:
            sender.send_event(EventData(body))
        sender.flush()
    assert failed == []
    assert Counter(done) == Counter(bodies)
    assert Counter(event.body_as_str() for event in read(hub, 40)) == Counter(bodies)


def test_properties_of_hub_and_partition(hub: str) -> None:
    send(hub, "1", ["a", "b", "c"])
    with producer(hub) as sender:
        about = sender.get_eventhub_properties()
        assert (about["eventhub_name"], about["partition_ids"]) == (name_of(hub), ["0", "1", "2", "3"])
        assert about["created_at"] > EPOCH
        filled, empty = sender.get_partition_properties("1"), sender.get_partition_properties("0")
    assert (filled["beginning_sequence_number"], filled["last_enqueued_sequence_number"]) == (0, 2)
    assert (filled["last_enqueued_offset"], filled["is_empty"]) == ("2", False)
    assert filled["last_enqueued_time_utc"] > about["created_at"]
    assert (empty["last_enqueued_sequence_number"], empty["last_enqueued_offset"], empty["is_empty"]) == (
        -1,
        "-1",
        True,
    )


# ---------------------------------------------------------------- consumers


def test_every_starting_position_begins_where_it_says(hub: str) -> None:
    send(hub, "0", [f"event {number}" for number in range(10)])

    def first(position: Any, **more: Any) -> str:
        return str(read(hub, 1, partition_id="0", starting_position=position, **more)[0].body_as_str())

    assert first("-1") == "event 0"
    assert first(4) == "event 5"
    assert first(4, starting_position_inclusive=True) == "event 4"
    assert first("7") == "event 8"
    assert first("7", starting_position_inclusive=True) == "event 7"
    assert first(EPOCH) == "event 0"
    enqueued = read(hub, 10, partition_id="0")[9].enqueued_time
    send(hub, "0", ["later"])
    assert first(enqueued) == "later"


@pytest.mark.parametrize("position", ["@latest", None])
def test_from_the_latest_only_what_comes_later_is_received(hub: str, position: str | None) -> None:
    send(hub, "0", ["old"])
    reading = Reading(consumer(hub), partition_id="0", starting_position=position)
    number = 0
    while not (reading.events or reading.errors):
        send(hub, "0", [f"new {number}"])
        number += 1
    reading.stop()
    assert not reading.errors
    assert "old" not in reading.bodies


def test_the_last_event_is_told_with_each_delivery(hub: str) -> None:
    send(hub, "3", ["a", "b", "c"])
    reading = Reading(
        consumer(hub), partition_id="3", starting_position="-1", track_last_enqueued_event_properties=True
    ).until(lambda now: len(now.events) == 3)
    context = reading.events[-1][2]
    told = context.last_enqueued_event_properties
    reading.stop()
    assert (told["sequence_number"], told["offset"]) == (2, "2")
    assert told["enqueued_time"] == reading.events[-1][1].enqueued_time
    assert told["retrieval_time"] >= told["enqueued_time"]


def test_a_higher_owner_level_takes_the_partition_and_a_lower_one_is_refused(hub: str) -> None:
    send(hub, "0", ["a"])

    def reader(level: int | None) -> Reading:
        options = {} if level is None else {"owner_level": level}
        return Reading(consumer(hub, retry_total=0), partition_id="0", starting_position="-1", **options)

    guest = reader(None).until(lambda now: now.events)
    first = reader(1).until(lambda now: now.events)
    guest.until(lambda now: now.errors)
    low, other = reader(0).until(lambda now: now.errors), reader(None).until(lambda now: now.errors)
    second = reader(2).until(lambda now: now.events)
    first.until(lambda now: now.errors)
    for reading in (guest, first, low, other, second):
        reading.stop()
    assert second.errors == []
    for ousted in (guest, first):
        assert isinstance(ousted.errors[0], exceptions.ConnectionLostError)
        assert "link:stolen" in str(ousted.errors[0])
        assert "getting disconnected" in str(ousted.errors[0])
    assert "with a higher epoch '1' already exists" in str(low.errors[0])
    assert "non-epoch receiver is not allowed" in str(other.errors[0])


def test_after_an_owner_has_gone_anybody_may_read(hub: str) -> None:
    send(hub, "0", ["a"])
    read(hub, 1, partition_id="0", owner_level=5)
    read(hub, 1, partition_id="0", owner_level=1)
    read(hub, 1, partition_id="0")


def test_consumers_of_a_group_share_partitions_and_go_on_at_checkpoints(hub: str) -> None:
    memory = pytest.importorskip("azure.eventhub._eventprocessor.in_memory_checkpoint_store")
    store = memory.InMemoryCheckpointStore()
    for partition in "0123":
        send(hub, partition, [f"{partition}-{number}" for number in range(5)])

    class Counting(Reading):
        def _on_event(self, context: Any, event: Any) -> None:
            super()._on_event(context, event)
            if event is not None:
                context.update_checkpoint(event)

    def join() -> Counting:
        client = consumer(hub, checkpoint_store=store, load_balancing_interval=1, load_balancing_strategy="greedy")
        return Counting(client, starting_position="-1", prefetch=3)

    first = join().until(lambda now: len(now.events) == 20)
    second = join()
    number = 0
    while not second.events:
        for partition in "0123":
            send(hub, partition, [f"{partition}-more-{number}"])
        number += 1
    wait_until(lambda: len({partition for partition, _, _ in second.events}) >= 1, "the second consumer has a share")
    first.stop()
    send(hub, "0", ["end 0"])
    send(hub, "3", ["end 3"])
    second.until(lambda now: {"end 0", "end 3"} <= set(now.bodies)).stop()
    both = Counter(first.bodies + second.bodies)
    assert len(both) == 20 + 4 * number + 2
    assert not [
        error for error in first.errors + second.errors if not isinstance(error, exceptions.ConnectionLostError)
    ]


# ---------------------------------------------------------------- what cannot be had


@pytest.mark.parametrize("partition", ["4", "x"])
def test_an_unknown_partition_is_an_error_of_the_send(hub: str, partition: str) -> None:
    with producer(hub, retry_total=0) as sender, pytest.raises(exceptions.ConnectError, match="Invalid partition"):
        sender.send_event(EventData("x"), partition_id=partition)
    with producer(hub, retry_total=0) as sender, pytest.raises(exceptions.ConnectError):
        sender.get_partition_properties(partition)


def test_an_unknown_hub_is_an_error_of_each_client(cluster: Cluster) -> None:
    text = connection_string(cluster.address(1), "nobody-made-this")
    with producer(text, retry_total=0) as sender:
        with pytest.raises(exceptions.ConnectError, match="NotFound"):
            sender.send_event(EventData("x"))
        with pytest.raises(exceptions.ConnectError, match="NotFound"):
            sender.get_eventhub_properties()
    reading = Reading(consumer(text, retry_total=0), partition_id="0").until(lambda now: now.errors).stop()
    assert isinstance(reading.errors[0], exceptions.ConnectError)
    assert "NotFound" in str(reading.errors[0])


def test_a_group_whose_name_cannot_be_is_not_found(hub: str) -> None:
    reading = Reading(consumer(hub, "g" * 600, retry_total=0), partition_id="0").until(lambda now: now.errors).stop()
    assert "could not be found" in str(reading.errors[0])


@pytest.mark.parametrize(("position", "what"), [(71181, "sequence number"), ("71181", "offset")])
def test_a_position_of_another_life_is_refused(hub: str, position: Any, what: str) -> None:
    send(hub, "0", ["a"])
    reading = Reading(consumer(hub, retry_total=0), partition_id="0", starting_position=position)
    reading.until(lambda now: now.errors).stop()
    assert f"The supplied {what} '71181' is invalid. The last {what} in the system is '0'" in str(reading.errors[0])


def test_a_batch_has_the_size_that_the_service_allows(hub: str) -> None:
    with producer(hub) as sender:
        batch = sender.create_batch()
        assert batch.max_size_in_bytes == 1024 * 1024
        with pytest.raises(ValueError, match="too large"):
            sender.create_batch(max_size_in_bytes=1024 * 1024 + 1)
        with pytest.raises(ValueError, match="size limit"):
            batch.add(EventData(b"x" * (1024 * 1024)))
        with pytest.raises(exceptions.EventHubError, match="LinkMessageSizeExceeded"):
            sender.send_event(EventData(b"x" * (1100 * 1024)))
        sender.send_event(EventData(b"x" * (1000 * 1024)), partition_id="0")
    assert len(b"".join(read(hub, 1, partition_id="0")[0].body)) == 1000 * 1024


# ---------------------------------------------------------------- asyncio


async def test_the_asynchronous_clients_do_the_same(hub: str) -> None:
    bodies = [f"event {number}" for number in range(20)]
    sender = aio.EventHubProducerClient.from_connection_string(hub)
    async with sender:
        batch = await sender.create_batch(partition_key="k")
        for body in bodies[:10]:
            batch.add(EventData(body))
        await sender.send_batch(batch)
        for body in bodies[10:]:
            await sender.send_event(EventData(body), partition_id="0")
        assert (await sender.get_eventhub_properties())["partition_ids"] == ["0", "1", "2", "3"]
    done: list[str] = []
    buffered = aio.EventHubProducerClient.from_connection_string(
        hub, buffered_mode=True, max_wait_time=0.2, on_success=_noted(done), on_error=_never
    )
    async with buffered:
        await buffered.send_event(EventData("buffered"), partition_id="1")
        await buffered.flush()
    assert done == ["buffered"]
    got: list[Any] = []
    enough = asyncio.Event()
    reader = aio.EventHubConsumerClient.from_connection_string(hub, "$Default")

    async def on_event(context: Any, event: Any) -> None:
        got.append((context.partition_id, event.body_as_str()))
        if len(got) == 21:
            enough.set()

    async with reader:
        task = asyncio.create_task(reader.receive(on_event, on_error=_never, starting_position="-1"))
        await asyncio.wait_for(enough.wait(), sdk.WITHIN_S)
    await task
    assert Counter(body for _, body in got) == Counter([*bodies, "buffered"])
    assert [body for partition, body in got if partition == partition_of("k")][:10] == bodies[:10]


class OwnStore(aio.CheckpointStore):  # type: ignore[misc, name-defined]
    """Keeps checkpoints and ownership in this process, as an application's own store may."""

    def __init__(self) -> None:
        self.owned: dict[str, dict[str, Any]] = {}
        self.checkpoints: dict[str, dict[str, Any]] = {}

    async def list_ownership(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return [dict(one) for one in self.owned.values()]

    async def claim_ownership(self, ownership_list: Any, **_: Any) -> list[dict[str, Any]]:
        claimed = []
        for one in ownership_list:
            known = self.owned.get(one["partition_id"])
            if known is None or known["etag"] == one.get("etag"):
                now = datetime.datetime.now(datetime.UTC).timestamp()
                made = {**one, "etag": uuid.uuid4().hex, "last_modified_time": now}
                self.owned[one["partition_id"]] = made
                claimed.append(made)
        return claimed

    async def update_checkpoint(self, checkpoint: dict[str, Any], **_: Any) -> None:
        self.checkpoints[checkpoint["partition_id"]] = dict(checkpoint)

    async def list_checkpoints(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return list(self.checkpoints.values())


async def test_asynchronous_consumers_share_partitions_through_a_store_of_the_application(hub: str) -> None:
    store = OwnStore()
    for partition in "0123":
        await asyncio.to_thread(send, hub, partition, [f"{partition}-{number}" for number in range(3)])
    first: list[str] = []
    second: list[str] = []

    async def consume(got: list[str], count: int) -> None:
        client = aio.EventHubConsumerClient.from_connection_string(
            hub, "$Default", checkpoint_store=store, load_balancing_interval=1
        )
        enough = asyncio.Event()

        async def on_event(context: Any, event: Any) -> None:
            got.append(event.body_as_str())
            await context.update_checkpoint(event)
            if len(got) >= count:
                enough.set()

        async with client:
            task = asyncio.create_task(client.receive(on_event, starting_position="-1", prefetch=2))
            await asyncio.wait_for(enough.wait(), sdk.WITHIN_S)
        await task

    await consume(first, 12)
    await asyncio.to_thread(send, hub, "2", ["later"])
    await consume(second, 1)
    assert Counter(first) == Counter(f"{partition}-{number}" for partition in "0123" for number in range(3))
    assert second == ["later"]
    assert {one["offset"] for one in store.checkpoints.values()} == {"2", "3"}


async def test_a_higher_owner_level_takes_the_partition_from_an_asynchronous_consumer(hub: str) -> None:
    await asyncio.to_thread(send, hub, "0", ["a"])
    low = aio.EventHubConsumerClient.from_connection_string(hub, "$Default", retry_total=0)
    received, lost = asyncio.Event(), asyncio.Event()
    errors: list[Exception] = []

    async def on_event(context: Any, event: Any) -> None:
        received.set()

    async def on_error(context: Any, error: Exception) -> None:
        errors.append(error)
        lost.set()

    async with low:
        task = asyncio.create_task(
            low.receive(on_event, on_error=on_error, partition_id="0", owner_level=1, starting_position="-1")
        )
        await asyncio.wait_for(received.wait(), sdk.WITHIN_S)
        await asyncio.to_thread(read, hub, 1, partition_id="0", owner_level=2)
        await asyncio.wait_for(lost.wait(), sdk.WITHIN_S)
    await task
    assert isinstance(errors[0], exceptions.ConnectionLostError)
    assert "with higher epoch of '2' is created" in str(errors[0])


def _noted(done: list[str]) -> Any:
    async def on_success(events: list[Any], partition: str) -> None:
        done.extend(event.body_as_str() for event in events)

    return on_success


async def _never(*what: Any) -> None:
    raise AssertionError(what)


# ---------------------------------------------------------------- one log, two dialects


async def test_what_one_dialect_writes_the_other_reads(cluster: Cluster, hub: str) -> None:
    log = name_of(hub)
    servers = cluster.addresses
    async with ProducerClient(servers, log) as writer:
        await writer.send(Event(b"ours", key="k", properties={"n": 1}))
    await asyncio.to_thread(_send_keyed, hub)
    seen = await asyncio.to_thread(read, hub, 2, partition_id=partition_of("k"))
    assert [(one.body_as_str(), one.partition_key, one.properties) for one in seen] == [
        ("ours", b"k", {b"n": 1}), ("theirs", b"k", {b"n": 2}),
    ]  # fmt: skip
    async with ConsumerClient(servers, log, start=Start.earliest()) as reader:
        ours = [one async for one in _first(reader, 2)]
    assert [(one.body, one.key, one.properties) for one in ours] == [
        (b"ours", "k", {"n": 1}), (b"theirs", "k", {"n": 2}),
    ]  # fmt: skip
    assert [int(one.offset, 16) for one in ours] == [one.sequence_number for one in seen]


async def _first(reader: ConsumerClient, count: int) -> AsyncIterator[Any]:
    async for one in reader:
        yield one
        count -= 1
        if not count:
            return


def _send_keyed(hub: str) -> None:
    event = EventData("theirs")
    event.properties = {"n": 2}
    with producer(hub) as sender:
        sender.send_batch([event], partition_key="k")
