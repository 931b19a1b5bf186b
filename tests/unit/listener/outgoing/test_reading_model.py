"""Whatever a partition holds, and however it is read, a reader has the events that a simple model says."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from holdfast.client.blocks.batch_block import BatchBlock
from holdfast.client.blocks.event_block import EventBlock
from holdfast.client.consume.publisher_reader import PublisherReader
from holdfast.client.events import encode_event
from holdfast.records.batch_transfer import batches_in
from holdfast.records.codec import Codec
from holdfast.records.record_batch import Numbering, OpenBatch, RecordBatch
from node.listener.outgoing.batch_deliveries import BatchDeliveries
from node.listener.outgoing.partition_cursor import PartitionCursor
from node.listener.outgoing.single_deliveries import SingleDeliveries
from node.listener.outgoing.source_filters import Selection
from node.partition.api import After, AfterTime, Earliest, ProducerOpened, ProducerRequest, Reader, Start
from node.partition.partition_commands import encode_transaction_command
from node.partition.raft_entry import join
from node.partition.transactions.transaction_commands import Begin
from tests.unit.partition.support import START_MS, PartitionNode
from tests.unit.partition.transactions.driving import marker
from tests.unit.rpc.support import cluster_of

PARTITION = "0"
GROUP = 17
PRODUCER, WRITER = 5, 1 << 40
LEAST_LIMIT = 400
"""Each event fits a message of so many bytes."""


@dataclass(frozen=True)
class Known:
    """An event, as the model has it."""

    offset: int
    time_ms: int
    body: bytes
    key: str | None
    properties: dict[str, Any]
    publisher: tuple[int, int]
    aborted: bool = False

    @property
    def message(self) -> bytes:
        return encode_event(self.body, self.key, self.properties or None)


Row = tuple[int, int, str | None, bytes, dict[str, Any], tuple[int, int]]


def row_of(event: Known) -> Row:
    return event.offset, event.time_ms, event.key, event.body, event.properties, event.publisher


class Log:
    """A partition on a real node that is written entry by entry, and the model of it."""

    def __init__(self, node: PartitionNode, chance: random.Random) -> None:
        self.node, self._chance = node, chance
        self.events: list[Known] = []
        self.stored: set[bytes] = set()
        """The contents of all batches."""
        self.compressed = 0
        self._time_ms = 0
        self._numbered: list[Known] = []  # of the idempotent producer
        self._epoch = 0  # of the transactions
        self._letters = itertools.count()
        opening = asyncio.ensure_future(node.replica.open_producer(ProducerRequest(PRODUCER, 0, None)))
        self._opening = opening

    async def opened(self) -> None:
        await asyncio.sleep(0)
        self.node.turns()
        assert isinstance(await self._opening, ProducerOpened)

    def write(self, entries: int) -> None:
        for _ in range(entries):
            self.node.now_ms += self._chance.randrange(3)
            if self._chance.random() < 0.3:
                self._transaction(commit=self._chance.random() < 0.5)
            else:
                self._append([self._plain() if self._chance.random() < 0.5 else self._resent() for _ in self._some(4)])

    def _some(self, most: int) -> range:
        return range(self._chance.randint(1, most))

    def _append(self, batches: list[tuple[RecordBatch, list[Known]]]) -> None:
        """One entry."""
        stamped = []
        for batch, news in batches:
            clock_ms = self.node.now_ms - self._chance.choice(
                (0, 0, 5)
            )  # a leader's clock may lag behind the last one's
            stamped.append(batch.stamped(clock_ms))
            self._time_ms = max(self._time_ms, clock_ms)
            for event in news:
                self.events.append(Known(len(self.events), self._time_ms, *_rest(event)))
        self.stored |= {bytes(batch.content) for batch in stamped}
        self.compressed += sum(batch.codec != 0 for batch in stamped)
        self._propose(join(stamped))

    def _propose(self, entry: bytes) -> None:
        self.node.group.propose(entry, lambda _: None)
        self.node.turns()

    def _made(self, publisher: Callable[[int], tuple[int, int]], *, aborted: bool = False) -> list[Known]:
        bare = self._chance.random() < 0.5
        found = []
        for place in range(self._chance.choice((1, 2, 12, 40))):
            number = next(self._letters)
            body = b"%d " % number * self._chance.choice((0, 1, 5, 20) if bare or place % 2 else (3, 3))
            key = None if bare else self._chance.choice((None, "k", "another key"))
            more = {} if bare or self._chance.random() < 0.9 else {"number": number}
            found.append(Known(-1, 0, body, key, more, publisher(place), aborted))
        return found

    def _sealed(self, events: list[Known], *, digests: bool) -> RecordBatch:
        batch = OpenBatch()
        if any(event.key is not None or event.properties for event in events) or self._chance.random() < 0.3:
            batch.extend([event.message for event in events], bodies=False)
        else:
            batch.extend([event.body for event in events], bodies=True)
        own = b"".join(crc32c(event.message).to_bytes(4, "big") for event in events) if digests else b""
        return batch.seal(self._chance.choice((Codec.NONE, Codec.GZIP, Codec.ZSTD)), own)

    def _plain(self) -> tuple[RecordBatch, list[Known]]:
        events = self._made(lambda _: (-1, -1))
        return self._sealed(events, digests=False), events

    def _resent(self) -> tuple[RecordBatch, list[Known]]:
        """Some that are known, and some that follow them."""
        first = len(self._numbered)
        known = self._numbered[first - self._chance.choice((0, 0, 1, 3)) :] if first > 3 else []
        known = known if len(known) < 4 else []
        news = self._made(lambda place: (PRODUCER, first + place))
        self._numbered += news
        batch = self._sealed(known + news, digests=True)
        return batch.numbered(Numbering(PRODUCER, 0, first - len(known))), news

    def _transaction(self, *, commit: bool) -> None:
        epoch, sent = self._epoch, 0
        self._epoch += 1
        self._propose(encode_transaction_command(Begin(WRITER, epoch, 3, 60_000, self.node.now_ms)))
        for _ in self._some(3):
            first = sent
            events = self._made(lambda place, first=first: (WRITER, first + place), aborted=not commit)  # type: ignore[misc]
            sent += len(events)
            batch = self._sealed(events, digests=True).numbered(Numbering(WRITER, epoch, first), transactional=True)
            self._append([(batch, events), *([self._plain()] if self._chance.random() < 0.3 else [])])
        self._propose(marker(WRITER, epoch, commit=commit, now_ms=self.node.now_ms))


def _rest(event: Known) -> tuple[Any, ...]:
    return event.body, event.key, event.properties, event.publisher, event.aborted


# ---------------------------------------------------------------- readers

Deliveries = SingleDeliveries | BatchDeliveries


def singles(payloads: list[bytes], log: Log) -> Iterator[EventBlock]:
    yield EventBlock(PARTITION, payloads, PublisherReader(PARTITION))


def in_batches(payloads: list[bytes], log: Log) -> Iterator[EventBlock]:
    for payload in payloads:
        block = BatchBlock.read(PARTITION, payload, publishers=True)
        assert block.damage is None
        yield block


@dataclass
class Way:
    """What a link asks of a partition."""

    start: Start
    until: int
    uncommitted: bool
    largest: int

    def events(self, log: Log) -> list[Row]:
        def wanted(event: Known) -> bool:
            match self.start:
                case After(offset):
                    behind = event.offset > offset
                case AfterTime(time_ms, offset):
                    behind = event.time_ms > time_ms and event.offset > offset
                case _:
                    behind = True
            return behind and event.offset < self.until and (self.uncommitted or not event.aborted)

        return [row_of(event) for event in log.events if wanted(event)]

    @classmethod
    def drawn(cls, chance: random.Random, log: Log) -> Way:
        end = len(log.events)
        start = chance.choice(
            [
                Earliest(),
                After(chance.randrange(end)),
                AfterTime(chance.choice(log.events).time_ms, chance.randrange(end)),
            ]
        )
        until = chance.choice([1 << 62, chance.randint(1, end)])
        return cls(start, until, chance.random() < 0.5, chance.choice([0, 0, LEAST_LIMIT, 1000, 5000]))

    def cursor(self) -> PartitionCursor:
        cursor = PartitionCursor(PARTITION, Selection(self.start).before(self.until), publishers=True)
        cursor.start = self.start
        return cursor


async def read(
    way: Way, deliveries: Deliveries, reader: Reader, end: int, chance: random.Random, woken: asyncio.Event
) -> list[list[bytes]]:
    """What a link with some credit, now and then, sends of it: the payloads of each turn."""
    cursor, found = way.cursor(), []
    cursor.reader = reader
    while cursor.holds or (not cursor.done and reader.position < end):
        room = chance.choice((1, 7, 300))
        payloads: list[bytes] = []
        if not cursor.holds:
            woken.clear()
            batches = deliveries.read(cursor, room)
            assert reader.error is None
            if not batches:
                if reader.position < end:
                    await woken.wait()
                continue
            payloads = deliveries.payloads(cursor, batches)
        payloads += deliveries.release(cursor, room)
        assert len(payloads) <= room
        found.append(payloads)
    return found


def rows_in(block: EventBlock) -> list[Row]:
    """The events of a block, which its columns and arrays say as well."""
    columns, events = block.columns(), block.events()
    publishers = columns.publishers
    assert publishers is not None
    rows = [
        (int(event.offset, 16), event.timestamp_ms, event.key, event.body, dict(event.properties), numbers)
        for event, numbers in zip(events, publishers, strict=True)
    ]
    assert len(block) == len(events)
    assert block.last_offset == rows[-1][0]
    told = zip(columns.offsets, columns.timestamps_ms, columns.keys, columns.bodies, publishers, strict=True)
    assert [(*row[:4], row[5]) for row in rows] == list(told)
    check_arrays(block, rows)
    return rows


def check_arrays(block: EventBlock, rows: list[Row]) -> None:
    if find_spec("numpy") is None:
        return
    from holdfast.client.blocks.event_arrays import arrays_of

    arrays = arrays_of(block)
    plain = not any(properties for *_, properties, _ in rows) and len({key is None for _, _, key, *_ in rows}) == 1
    if arrays is None:
        assert not plain or not isinstance(block, BatchBlock) or min(len(body) for _, _, _, body, *_ in rows) < 3
        return
    assert plain
    data, ends = bytes(arrays.bodies), arrays.body_ends.tolist()
    bodies = [data[start:end] for start, end in itertools.pairwise(ends)]
    keys = arrays.keys or [None] * len(rows)
    publishers = zip(arrays.producer_ids.tolist(), arrays.sequences.tolist(), strict=True)
    told = zip(arrays.offsets.tolist(), arrays.timestamps_ms.tolist(), keys, bodies, publishers, strict=True)
    assert [(*row[:4], row[5]) for row in rows] == list(told)


async def check(
    log: Log, way: Way, open_reader: Callable[[Callable[[], None]], Reader], chance: random.Random, *, whole: bool
) -> None:
    deliveries: Deliveries = BatchDeliveries(way.largest, lambda *_: None) if whole else SingleDeliveries()
    woken = asyncio.Event()
    reader = open_reader(woken.set)
    turns = await read(way, deliveries, reader, min(way.until, len(log.events)), chance, woken)
    reader.close()
    payloads = [payload for turn in turns for payload in turn]
    if whole and way.largest:
        assert all(len(payload) <= way.largest for payload in payloads)
    if whole and not way.largest:
        contents = {bytes(batch.content) for payload in payloads for batch in batches_in(payload)}
        assert contents <= log.stored, "batches go out as they are stored"
    blocks = in_batches if whole else singles
    found = [row for turn in turns if turn for block in blocks(turn, log) for row in rows_in(block)]
    assert found == way.events(log)


async def written(path: Path, chance: random.Random) -> Log:
    log = Log(PartitionNode(path), chance)
    await log.opened()
    log.write(20)
    assert log.compressed
    assert log.node.replica.next_offset == len(log.events)
    return log


@pytest.mark.parametrize("seed", range(8))
async def test_every_way_to_read_here_gives_what_the_model_says(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = await written(tmp_path, chance)
    with log.node:
        assert log.events[0].time_ms >= START_MS - 5
        for turn in range(30):
            way = Way.drawn(chance, log)

            def opened(wake: Callable[[], None], way: Way = way) -> Reader:
                return log.node.replica.open_reader(way.start, wake, uncommitted=way.uncommitted)

            await check(log, way, opened, chance, whole=turn % 2 == 0)


@pytest.mark.parametrize("seed", range(2))
async def test_every_way_to_read_through_a_gateway_gives_what_the_model_says(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = await written(tmp_path, chance)
    with log.node:
        async with cluster_of(1, 2) as nodes:
            nodes[2].groups[GROUP] = log.node.replica  # type: ignore[assignment]
            for turn in range(12):
                way = Way.drawn(chance, log)

                def opened(wake: Callable[[], None], way: Way = way) -> Reader:
                    client: Any = nodes[1].network.client(2)
                    return client.open_reader(GROUP, way.start, wake, uncommitted=way.uncommitted)  # type: ignore[no-any-return]

                await check(log, way, opened, chance, whole=turn % 2 == 0)
