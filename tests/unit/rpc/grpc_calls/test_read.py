"""A gateway's readers: every record once and in order, and no more in memory than the window."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from cluster.rpc import options
from cluster.rpc.grpc_calls import call_handlers
from cluster.rpc.grpc_calls.call_handlers import ReadSession
from holdfast.records.codec import Codec
from holdfast.records.record_batch import RecordBatch
from node.partition.api import After, AfterTime, Earliest, Latest, ReadError, Start
from tests.batches import batch_of
from tests.ports import free_port
from tests.unit.rpc.support import SOON_S, MemoryPartition, TestNode, cluster_of, until

GROUP = 17


class Consumer:
    """Polls whenever it is woken, as a link with credit does."""

    def __init__(self, node: TestNode, start: Start, *, max_events: int = 1000, max_bytes: int = 1 << 20) -> None:
        self.batches: list[RecordBatch] = []
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
        return [(b.offset + i, record) for b in self.batches for i, record in enumerate(b.messages())]


def filled(count: int, size: int = 10) -> MemoryPartition:
    partition = MemoryPartition()
    for number in range(count):
        partition.append(batch_of([b"%08d" % number + bytes(size)]), lambda _: None)
    return partition


async def test_everything_is_read_from_the_beginning_and_then_what_comes() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(3000)
        consumer = Consumer(nodes[1], Earliest())
        await consumer.has(3000, "what is there")
        for number in range(3000, 4000):
            partition.append(batch_of([b"%08d" % number + bytes(10)]), lambda _: None)
            if number % 50 == 0:
                await asyncio.sleep(0)
        await consumer.has(4000, "what comes")
        assert consumer.events == [(number, b"%08d" % number + bytes(10)) for number in range(4000)]
        assert consumer.reader.position == 4000
        assert consumer.batches[5].head.time_ms == partition.batches[5].head.time_ms


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
        partition.append(batch_of([b"last"]), lambda _: None)
        await until(lambda: consumer.events and consumer.events[-1] == (10, b"last"), "the last")
        assert [offset for offset, _ in consumer.events] == list(range(first, 11))


class BrokenCall:
    """Context of a call whose reader leaves while a reply is written: gRPC's core fails that write."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    async def read(self) -> Any:
        return grpc.aio.EOF

    async def write(self, message: bytes) -> None:
        raise grpc.aio.InternalError(f"failed to send {len(message)} bytes")

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        assert "could not be written" in details


async def test_a_reader_that_leaves_while_a_reply_is_written_ends_the_call_without_a_traceback() -> None:
    """gRPC logs one for each exception that a handler lets through."""
    partition, context = filled(3), BrokenCall()
    await ReadSession(context, 1 << 20).run(lambda wake: partition.open_reader(Earliest(), wake, None))
    assert context.code is grpc.StatusCode.UNAVAILABLE


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


async def test_who_has_polled_before_is_woken_by_the_position() -> None:
    """It may lie behind all that is wanted, and then nothing else comes."""
    async with cluster_of(1, 2) as nodes:
        nodes[2].groups[GROUP] = filled(7)
        consumer = Consumer(nodes[1], Latest())
        assert not consumer.reader.resolved
        await until(lambda: consumer.wakes, "a sign")
        assert (consumer.reader.position, consumer.wakes) == (7, 1)


async def test_a_consumer_that_takes_nothing_holds_no_more_than_the_window() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(40_000, size=1000)
        reader: Any = nodes[1].network.client(2).open_reader(GROUP, Earliest(), lambda: None)
        await until(lambda: reader.buffered_bytes > options.READ_WINDOW_BYTES * 0.9, "a full window")
        await asyncio.sleep(0.1)
        overhead = options.READ_REPLY_EVENTS * options.EVENT_OVERHEAD_BYTES  # of one reply: it is cut by its bytes
        assert reader.buffered_bytes <= options.READ_WINDOW_BYTES + overhead
        assert partition.readers[0].polled_bytes <= options.READ_WINDOW_BYTES + options.READ_REPLY_BYTES
        seen = 0
        while seen < 40_000:
            for batch in reader.poll(700, 1 << 30):
                assert batch.offset == seen
                seen += len(batch)
            assert reader.buffered_bytes <= options.READ_WINDOW_BYTES + overhead
            await asyncio.sleep(0)


async def test_a_poll_takes_no_more_events_and_bytes_than_asked_for_but_always_one() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        partition.append(batch_of([b"%d" % number * 100 for number in range(10)]), lambda _: None)
        reader: Any = nodes[1].network.client(2).open_reader(GROUP, Earliest(), lambda: None)
        await until(lambda: reader.buffered_bytes, "the batch")
        assert told(reader.poll(3, 1 << 20)) == [(0, 1001, [b"0" * 100, b"1" * 100, b"2" * 100], None)]
        assert told(reader.poll(1000, 250)) == [(3, 1001, [b"3" * 100, b"4" * 100], None)]
        assert told(reader.poll(1000, 1)) == [(5, 1001, [b"5" * 100], None)]
        assert reader.poll(0, 1000) == []
        assert len(reader.poll(1000, 1000)[0]) == 4


