"""Mixed clients on one log: whoever leads it, readers are given what a simple model says.

For each seed producers of every kind publish to one log, while leaders change. Then one read of each partition, whole
and uncommitted, is the reference. What each producer was told is held against it, and what every other reader is given.
The seed draws what is done; the machine says when, so a seed that failed may need some tries to fail again. With
`HOLDFAST_MIXED=100` there are so many seeds, and `-k 'killed and 17'` takes one of them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from proton import Described, symbol, timestamp, ulong
from proton.reactor import Filter

from holdfast.amqp.messages.message import offset_text
from holdfast.client import (
    AdminClient,
    ConsumerClient,
    ConsumerOptions,
    ProducerClient,
    RangeClient,
    RangeOptions,
    ReceivedEvent,
    Start,
)
from tests.integration.clusters.cluster import READY_WITHIN_S, Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.workloads.consumers import ResumingConsumer
from tests.integration.workloads.mixed_producers import MixedPublisher, MixedScene, name_in, producers_of_every_kind
from tests.integration.workloads.plain import GROUP_KEY, OFFSET, TIMESTAMP, WAIT_S, Bound, Received, connected

pytestmark = pytest.mark.cluster

SEEDS = number_from("HOLDFAST_MIXED", 2)


@dataclass(frozen=True)
class Row:
    """An event as any reader sees it."""

    partition: str
    offset: int
    time_ms: int
    key: str | None
    body: bytes
    properties: dict[str, Any]

    @property
    def name(self) -> str:
        return name_in(self.body)

    @property
    def is_last(self) -> bool:
        """True for the last event of each partition: a reader that has it has all."""
        return "last" in self.properties

    @staticmethod
    def of(event: ReceivedEvent) -> Row:
        offset = int(event.offset, 16)
        return Row(event.partition, offset, event.timestamp_ms, event.key, event.body, dict(event.properties))

    @staticmethod
    def of_stock(event: Received) -> Row:
        body = event.body.encode() if isinstance(event.body, str) else event.body
        key = (event.message.annotations or {}).get(symbol(GROUP_KEY))
        properties = dict(event.message.properties or {})
        return Row(event.partition, int(event.offset, 16), event.timestamp_ms, key, body, properties)


@dataclass(frozen=True)
class Condition:
    """A filter in the words of our client, in those of a stock one, and in Python."""

    own: str
    stock: str
    passes: Callable[[Row], bool] = field(repr=False)


ANY = Condition("", "", lambda row: True)
CONDITIONS = [
    Condition("a.n % 3 = 0", "n % 3 = 0", lambda row: row.properties.get("n", 1) % 3 == 0),
    Condition(
        "key = 'bob' OR a.last = TRUE",
        f"m.[{GROUP_KEY}] = 'bob' OR last = TRUE",
        lambda row: row.key == "bob" or row.is_last,
    ),
]


@dataclass
class Way:
    """A reading of one partition: of offsets from `first` on and below `end`, or of times from `since_ms` on."""

    partition: str
    uncommitted: bool = False
    first: int = 0
    since_ms: int = 0
    end: int | None = None
    condition: Condition = ANY

    @property
    def isolation(self) -> Any:
        return "uncommitted" if self.uncommitted else "committed"


@dataclass
class Model:
    """A log as one reading gave it, and as its producers know it."""

    rows: dict[str, list[Row]]
    uncounted: set[str] = field(default_factory=set)  # names of events that were rolled back
    starts: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # retention has taken what lies before

    def rows_for(self, way: Way) -> list[Row]:
        rows = self.rows[way.partition][max(way.first, self.starts[way.partition]) : way.end]
        if not way.uncommitted:
            rows = [row for row in rows if row.name not in self.uncounted]
        return [row for row in rows if row.time_ms >= way.since_ms and way.condition.passes(row)]

    def draw(self, chance: random.Random, partition: str) -> Way:
        rows = self.rows[partition]
        way = Way(partition, uncommitted=chance.random() < 0.5, condition=chance.choice([ANY, *CONDITIONS]))
        match chance.choice(("whole", "by offset", "by time")):
            case "by offset":
                way.first = chance.randrange(len(rows))
            case "by time":
                way.since_ms = chance.choice(rows).time_ms
        return way

    def check_reader(self, way: Way, found: list[Row]) -> None:
        """Check that a reader of this way has found everything. The first difference says more than two long lists."""
        for place, (given, right) in enumerate(itertools.zip_longest(found, self.rows_for(way))):
            assert given == right, f"{way}: event {place} of {len(found)} is {given}, not {right}"

    def check_producer(self, producer: MixedPublisher) -> None:
        """Check that everything it was told is true, and that its events stand in order."""
        stored: dict[str, list[Row]] = {sent.name: [] for sent in producer.sent}
        for rows in self.rows.values():
            mine = [row for row in rows if row.name.startswith(f"{producer.name}:")]
            for row in mine:
                assert row.name in stored, f"nobody has sent {row}"
                stored[row.name].append(row)
            numbers = [int(name.rpartition(":")[2]) for name in dict.fromkeys(row.name for row in mine)]
            assert numbers == sorted(numbers), f"{producer.name} is out of order: {numbers}"
        for sent in producer.sent:
            found = stored[sent.name]
            assert found or not sent.counts, f"{sent} was acknowledged, and is lost"
            assert len(found) < 2 or not producer.once, f"{sent} stands twice: {found}"
            assert sent.offset in (None, *(row.offset for row in found)), f"{sent} stands elsewhere: {found}"
            for row in found:
                assert sent.partition in (None, row.partition), f"{sent} went to {row}"
                given = sent.event.key, sent.event.body, sent.event.properties or {}
                assert (row.key, row.body, row.properties) == given, f"{given} came as {row}"

    def check_keys(self) -> None:
        """Check that events with one key, whoever sent them, are in one partition."""
        homes = {(row.key, row.partition) for rows in self.rows.values() for row in rows if row.key is not None}
        assert len(homes) == len({key for key, _ in homes}), homes


# ---------------------------------------------------------------------------------------------- readers


def consumer_of(scene: MixedScene, prefetch: int = 8192, until_end: bool = False, **more: Any) -> ConsumerClient:
    options = ConsumerOptions(prefetch=prefetch, until_end=until_end, network=scene.network())
    return ConsumerClient(scene.servers(), scene.log, options=options, **more)


async def rows_to_the_last(consumer: ConsumerClient, partitions: Iterable[str]) -> list[Row]:
    found, left = [], set(partitions)
    while left:
        found += (rows := [Row.of(event) for event in await consumer.receive()])
        left -= {row.partition for row in rows if row.is_last}
    return found


def in_partition(partition: str, rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.partition == partition]


class Follower:
    """A consumer that reads everything while it is published."""

    def __init__(self, scene: MixedScene, *, uncommitted: bool) -> None:
        self._scene, self._uncommitted, self._rows = scene, uncommitted, list[Row]()

    async def read(self) -> None:
        way = Way("", self._uncommitted)
        prefetch = self._scene.chance.choice((1, 50, 8192))
        async with consumer_of(self._scene, prefetch, start=Start.earliest(), isolation=way.isolation) as consumer:
            self._rows = await rows_to_the_last(consumer, self._scene.partitions)

    def check(self, model: Model) -> None:
        for partition in self._scene.partitions:
            model.check_reader(Way(partition, self._uncommitted), in_partition(partition, self._rows))


class StockFollower:
    """Receivers of stock proton, one for each partition, that read everything while it is published."""

    def __init__(self, scene: MixedScene) -> None:
        self._readers = {name: ResumingConsumer(scene.servers(), scene.log, name) for name in scene.partitions}

    async def read(self) -> None:
        for reader in self._readers.values():
            reader.begin()

    def check(self, model: Model) -> None:
        for partition, reader in self._readers.items():
            reader.wait_for(len(model.rows_for(Way(partition))))
            model.check_reader(Way(partition), [Row.of_stock(event) for event in reader.events])


class Group:
    """A member of a group that commits now and then, and another one that goes on when it `leaves`."""

    def __init__(self, scene: MixedScene) -> None:
        self.leaves = asyncio.Event()
        self._scene = scene
        self._first: list[Row] = []
        self._second: list[Row] = []
        self._done = dict.fromkeys(scene.partitions, -1)  # offsets that are committed

    async def read(self) -> None:
        async with consumer_of(self._scene, group="g", start=Start.earliest()) as member:
            while not self.leaves.is_set():
                self._first += map(Row.of, await member.receive(max_events=70, timeout_s=0.1))
                if self._first and self._scene.chance.random() < 0.5:
                    self._done.update((place, int(at, 16)) for place, at in (await member.commit()).items())
        async with consumer_of(self._scene, group="g", start=Start.earliest()) as member:
            self._second = await rows_to_the_last(member, self._scene.partitions)

    def check(self, model: Model) -> None:
        for partition, done in self._done.items():
            first = in_partition(partition, self._first)
            model.check_reader(Way(partition, end=first[-1].offset + 1 if first else 0), first)
            model.check_reader(Way(partition, first=done + 1), in_partition(partition, self._second))


async def read_by_range(scene: MixedScene, way: Way) -> list[Row]:
    options = RangeOptions(prefetch=scene.chance.choice((1, 8192)))
    network, where = scene.network(), way.condition.own or None
    async with RangeClient(scene.servers(), isolation=way.isolation, options=options, network=network) as client:
        (extent,) = [extent for extent in await client.extents(scene.log) if extent.partition == way.partition]
        if way.since_ms:
            way.first = await client.offset_at(scene.log, way.partition, way.since_ms, extent.end)
        way.end = scene.chance.choice((extent.end, scene.chance.randint(way.first, extent.end)))
        blocks = client.read(scene.log, way.partition, way.first, way.end, filter=where)
        return [Row.of(event) async for block in blocks for event in block.events()]


async def read_by_consumer(scene: MixedScene, way: Way) -> list[Row]:
    start = Start.after(offset_text(way.first - 1)) if way.first else Start.from_time(way.since_ms)
    async with consumer_of(
        scene, scene.chance.choice((1, 8192)), until_end=True, start=start, partitions=[way.partition],
        filter=way.condition.own or None, isolation=way.isolation,
    ) as consumer:  # fmt: skip
        return [Row.of(event) async for event in consumer]


async def read_by_stock(scene: MixedScene, way: Way) -> list[Row]:
    place = {symbol(OFFSET): symbol(offset_text(way.first - 1) if way.first else "@earliest")}
    if way.since_ms:
        place[symbol(TIMESTAMP)] = timestamp(way.since_ms - 1)
    filters: dict[Any, Any] = {symbol("start"): Described(ulong(0x200), place)}
    filters[symbol("isolation")] = Described(symbol("holdfast:isolation-filter:string"), way.isolation)
    if way.condition.stock:
        filters[symbol("sql")] = Described(ulong(0x120), way.condition.stock)
    address, options = scene.servers()[0], [Bound(way.partition), Filter(filters)]

    def read() -> list[Row]:
        found: list[Row] = []
        with connected(address) as connection:
            receiver = connection.create_receiver(scene.log, credit=200, options=options)
            while not (found and found[-1].is_last):
                found.append(Row.of_stock(Received.of(receiver.receive(timeout=WAIT_S))))
                receiver.accept()
        return found

    return await asyncio.to_thread(read)


# ---------------------------------------------------------------------------------------------- the story

Mishap = Callable[[MixedScene, int], Callable[[], object]]
"""Takes the leaderships of a node away. What is returned gives the node back."""


def drain(scene: MixedScene, node: int) -> Callable[[], object]:
    cluster, servers = scene.cluster, [scene.cluster.address(node)]
    cluster.call(lambda admin: admin.drain_node(node), servers)
    wait_until(lambda: node not in cluster.leaders(scene.log).values(), f"node {node} to lead nothing")
    return lambda: cluster.call(lambda admin: admin.resume_node(node), servers)


def kill(scene: MixedScene, node: int) -> Callable[[], object]:
    scene.cluster.kill(node)
    return lambda: scene.cluster.start(node)


async def play(cluster: Cluster, log: str, seed: int, mishap: Mishap) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    scene = MixedScene(cluster, log, chance, [str(number) for number in range(chance.choice((2, 3)))])
    compression = chance.choice(("none", "gzip", "zstd"))
    await asyncio.to_thread(cluster.create, log, len(scene.partitions), compression=compression)
    group = Group(scene)
    followers = [Follower(scene, uncommitted=False), Follower(scene, uncommitted=True), StockFollower(scene), group]
    async with asyncio.timeout(READY_WITHIN_S):
        reading = asyncio.gather(*(follower.read() for follower in followers))
        producers = await publish(scene, mishap, group)
        await reading
    model = await learn(scene, producers)
    for follower in followers:
        await asyncio.to_thread(follower.check, model)
    if chance.random() < 0.5:
        await trim(scene)
    for read in (read_by_range, read_by_consumer, read_by_stock):
        for partition in scene.partitions * 2:
            way = model.draw(chance, partition)
            model.check_reader(way, await read_undisturbed(scene, model, read, way))


async def publish(scene: MixedScene, mishap: Mishap, group: Group) -> list[MixedPublisher]:
    """Each producer does some rounds before the mishap, while it strikes, and when it is over."""
    producers = producers_of_every_kind(scene)

    async def rounds(count: int) -> None:
        async def some(producer: MixedPublisher) -> None:
            for _ in range(count):
                await producer.round()

        await asyncio.gather(*map(some, producers))

    await asyncio.gather(*(producer.open() for producer in producers))
    await rounds(3)
    leaders = await asyncio.to_thread(scene.cluster.leaders, scene.log)
    _, undo = await asyncio.gather(rounds(8), asyncio.to_thread(mishap, scene, leaders["0"]))
    group.leaves.set()
    await asyncio.gather(rounds(3), asyncio.to_thread(undo))
    await asyncio.gather(*(producer.close() for producer in producers))
    async with ProducerClient(scene.servers(), scene.log) as producer:
        for partition in scene.partitions:
            await producer.send_and_confirm("last", partition=partition, properties={"n": 0, "last": True})
    return producers


async def learn(scene: MixedScene, producers: Iterable[MixedPublisher]) -> Model:
    """Read the log once for all, and see that it has what its producers were told."""
    model = Model(await rows_of_all(scene, "uncommitted"))
    assert list(model.rows) == scene.partitions
    for rows in model.rows.values():
        assert [row.offset for row in rows] == list(range(len(rows))), "offsets have no gaps"
        assert (times := [row.time_ms for row in rows]) == sorted(times)
        assert rows[-1].is_last
    model.check_keys()
    committed = {row.name for rows in (await rows_of_all(scene, "committed")).values() for row in rows}
    for producer in producers:
        model.check_producer(producer)
        for transaction in producer.doubted:
            assert len({sent.name in committed for sent in transaction}) == 1, f"a part of it counts: {transaction}"
        for sent in producer.sent:
            if sent.counts is False or (sent.counts is None and sent.name not in committed):
                model.uncounted.add(sent.name)
    return model


async def rows_of_all(scene: MixedScene, isolation: Any) -> dict[str, list[Row]]:
    async with RangeClient(scene.servers(), isolation=isolation) as client:
        found: dict[str, list[Row]] = {}
        for extent in await client.extents(scene.log):
            blocks = client.read(scene.log, extent.partition, 0, extent.end)
            found[extent.partition] = [Row.of(event) async for block in blocks for event in block.events()]
    return found


async def starts_of(scene: MixedScene) -> dict[str, int]:
    async with RangeClient(scene.servers()) as client:
        return {extent.partition: extent.start for extent in await client.extents(scene.log)}


async def trim(scene: MixedScene) -> None:
    """Let retention take about the older half of the largest partition."""
    async with RangeClient(scene.servers()) as client, AdminClient(scene.servers()) as admin:
        stored = max(extent.stored_bytes for extent in await client.extents(scene.log))
        await admin.alter_log(scene.log, retention_bytes=stored // 2)
        while not any((await starts_of(scene)).values()):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)


async def read_undisturbed(scene: MixedScene, model: Model, read: Any, way: Way) -> list[Row]:
    """Read once more if retention has taken something meanwhile."""
    found: list[Row] | None = None
    while found is None or model.starts != await starts_of(scene):
        model.starts = await starts_of(scene)
        found = await read(scene, way)
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_readers_are_given_what_the_model_says_while_leaders_move(cluster: Cluster, log_name: str, seed: int) -> None:
    asyncio.run(play(cluster, log_name, seed, drain))


@pytest.mark.parametrize("seed", range((SEEDS + 1) // 2))
def test_readers_are_given_what_the_model_says_when_a_leader_is_killed(
    own_cluster: Cluster, log_name: str, seed: int
) -> None:
    asyncio.run(play(own_cluster, log_name, seed, kill))
