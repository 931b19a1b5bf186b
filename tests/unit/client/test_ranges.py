"""Ranges of a partition as a batch program reads them: every event once, whatever the range ends with."""

from __future__ import annotations

import asyncio
import itertools
from importlib.util import find_spec

import pytest

from holdfast.client import (
    ConfigurationError,
    Event,
    EventBlock,
    NetworkOptions,
    NotFoundError,
    PartitionExtent,
    ProducerClient,
    RangeClient,
    RangeOptions,
    ReceivedEvent,
)
from holdfast.client.blocks.batch_block import BatchBlock
from holdfast.client.sync import RangeClient as SyncRangeClient
from node.listener.outgoing.batch_deliveries import DELIVERY_BYTES
from tests.unit.client.support.real_cluster import Nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

FEW, MANY = RangeOptions(prefetch=100, prefetch_bytes=10_000), RangeOptions()
ALL = "1 = 1 OR a.x = 2"
"""A condition that every event meets, and that is asked of each: they come one by one."""


async def extent(client: RangeClient, log: str) -> PartitionExtent:
    [found] = await client.extents(log)
    return found


async def rows(client: RangeClient, log: str, first: int, end: int, **more: str) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    async with asyncio.timeout(60):
        async for block in client.read(log, "0", first, end, **more):
            columns = block.columns()
            found += zip(columns.offsets, columns.bodies, strict=True)
    return found


async def fill(producer: ProducerClient, count: int, prefix: str = "e") -> None:
    for delivery in [await producer.send(f"{prefix}{number}", partition="0") for number in range(count)]:
        await delivery


async def roll_back(producer: ProducerClient, count: int) -> None:
    tx = producer.transaction()
    await tx.begin()
    for delivery in [await tx.send(b"never", partition="0") for _ in range(count)]:
        await delivery
    await tx.abort()


@pytest.mark.parametrize("options", [FEW, MANY])
@pytest.mark.parametrize("follow", ["redirected", "gateway"])
async def test_a_range_is_every_event_from_its_first_offset_to_its_end(
    nodes: Nodes, follow: str, options: RangeOptions
) -> None:
    log = await nodes.log(1)
    leads = nodes.cluster.leader(log)
    servers = f"127.0.0.1:{nodes.cluster.ports[nodes.cluster.other_than(leads)]}"
    network = NetworkOptions(follow_redirects=follow == "redirected")
    async with (
        ProducerClient(nodes.servers, log) as producer,
        RangeClient(servers, network=network, options=options) as client,
    ):
        assert await extent(client, log) == PartitionExtent("0", 0, 0, 0, 0)
        await fill(producer, 500)
        assert ((await extent(client, log)).start, (await extent(client, log)).end) == (0, 500)
        assert await rows(client, log, 0, 500) == [(number, b"e%d" % number) for number in range(500)]
        assert await rows(client, log, 120, 131) == [(number, b"e%d" % number) for number in range(120, 131)]
        assert await rows(client, log, 7, 7) == []
        wanted = "d.event-streams-offset > '00000000000000c8'"
        assert [offset for offset, _ in await rows(client, log, 0, 203, filter=wanted)] == [201, 202]