async def test_whole_batches_pass_as_they_are_stored() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        for number in range(4):
            partition.append(batch_of([b"%d" % number * 1000] * 10), lambda _: None)
        partition.batches[1] = batch_of([b"1" * 1000] * 10, compression=Codec.ZSTD).placed(10, 1002, 0, 10)
        reader: Any = nodes[1].network.client(2).open_reader(GROUP, After(3), lambda: None)
        await until(lambda: reader.buffered_bytes > 20_000, "the batches")
        (first,) = reader.poll(1, 1, True)
        assert (first.offset, len(first), first.head.base_offset, first.content) == (
            4,
            6,
            0,
            partition.batches[0].content,
        )
        found = reader.poll(20, 1 << 20, True)
        assert list(map(bytes, found)) == list(map(bytes, partition.batches[1:3])), "as many as are asked for"
        assert [batch.offset for batch in reader.poll(1000, 1 << 20)] == [30], "cut or whole, from one to the next"
        assert reader.buffered_bytes == 0


@pytest.mark.parametrize("place", [9, -1])
async def test_a_batch_that_was_damaged_on_its_way_ends_the_reader_in_front_of_it(place: int) -> None:
    """In its head, which is read here at once, or in its content, when somebody looks into it."""
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = filled(3)
        spoiled = bytearray(bytes(partition.batches[1]))
        spoiled[place] ^= 1

        class Spoiled:
            offset, next_offset, size, head = 1, 2, len(spoiled), partition.batches[1].head

            def __len__(self) -> int:
                return 1

            def __bytes__(self) -> bytes:
                return bytes(spoiled)

            def part(self, start: int, stop: int) -> Spoiled:
                return self

            def within(self, *_: int, **__: bool) -> tuple[Spoiled, int]:
                return self, self.size

        partition.batches[1] = Spoiled()  # type: ignore[call-overload]
        consumer = Consumer(nodes[1], Earliest())
        await until(lambda: consumer.reader.error and consumer.events, "the error, and what was in front of it")
        error = consumer.reader.error
        assert (error.kind, error.retriable, consumer.reader.position) == ("unavailable", True, 1)
        assert "damaged on its way" in error.detail
        assert consumer.events == [(0, b"%08d" % 0 + bytes(10))]


def told(batches: list[RecordBatch]) -> list[tuple[int, int, list[bytes], tuple[int, int, int] | None]]:
    return [(batch.offset, batch.head.time_ms, batch.messages(), batch.publisher) for batch in batches]


async def test_who_has_published_events_is_told_with_them_however_they_are_cut() -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        for publisher in ((7, 2, 2**31 - 2), None):
            partition.publisher = publisher
            partition.append(batch_of([b"a", b"b", b"c"]), lambda _: None)
        reader: Any = nodes[1].network.client(2).open_reader(GROUP, Earliest(), lambda: None)
        await until(lambda: reader.buffered_bytes, "the batches")
        assert told(reader.poll(1, 1000)) == [(0, 1001, [b"a"], (7, 2, 2**31 - 2))]
        assert told(reader.poll(1, 1000)) == [(1, 1001, [b"b"], (7, 2, 2**31 - 1))]
        await until(lambda: reader.buffered_bytes, "the rest")
        assert told(reader.poll(2, 1000)) == [(2, 1001, [b"c"], (7, 2, 0)), (3, 1002, [b"a"], None)]


@pytest.mark.parametrize("mebibytes", [2, 8, 16])
async def test_records_larger_than_the_window_pass(mebibytes: int) -> None:
    async with cluster_of(1, 2) as nodes:
        partition = nodes[2].groups[GROUP] = MemoryPartition()
        for number in range(3):
            partition.append(batch_of([bytes([number]) * (mebibytes << 20)]), lambda _: None)
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


async def test_a_connection_that_is_given_up_here_is_an_error_like_one_that_is_lost() -> None:
    """The node was given another address, or certificates were renewed."""
    async with cluster_of(1, 2) as nodes:
        nodes[2].groups[GROUP] = filled(5)
        consumer = Consumer(nodes[1], Earliest())
        await consumer.has(5, "the events")
        nodes[1].network.set_address(2, f"localhost:{nodes[2].network.port}")
        await nodes[1].network.client(2).info(GROUP)
        await until(lambda: consumer.reader.error, "the error")
        assert (consumer.reader.error.kind, consumer.reader.error.retriable) == ("unavailable", True)
        again = Consumer(nodes[1], After(4))
        nodes[2].groups[GROUP].append(batch_of([b"next"]), lambda _: None)
        await again.has(1, "what comes")


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
        partition.append(batch_of([b"last"]), lambda _: None)
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
        partition.batches.append(None)  # type: ignore[arg-type]
        consumer = Consumer(nodes[1], Earliest())
        await until(lambda: consumer.reader.error, "the error", SOON_S)
        error = consumer.reader.error
        assert (error.kind, error.retriable) == ("defect", False)
        assert error.detail.startswith("node 2: unknown: ")


async def test_an_answer_that_cannot_be_read_ends_the_reader_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_handlers, "_encoded", lambda reply: b"\xff")
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
