"""A gateway's readers: every record once and in order, and no more in memory than the window."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.rpc import options
from cluster.rpc.calls import services
from node.partition.api import After, AfterTime, Earliest, Latest, ReadError, Start, StoredBatch
from tests.ports import free_port
from tests.unit.rpc.support import SOON_S, MemoryPartition, TestNode, cluster_of, until

GROUP = 17


class Consumer:
    """Polls whenever it is woken, as a link with credit does."""

    def __init__(self, node: TestNode, start: Start, *, max_events: int = 1000, max_bytes: int = 1 << 20) -> None:
        self.batches: list[StoredBatch] = []
        self.wakes = 0
        self.limits = (max_events, max_bytes)
        self.reader: Any = node.network.client(2).open_reader(GROUP, start, self._wake)
        self._poll()

    def _wake(self) -> None:
        self.wakes += 1
        asyncio.get_running_loop().call_soon(self._poll)

    def _poll(self) -> None:
        while batches := self.reader.poll(*self.limits):
            self.batches += batches

    async def has(self, count: int, what: str) -> None:
        await until(lambda: len(self.events) >= count or self.reader.error, what)
        assert self.reader.error is None
        assert len(self.events) == count

    @property
    def events(self) -> list[tuple[int, bytes]]:
        return [(b.base_offset + i, record) for b in self.batches for i, record in enumerate(b.records)]


def filled(count: int, size: int = 10) -> MemoryPartition:
    partition = MemoryPartition()
    for number in range(count):
        partition.append([b"%08d" % number + bytes(size)], lambda _: None)
    return partition


async def test_everything_is_read_from_the_beginning_and_then_what_comes() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(3000)
        consumer = Consumer(nodes[1], Earliest())
        await consumer.has(3000, "what is there")
        for number in range(3000, 4000):
            partition.append([b"%08d" % number + bytes(10)], lambda _: None)
            if number % 50 == 0:
                await asyncio.sleep(0)
        await consumer.has(4000, "what comes")
        assert consumer.events == [(number, b"%08d" % number + bytes(10)) for number in range(4000)]
        assert consumer.reader.position == 4000
        assert consumer.batches[5].timestamp_ms == partition.batches[5].timestamp_ms


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (Earliest(), 0), (Latest(), 10), (After(3), 4), (AfterTime(1004), 4), (AfterTime(0), 0),
        (AfterTime(1004, 7), 8), (AfterTime(1004, 2), 4),
    ],
)  # fmt: skip
async def test_a_start_means_there_what_it_means_here(start: Start, first: int) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(10)
        consumer = Consumer(nodes[1], start)
        await until(lambda: consumer.reader.resolved, "the position")
        partition.append([b"last"], lambda _: None)
        await until(lambda: consumer.events and consumer.events[-1] == (10, b"last"), "the last")
        assert [offset for offset, _ in consumer.events] == list(range(first, 11))


async def test_a_position_is_known_before_anything_is_delivered() -> None:
    """So that "latest" is not resolved a second time, and later, when the leader changes."""
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(7)
        consumer = Consumer(nodes[1], Latest())
        await until(lambda: consumer.reader.resolved, "the position")
        partition.readers[0].fail(ReadError("not_leader", "node 3 leads", True, 3))
        await until(lambda: consumer.reader.error, "the error")
        assert consumer.reader.position == 7
        assert consumer.reader.error == ReadError("not_leader", "node 3 leads", True, 3)


async def test_a_consumer_that_takes_nothing_holds_no_more_than_the_window() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(40_000, size=1000)
        reader: Any = nodes[1].network.client(2).open_reader(GROUP, Earliest(), lambda: None)
        await until(lambda: reader.buffered_bytes > options.READ_WINDOW_BYTES * 0.9, "a full window")
        await asyncio.sleep(0.1)
        overhead = options.READ_REPLY_EVENTS * options.EVENT_OVERHEAD_BYTES  # of one reply: it is cut by its bytes
        assert reader.buffered_bytes <= options.READ_WINDOW_BYTES + overhead
        assert partition.readers[0].polled_bytes <= options.READ_WINDOW_BYTES
        seen = 0
        while seen < 40_000:
            for batch in reader.poll(700, 1 << 30):
                assert batch.base_offset == seen
                seen += len(batch.records)
            assert reader.buffered_bytes <= options.READ_WINDOW_BYTES + overhead
            await asyncio.sleep(0)


async def test_a_poll_takes_no_more_events_and_bytes_than_asked_for_but_always_one() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.append([b"%d" % number * 100 for number in range(10)], lambda _: None)
        reader: Any = nodes[1].network.client(2).open_reader(GROUP, Earliest(), lambda: None)
        await until(lambda: reader.buffered_bytes, "the batch")
        assert reader.poll(3, 1 << 20) == [StoredBatch(0, 1001, [b"0" * 100, b"1" * 100, b"2" * 100])]
        assert reader.poll(1000, 250) == [StoredBatch(3, 1001, [b"3" * 100, b"4" * 100])]
        assert reader.poll(1000, 1) == [StoredBatch(5, 1001, [b"5" * 100])]
        assert reader.poll(0, 1000) == []
        assert len(reader.poll(1000, 1000)[0].records) == 4


async def test_who_has_published_events_is_told_with_them_however_they_are_cut() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        for publisher in ((7, 2, 2**31 - 2), None):
            partition.publisher = publisher
            partition.append([b"a", b"b", b"c"], lambda _: None)
        reader: Any = nodes[1].network.client(2).open_reader(GROUP, Earliest(), lambda: None)
        await until(lambda: reader.buffered_bytes, "the batches")
        assert reader.poll(1, 1000) == [StoredBatch(0, 1001, [b"a"], publisher=(7, 2, 2**31 - 2))]
        assert reader.poll(1, 1000) == [StoredBatch(1, 1001, [b"b"], publisher=(7, 2, 2**31 - 1))]
        await until(lambda: reader.buffered_bytes, "the rest")
        assert reader.poll(2, 1000) == [
            StoredBatch(2, 1001, [b"c"], publisher=(7, 2, 0)),
            StoredBatch(3, 1002, [b"a"]),
        ]


@pytest.mark.parametrize("mebibytes", [2, 8, 16])
async def test_records_larger_than_the_window_pass(mebibytes: int) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        for number in range(3):
            partition.append([bytes([number]) * (mebibytes << 20)], lambda _: None)
        consumer = Consumer(nodes[1], Earliest())
        await consumer.has(3, "large records")
        assert [(offset, record[0], len(record)) for offset, record in consumer.events] == [
            (number, number, mebibytes << 20) for number in range(3)
        ]


async def test_losing_the_node_is_an_error_that_wakes_once_and_says_to_retry() -> None:
    async with cluster_of(1, 2) as nodes:
        nodes[2].groups[GROUP] = filled(5)
        consumer = Consumer(nodes[1], Earliest())
        await consumer.has(5, "the events")
        wakes = consumer.wakes
        await nodes[2].network.stop()
        await until(lambda: consumer.reader.error, "the error")
        assert consumer.reader.error.kind == "unavailable"
        assert consumer.reader.error.retriable
        await asyncio.sleep(0.05)
        assert consumer.wakes == wakes + 1
        assert consumer.reader.position == 5


async def test_a_node_without_the_group_or_without_life_is_an_error() -> None:
    async with cluster_of(1, 2) as nodes:
        consumer = Consumer(nodes[1], Earliest())
        await until(lambda: consumer.reader.error, "the error")
        assert "no replica of group 17" in consumer.reader.error.detail
    lonely = TestNode(1, {1: f"127.0.0.1:{free_port()}", 2: f"127.0.0.1:{free_port()}"})
    await lonely.network.start()
    try:
        consumer = Consumer(lonely, Earliest())
        await until(lambda: consumer.reader.error, "the error")
        assert consumer.reader.error.kind == "unavailable"
        assert not consumer.reader.resolved
    finally:
        await lonely.network.stop()


async def test_a_closed_reader_is_closed_over_there_and_wakes_nobody() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(5)
        consumer = Consumer(nodes[1], Earliest())
        await consumer.has(5, "the events")
        wakes = consumer.wakes
        consumer.reader.close()
        consumer.reader.close()
        await until(lambda: not partition.readers, "the end of the reader over there")
        await asyncio.sleep(0.05)
        assert consumer.wakes == wakes
        assert consumer.reader.error is None


async def test_a_hundred_readers_each_get_everything() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(200)
        consumers = [Consumer(nodes[1], Earliest()) for _ in range(100)]
        partition.append([b"last"], lambda _: None)
        await until(lambda: all(len(consumer.events) == 201 for consumer in consumers), "all events for all")


@pytest.mark.parametrize("uncommitted", [False, True])
async def test_the_isolation_of_a_reader_crosses_the_network(uncommitted: bool) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(1)
        reader: Any = nodes[1].network.client(2).open_reader(GROUP, Earliest(), lambda: None, uncommitted=uncommitted)
        await until(lambda: len(partition.readers) == 1, "the reader there")
        assert [one.uncommitted for one in partition.readers] == [uncommitted]
        reader.close()


async def test_what_was_passed_over_on_the_other_node_moves_the_position_here() -> None:
    """The events behind the last one that is delivered were aborted: who drains must not wait for them."""
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(2)
        consumer = Consumer(nodes[1], Earliest())
        await consumer.has(2, "what is there")
        (there,) = partition.readers
        there.position = 7
        there.wake()
        await until(lambda: consumer.reader.position == 7, "the position behind what was aborted")
        assert len(consumer.events) == 2


async def test_a_reader_that_meets_a_defect_there_ends_for_good() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.append([bytearray(b"no bytes")], lambda _: None)  # type: ignore[list-item]
        consumer = Consumer(nodes[1], Earliest())
        await until(lambda: consumer.reader.error, "the error", SOON_S)
        error = consumer.reader.error
        assert (error.kind, error.retriable) == ("defect", False)
        assert error.detail.startswith("node 2: unknown: ")


async def test_an_answer_that_cannot_be_read_ends_the_reader_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_encoded", lambda reply: b"\xff")
    async with cluster_of(1, 2) as nodes:
        nodes[2].groups[GROUP] = filled(1)
        consumer = Consumer(nodes[1], Earliest())
        await until(lambda: consumer.reader.error, "the error", SOON_S)
        assert consumer.reader.error == ReadError("defect", "node 2 sent what cannot be read", False)


async def test_a_node_that_stops_ends_the_reader_for_now() -> None:
    async with cluster_of(1, 2) as nodes:
        nodes[2].groups[GROUP] = filled(1)
        consumer = Consumer(nodes[1], Earliest())
        await consumer.has(1, "the event")
        await nodes[2].network.stop()
        await until(lambda: consumer.reader.error, "the error", SOON_S)
        assert (consumer.reader.error.kind, consumer.reader.error.retriable) == ("unavailable", True)
