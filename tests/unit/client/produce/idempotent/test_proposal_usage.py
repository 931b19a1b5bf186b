"""The usage examples of the idempotent publishing proposal, in Python, against three real nodes.

Mainstream first (publish events, publish a batch, read the properties), then advanced (choose group, level and
starting number; restore a producer from saved state; ownership; what goes wrong).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast.client import (
    AdminClient,
    AdminError,
    ConfigurationError,
    Event,
    InvalidOperationError,
    NetworkOptions,
    OutOfOrderError,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
    ProducerClient,
    ProducerOptions,
    ProducerStateError,
    ProducerStolenError,
)
from tests.unit.client.support.real_cluster import Nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMED = {"0": PartitionPublishingOptions()}

# ------------------------------------------------------------------------------------------------ mainstream


async def test_publishing_events(nodes: Nodes) -> None:
    log = await nodes.log()
    async with ProducerClient(nodes.servers, log, idempotent=True) as producer:
        first = producer.partitions[0]
        events = [Event("one"), Event("two", properties={"colour": "blue"}), Event(b"three")]
        await producer.send_batch(events, partition=first)
        assert [event.published_sequence_number for event in events] == [1, 2, 3]
        event = Event("four")
        await producer.send_and_confirm(event, partition=first)
        assert event.published_sequence_number == 4
    assert await nodes.bodies(log, first) == [b"one", b"two", b"three", b"four"]


async def test_publishing_a_batch(nodes: Nodes) -> None:
    log = await nodes.log()
    async with ProducerClient(nodes.servers, log, partition_options=NAMED) as producer:
        batch = await producer.create_batch(partition="0")
        while batch.try_add(f"event {len(batch)}".encode() + bytes(10_000)):
            pass
        assert len(batch) > 90
        assert batch.starting_published_sequence_number is None
        await producer.send_batch(batch)
        assert batch.starting_published_sequence_number == 1
        with pytest.raises(InvalidOperationError):
            await producer.send_batch(batch)
    assert len(await nodes.bodies(log)) == len(batch)


async def test_publishing_to_several_partitions_at_once(nodes: Nodes) -> None:
    log = await nodes.log(4)
    async with ProducerClient(nodes.servers, log, idempotent=True) as producer:
        events = {partition: [f"{partition}:{n}" for n in range(200)] for partition in "0123"}
        await asyncio.gather(*(producer.send_batch(events[name], partition=name) for name in events))
        for partition in producer.partitions:
            properties = await producer.get_partition_publishing_properties(partition)
            assert properties.last_published_sequence_number == 200
    for partition in "0123":
        assert await nodes.bodies(log, partition) == [f"{partition}:{n}".encode() for n in range(200)]


async def test_reading_the_publishing_properties_of_a_partition(nodes: Nodes) -> None:
    log = await nodes.log()
    async with ProducerClient(nodes.servers, log, idempotent=True) as producer:
        before = await producer.get_partition_publishing_properties("0")
        assert before.is_idempotent_publishing_enabled
        assert before.producer_group_id is not None
        assert (before.owner_level, before.last_published_sequence_number) == (0, 0)
        await producer.send_batch(["a", "b"], partition="0")
        after = await producer.get_partition_publishing_properties("0")
        assert after == PartitionPublishingProperties(True, before.producer_group_id, 0, 2)
        other = await producer.get_partition_publishing_properties("1")
        assert other.producer_group_id != before.producer_group_id
    async with ProducerClient(nodes.servers, log, idempotent=False) as plain:
        assert await plain.get_partition_publishing_properties("0") == PartitionPublishingProperties(False)


# ------------------------------------------------------------------------------------------------ advanced


async def test_choosing_the_producer_group(nodes: Nodes) -> None:
    log = await nodes.log()
    options = {"0": PartitionPublishingOptions(producer_group_id=2021), "1": PartitionPublishingOptions()}
    async with nodes.producer(log, options) as producer:
        await producer.send_batch(["x"], partition="0")
        assert (await producer.get_partition_publishing_properties("0")).producer_group_id == 2021
    async with AdminClient(nodes.servers) as admin:
        (known,) = await admin.list_producers(log)
        assert (known["partition"], known["producer_id"], known["epoch"], known["last_sequence"]) == ("0", 2021, 0, 1)
        assert await admin.describe_producer(log, "0", 2021) == known
        with pytest.raises(AdminError) as caught:
            await admin.describe_producer(log, "1", 2021)
        assert caught.value.code == "not-found"
        with pytest.raises(ConfigurationError):
            await admin.list_producers(log, partition="zero")


async def test_choosing_the_owner_level_starts_new_numbers(nodes: Nodes) -> None:
    log = await nodes.log()
    for level in (0, 1, 5):
        options = {"0": PartitionPublishingOptions(producer_group_id=7, owner_level=level)}
        async with nodes.producer(log, options) as producer:
            assert (await producer.send_batch([f"{level}"], partition="0")).sequence_number == 1
            assert (await producer.get_partition_publishing_properties("0")).owner_level == level
    assert await nodes.bodies(log) == [b"0", b"1", b"5"]


async def test_choosing_the_starting_sequence_number(nodes: Nodes) -> None:
    log = await nodes.log()
    options = {"0": PartitionPublishingOptions(starting_sequence_number=2**31 - 3)}
    async with nodes.producer(log, options) as producer:
        batch = await producer.create_batch(partition="0")
        for n in range(4):
            batch.add(f"{n}")
        await producer.send_batch(batch)
        assert batch.starting_published_sequence_number == 2**31 - 2
        properties = await producer.get_partition_publishing_properties("0")
        assert properties.last_published_sequence_number == 1, "after the largest number comes 0"
        await producer.send_batch(["4"], partition="0")
    assert await nodes.bodies(log) == [b"0", b"1", b"2", b"3", b"4"]


async def test_restoring_a_producer_from_saved_state(nodes: Nodes, tmp_path: Path) -> None:
    log = await nodes.log()
    file = tmp_path / "state.json"
    async with nodes.producer(log) as producer:
        await producer.send_batch(["1", "2"], partition="0")
        properties = await producer.get_partition_publishing_properties("0")
        file.write_text(json.dumps(asdict(properties.to_options())))
        await producer.send_batch(["3", "4", "5"], partition="0")  # the program dies before it notes this
    options = PartitionPublishingOptions(**json.loads(file.read_text()))
    async with nodes.producer(log, {"0": options}) as restored:
        batch = ["3", "4", "5"]  # what it cannot know to be published, it publishes again
        assert (await restored.send_batch(batch, partition="0")).sequence_number == 3
        assert (await restored.send_batch(["6"], partition="0")).sequence_number == 6
    assert await nodes.bodies(log) == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_a_restored_producer_whose_batch_has_other_events_is_refused(nodes: Nodes) -> None:
    log = await nodes.log()
    async with nodes.producer(log, {"0": PartitionPublishingOptions(producer_group_id=1)}) as producer:
        await producer.send_batch(["1", "2", "3"], partition="0")
    saved = PartitionPublishingOptions(producer_group_id=1, owner_level=0, starting_sequence_number=1)
    async with nodes.producer(log, {"0": saved}) as restored:
        with pytest.raises(OutOfOrderError, match="used before, for another event"):
            await restored.send_batch(["2", "something else"], partition="0")
    assert await nodes.bodies(log) == [b"1", b"2", b"3"]


async def test_taking_the_partitions_own_state_after_a_crash(nodes: Nodes) -> None:
    log = await nodes.log()
    options = {"0": PartitionPublishingOptions(producer_group_id=1)}
    async with nodes.producer(log, options) as producer:
        await producer.send_batch(["1", "2"], partition="0")
    async with nodes.producer(log, options) as producer:
        assert (await producer.send_batch(["3"], partition="0")).sequence_number == 3


async def test_a_higher_owner_level_takes_the_partition_over(nodes: Nodes) -> None:
    log = await nodes.log()
    old_options = {"0": PartitionPublishingOptions(producer_group_id=1, owner_level=1)}
    young_options = {"0": PartitionPublishingOptions(producer_group_id=1, owner_level=2)}
    async with nodes.producer(log, old_options) as old:
        await old.send_batch(["old"], partition="0")
        async with nodes.producer(log, young_options) as young:
            await young.send_batch(["young"], partition="0")
            with pytest.raises(ProducerStolenError) as caught:
                await old.send_batch(["too late"], partition="0")
            assert not caught.value.retriable
            with pytest.raises(ProducerStolenError):
                await old.send("too late", partition="0")
            await old.send_batch(["elsewhere"], partition="1")
            await young.send_batch(["young still"], partition="0")
        async with nodes.producer(log, old_options) as again:
            with pytest.raises(ProducerStolenError):
                await again.send_batch(["too late"], partition="0")
    assert await nodes.bodies(log) == [b"old", b"young", b"young still"]


async def test_a_state_that_the_partition_does_not_know_is_refused(nodes: Nodes) -> None:
    log = await nodes.log()
    unknown = PartitionPublishingOptions(producer_group_id=99, owner_level=0, starting_sequence_number=20)
    async with nodes.producer(log, {"0": unknown}) as producer:
        with pytest.raises(ProducerStateError) as caught:
            await producer.send_batch(["x"], partition="0")
        assert caught.value.condition == "amqp:not-allowed"
        with pytest.raises(ProducerStateError):
            await producer.get_partition_publishing_properties("0")


async def test_two_producers_of_one_group_and_level_share_the_numbers(nodes: Nodes) -> None:
    log = await nodes.log()
    options = {"0": PartitionPublishingOptions(producer_group_id=1)}
    async with nodes.producer(log, options) as one, nodes.producer(log, options) as other:
        await one.send_batch(["1"], partition="0")
        await other.send_batch(["2"], partition="0")  # opened after the first: goes on behind it
        with pytest.raises(OutOfOrderError):  # its number is used
            await one.send_batch(["not 2"], partition="0")
    assert await nodes.bodies(log) == [b"1", b"2"]


async def test_partition_keys_are_not_for_producers_with_names(nodes: Nodes) -> None:
    log = await nodes.log()
    async with nodes.producer(log, {"0": PartitionPublishingOptions(producer_group_id=1)}) as producer:
        with pytest.raises(ConfigurationError):
            await producer.send("x", key="IBM")
        with pytest.raises(ConfigurationError):
            await producer.create_batch(key="IBM")
        with pytest.raises(ConfigurationError):
            await producer.send("x")


async def test_a_change_of_leaders_is_no_more_than_a_delay(nodes: Nodes) -> None:
    log = await nodes.log(1)
    cluster = nodes.cluster
    moved = 0
    async with nodes.producer(log) as producer:
        publishing = asyncio.create_task(_publish_batches(producer, 60))
        while not publishing.done() and moved < 3:
            await asyncio.sleep(0.05)
            leaders = cluster.leaders(log)
            if len(leaders) == 1:
                await cluster.move(log, "0", cluster.other_than(leaders[0]))
                moved += 1
        await publishing
        singles = [await producer.send(f"single {n}", partition="0") for n in range(500)]
        await cluster.move(log, "0", cluster.other_than(cluster.leader(log)))
        await producer.flush()
        assert [(await delivery).sequence_number for delivery in singles] == list(range(3001, 3501))
    expected = [f"{n}:{m}".encode() for n in range(60) for m in range(50)] + [b"single %d" % n for n in range(500)]
    assert await nodes.bodies(log) == expected


async def _publish_batches(producer: ProducerClient, count: int) -> None:
    for n in range(count):
        await producer.send_batch([f"{n}:{m}" for m in range(50)], partition="0")
        await asyncio.sleep(0.005)


async def test_without_redirects_a_gateway_serves_idempotent_producers_too(nodes: Nodes) -> None:
    log = await nodes.log(1)
    leader = nodes.cluster.leader(log)
    entry = f"127.0.0.1:{nodes.cluster.ports[nodes.cluster.other_than(leader)]}"
    options = ProducerOptions(idempotent=True, network=NetworkOptions(follow_redirects=False))
    async with ProducerClient(entry, log, options) as producer:
        for n in range(5):
            assert (await producer.send_batch([f"{n}"] * 100, partition="0")).sequence_number == 100 * n + 1
    assert len(await nodes.bodies(log)) == 500