@pytest.mark.parametrize("options", [FEW, MANY])
@pytest.mark.parametrize("follow", [True, False])
async def test_a_range_tells_who_has_published_its_events(nodes: Nodes, follow: bool, options: RangeOptions) -> None:
    log = await nodes.log(1)
    network = NetworkOptions(follow_redirects=follow)
    async with (
        ProducerClient(nodes.servers, log, idempotent=False) as plain,
        nodes.producer(log) as numbered,
        RangeClient(nodes.servers, network=network, options=options) as client,
    ):
        await fill(plain, 3, "plain-")
        events = [Event(b"numbered-%d" % number) for number in range(5)]
        await numbered.send_batch(events, partition="0")
        identity = (await numbered.get_partition_publishing_properties("0")).producer_group_id
        async with plain.transaction() as tx:
            for number in range(2):
                await tx.send(b"transacted-%d" % number, partition="0", key="k")
        events.append(Event(b"m", properties={"more": 1}))
        await numbered.send_batch(events[5:], partition="0")
        own = [(identity, event.published_sequence_number) for event in events]
        assert [number for _, number in own] == list(range(own[0][1] or 0, (own[0][1] or 0) + 6))

        found: list[tuple[int, int]] = []
        async for block in client.read(log, "0", 2, 11, publishers=True):
            columns = block.columns()
            assert columns.publishers is not None
            found += columns.publishers
            check_publishers(block)
            assert isinstance(block, BatchBlock)
        assert found[0] == (-1, -1)
        assert found[1:6] == own[:5]
        (one, first), (other, second) = found[6:8]
        assert one == other != identity
        assert second == first + 1
        assert found[8:] == own[5:]
        async for block in client.read(log, "0", 0, 11, publishers=True, filter="a.more = 1"):
            assert block.columns().publishers == own[5:]
        async for block in client.read(log, "0", 3, 8, publishers=True):
            assert block.columns().publishers == own[:5]
            check_publishers(block)
        async for block in client.read(log, "0", 0, 11):
            assert block.columns().publishers is None
        singles = client.read(log, "0", 2, 11, publishers=True, filter=ALL)
        assert [numbers for block in [one async for one in singles] for numbers in checked(block)] == found


def checked(block: EventBlock) -> list[tuple[int, int]]:
    """The publishers of a block of single events."""
    assert not isinstance(block, BatchBlock)
    check_publishers(block)
    publishers = block.columns().publishers
    assert publishers is not None
    return publishers


def one_by_one(block: EventBlock) -> list[EventBlock]:
    """A block of each event."""
    if not isinstance(block, BatchBlock):
        return [EventBlock(block.partition, [payload], block._reader) for payload in block.payloads]
    return [
        BatchBlock(block.partition, [batch.part(place, place + 1)], publishers=block.tells_publishers)
        for batch in block.batches
        for place in range(len(batch))
    ]


def check_publishers(block: EventBlock) -> None:
    """Where there are arrays, they say what the columns say."""
    if find_spec("numpy") is None:
        return
    from holdfast.client.blocks.event_arrays import arrays_of

    for one in (block, *one_by_one(block)):
        arrays, columns = arrays_of(one), one.columns()
        if any(event.properties for event in one.events()):
            assert arrays is None
            continue
        if arrays is None:
            assert len({event.key for event in one.events()}) > 1
            continue
        assert list(zip(arrays.producer_ids.tolist(), arrays.sequences.tolist(), strict=True)) == columns.publishers
        assert arrays.offsets.tolist() == columns.offsets


@pytest.mark.parametrize("options", [FEW, MANY])
@pytest.mark.parametrize("follow", [True, False])
async def test_a_range_ends_behind_events_that_nobody_is_given(
    nodes: Nodes, follow: bool, options: RangeOptions
) -> None:
    log = await nodes.log(1)
    network = NetworkOptions(follow_redirects=follow)
    async with (
        ProducerClient(nodes.servers, log) as producer,
        RangeClient(nodes.servers, network=network, options=options) as client,
        RangeClient(nodes.servers, isolation="uncommitted", network=network, options=options) as sees_all,
    ):
        await fill(producer, 3)
        await roll_back(producer, 5)
        assert (await extent(client, log)).end == 8
        seen = [(0, b"e0"), (1, b"e1"), (2, b"e2")]
        assert await rows(client, log, 0, 8) == seen
        assert await rows(client, log, 4, 8) == []
        assert len(await rows(sees_all, log, 0, 8)) == 8
        await fill(producer, 1, "f")
        assert await rows(client, log, 0, 8) == seen
        assert await rows(client, log, 5, 9) == [(8, b"f0")]
        tx = producer.transaction()
        await tx.begin()
        await (await tx.send(b"open", partition="0"))
        assert (await extent(client, log)).end == 9
        assert (await extent(sees_all, log)).end == 10
        await tx.abort()


async def test_a_range_beyond_what_is_decided_waits_for_it(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer, RangeClient(nodes.servers) as client:
        await fill(producer, 2)
        reading = asyncio.ensure_future(rows(client, log, 0, 4))
        await fill(producer, 2, "f")
        assert [body for _, body in await reading] == [b"e0", b"e1", b"f0", b"f1"]


async def test_a_time_is_found_as_an_offset(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer, RangeClient(nodes.servers) as client:
        assert await client.offset_at(log, "0", 0, 0) == 0
        await fill(producer, 3)
        await asyncio.sleep(0.01)
        await roll_back(producer, 2)
        [block] = [block async for block in client.read(log, "0", 0, 3)]
        last_ms = block.columns().timestamps_ms[-1]
        await asyncio.sleep(0.01)  # the next event's time is another one
        await fill(producer, 3, "f")
        assert await client.offset_at(log, "0", 0, 8) == 0
        assert await client.offset_at(log, "0", last_ms + 1, 8) == 5
        assert await client.offset_at(log, "0", last_ms + 1, 5) == 5
        assert await client.offset_at(log, "0", 1 << 41, 8) == 8


async def test_columns_say_what_single_events_say(nodes: Nodes) -> None:
    log = await nodes.log(1)
    given = [
        Event(b"plain"),
        Event(b"keyed", key="IBM"),
        Event(b"also keyed", key="k" * 300),
        Event(b"x" * 300),
        Event(b"y" * 300, key="AIG"),
        Event(b"with properties", properties={"price": 1.5}),
        Event(b"", key="SPY", properties={"a": "b"}),
        Event(b""),
    ]
    async with ProducerClient(nodes.servers, log) as producer, RangeClient(nodes.servers) as client:
        for event in given:
            await producer.send_and_confirm(event, partition="0")
        await producer.send_batch(given, partition="0")
        given += given
        payloads = await as_they_came(nodes, log, len(given))
        for parts in ([payloads], [[payload] for payload in payloads], [payloads[:2], payloads[2:]], [payloads[3:5]]):
            for part in parts:
                check_columns(EventBlock("0", part))
        events = EventBlock("0", payloads).events()
        assert [event.body for event in events] == [event.body for event in given]
        [whole] = [block async for block in client.read(log, "0", 0, len(given))]
        assert isinstance(whole, BatchBlock)
        assert [row(event) for event in whole.events()] == [row(event) for event in events]
        assert whole.size_bytes < sum(map(len, payloads))
        for block in (whole, *one_by_one(whole)):
            check_columns(block)


async def as_they_came(nodes: Nodes, log: str, count: int) -> list[bytes]:
    async with RangeClient(nodes.servers) as client:
        return [payload async for block in client.read(log, "0", 0, count, filter=ALL) for payload in block.payloads]


def row(event: ReceivedEvent) -> tuple[object, ...]:
    return event.partition, event.offset, event.timestamp_ms, event.key, event.body, event.properties


def check_columns(block: EventBlock) -> None:
    columns, events = block.columns(), block.events()
    assert columns.offsets == [int(event.offset, 16) for event in events]
    assert columns.timestamps_ms == [event.timestamp_ms for event in events]
    assert columns.keys == [event.key for event in events]
    assert columns.bodies == [event.body for event in events]
    assert (len(block), block.last_offset) == (len(events), columns.offsets[-1])
    check_arrays(block)
    for place, event in enumerate(events):
        if event.properties:
            assert row(columns.decoded[place]) == row(event)


def check_arrays(block: EventBlock) -> bool:
    """They say what the columns say, or there are none."""
    if find_spec("numpy") is None:
        return False
    from holdfast.client.blocks.event_arrays import arrays_of

    arrays = arrays_of(block)
    if arrays is None:
        return False
    columns, ends, bodies = block.columns(), arrays.body_ends.tolist(), bytes(arrays.bodies)
    assert arrays.offsets.tolist() == columns.offsets
    assert arrays.timestamps_ms.tolist() == columns.timestamps_ms
    assert (arrays.keys or [None] * len(block)) == columns.keys
    assert [bodies[start:end] for start, end in itertools.pairwise(ends)] == columns.bodies
    assert not columns.decoded
    return True


@pytest.mark.skipif(find_spec("numpy") is None, reason="there is no numpy here: `make test` installs it")
async def test_the_usual_blocks_are_arrays_and_no_other_is(nodes: Nodes) -> None:
    log = await nodes.log(1)
    plain = [Event(b"x" * 100) for _ in range(5)]
    of_all_sizes = [Event(bytes(size)) for size in (3, 255, 256, 300, 4)]
    keyed = [Event(b"y" * size, key=key) for size, key in ((3, "IBM"), (3, "AIG"), (255, "a long key"), (256, ""))]
    others = [Event(b"xyz", properties={"a": 1})]
    given = plain + of_all_sizes + keyed + others
    async with ProducerClient(nodes.servers, log) as producer, RangeClient(nodes.servers) as client:
        for event in given:
            await producer.send_and_confirm(event, partition="0")
        payloads = await as_they_came(nodes, log, len(given))
        for first, end in ((0, 5), (5, 10), (0, 10), (10, 14)):
            assert [check_arrays(block) async for block in client.read(log, "0", first, end)] == [True]
        for first, end in ((10, 15), (14, 15), (9, 11)):
            assert [check_arrays(block) async for block in client.read(log, "0", first, end)] == [False]
    assert check_arrays(EventBlock("0", payloads[:5]))
    assert check_arrays(EventBlock("0", payloads[5:10]))
    assert check_arrays(EventBlock("0", payloads[:10]))
    assert check_arrays(EventBlock("0", payloads[10:14]))
    for some in (payloads[10:15], payloads[14:], payloads[9:11]):
        assert not check_arrays(EventBlock("0", some)), "other than the usual ones, or of both kinds"
    spoiled = [payload[:-1] for payload in payloads[:5]]
    assert not check_arrays(EventBlock("0", spoiled)), "a body that is cut off"
    assert not check_arrays(EventBlock("0", payloads[1:3] + payloads[:1])), "offsets that fall"


async def test_memory_is_bounded_by_the_options(nodes: Nodes) -> None:
    log = await nodes.log(1)
    options = RangeOptions(prefetch=64, prefetch_bytes=20_000)
    async with ProducerClient(nodes.servers, log) as producer, RangeClient(nodes.servers, options=options) as client:
        await fill(producer, 1000, "x" * 1000)
        sizes = [len(block) async for block in client.read(log, "0", 0, 1000, filter=ALL)]
        assert sum(sizes) == 1000
        assert max(sizes[3:]) <= 64
        blocks = [block async for block in client.read(log, "0", 0, 1000)]
        assert sum(map(len, blocks)) == 1000
        assert max(block.size_bytes for block in blocks) <= DELIVERY_BYTES, "one delivery of batches at a time"


async def test_what_is_wrong_is_said(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with RangeClient(nodes.servers) as client:
        with pytest.raises(NotFoundError):
            await client.extents("nowhere")
        with pytest.raises(ConfigurationError, match="filter"):
            await client.check(log, "0", "TRUE OR")
        await client.check(log, "0", "a.colour = 'blue'")
        with pytest.raises(ConfigurationError, match="not smaller"):
            await rows(client, log, 3, 2)
    with pytest.raises(ConfigurationError, match="isolation"):
        RangeClient(nodes.servers, isolation="serializable")  # type: ignore[arg-type]


async def test_the_synchronous_twin_reads_the_same(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with ProducerClient(nodes.servers, log) as producer:
        await fill(producer, 300)

    def read() -> tuple[int, list[int], int]:
        with SyncRangeClient(nodes.servers, options=RangeOptions(prefetch=50)) as client:
            [found] = client.extents(log)
            offsets = [offset for block in client.read(log, "0", 0, 300) for offset in block.columns().offsets]
            for _ in client.read(log, "0", 0, 300):
                break  # and it is let go of
            return found.end, offsets, client.offset_at(log, "0", 0, 300)

    assert await asyncio.to_thread(read) == (300, list(range(300)), 0)
