"""Producers seal what goes out together in record batches; nobody notices but by the speed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import protocol
from holdfast.client import ConfigurationError, ProducerClient, ProducerOptions, UndeliveredError, UnsupportedError
from holdfast.client.transport.links import BATCH_BYTES, EVENT_BYTES, OVERHEAD_BYTES, Sender
from holdfast.records.record_batch import DIGEST_BYTES, RecordBatch
from node.listener.incoming import batch_link
from tests.batches import batch_of, carried
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually


class Link:
    """A sending link with so much credit."""

    is_open = True

    def __init__(self, credit: int, limit: int = 0) -> None:
        self.credit, self.remote_max_message_size = credit, limit
        self.sent: deque[bytes] = deque()
        self._next = 100

    def send_pieces(self, pieces: Sequence[bytes | memoryview], *, txn_id: bytes | None = None) -> int:
        assert self.credit > 0
        self.credit -= 1
        self.sent.append(b"".join(pieces))
        self._next += 1
        return self._next - 1


def came_in(nodes: Nodes) -> int:
    """Events, as the nodes' metrics count them."""
    return sum(node._listeners[0].counters.events_in for node in nodes.cluster.nodes.values())


def sender_over(link: Any) -> Sender:
    connection: Any = SimpleNamespace(congested=False, flush_soon=lambda: None)
    return Sender(connection, link, None, "a link")


async def test_a_batch_is_one_transfer_with_a_number_of_its_own() -> None:
    link: Any = Link(2)
    one = sender_over(link)
    assert [one.send_batch(batch_of([b"a", b"b", b"c"])), one.send_batch(batch_of([b"d"]))] == [100, 101]
    assert list(link.sent) == [carried(batch_of([b"a", b"b", b"c"])), carried(batch_of([b"d"]))]
    assert one.credit == 0, "the link has no credit for another transfer"


async def test_no_more_is_unanswered_than_is_recognised_when_it_comes_again(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MOST_EVENTS_UNANSWERED", 5)
    held: list[Any] = []
    node.after_transfers = lambda connection, partition, count: held.extend([connection] * count) is None
    async with ProducerClient(node.address, "trades", ProducerOptions(window=100)) as producer:
        for number in range(8):
            await producer.send(b"%d" % number, partition="0")
            await eventually(lambda number=number: len(held) == min(number + 1, 5))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(held) == 5
        node.after_transfers = None
        held[0].abort()
        await producer.flush()
    assert node.log.bodies("0") == [b"%d" % number for number in range(8)]


async def test_a_batch_is_no_larger_than_the_node_takes_nor_than_is_good() -> None:
    unlimited, limited = (sender_over(link) for link in (Link(1), Link(1, limit=1000)))
    assert unlimited.batch_bytes == BATCH_BYTES - OVERHEAD_BYTES
    assert limited.batch_bytes == 1000 - OVERHEAD_BYTES
    assert limited.max_event_bytes == 1000 - OVERHEAD_BYTES - EVENT_BYTES
    assert unlimited.max_event_bytes == 0


@pytest.mark.parametrize("digests", [b"", b"...."])
async def test_the_largest_message_that_is_said_to_fit_does(digests: bytes) -> None:
    link: Any = Link(1, limit=1000)
    one = sender_over(link)
    one.send_batch(batch_of([bytes(one.max_event_bytes)], digests=digests))
    assert len(link.sent[0]) <= 1000


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_sent_is_stored_in_order_with_its_places(
    nodes: Nodes, kind: str, compression: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await nodes.log(1)
    sizes: list[int] = []

    read = batch_link._read

    def noted(payload: bytes) -> RecordBatch:
        sizes.append(len(payload))
        return read(payload)

    monkeypatch.setattr(batch_link, "_read", noted)
    sent = [b"price of IBM: %d" % number for number in range(3000)]
    options = ProducerOptions(compression=compression, idempotent=kind == "idempotent")
    before = came_in(nodes)
    async with ProducerClient(nodes.servers, log, options) as producer:
        if kind == "transactional":
            async with producer.transaction() as tx:
                first = await tx.send_batch(sent[:2000], partition="0")
                assert (first.count, first.offset) == (2000, None)
                for body in sent[2000:]:
                    await tx.send(body, partition="0")
        else:
            deliveries = [await producer.send(body, partition="0") for body in sent]
            told = [await one for one in deliveries]
            assert [int(one.offset or "", 16) for one in told] == list(range(3000))
    assert await nodes.bodies(log) == sent
    assert came_in(nodes) - before == 3000
    assert len(sizes) < 300
    size = sum(sizes) - (DIGEST_BYTES * len(sent) if kind == "idempotent" else 0)
    assert (size < sum(map(len, sent)) / 2) == (compression != "none")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_list_sent_under_a_transaction_goes_where_it_should(nodes: Nodes) -> None:
    log = await nodes.log(4)
    async with ProducerClient(nodes.servers, log) as producer, producer.transaction() as tx:
        batch = await producer.create_batch(partition="1")
        batch.add(b"one")
        assert (await tx.send_batch(batch)).partition == "1"
        batch.add(b"two")
        with pytest.raises(ConfigurationError, match="knows where it goes"):
            await tx.send_batch(batch, partition="2")
        keyed = await tx.send_batch([b"k", b"l"], key="IBM")
        assert (await tx.send_batch([], partition="3")).count == 0
        with pytest.raises(ConfigurationError, match="a batch or a list"):
            await tx.send_batch(b"no list")  # type: ignore[arg-type]
    assert await nodes.bodies(log, "1") == [b"one"] or keyed.partition == "1"
    assert (await nodes.bodies(log, keyed.partition or ""))[-2:] == [b"k", b"l"]


def test_an_unknown_codec_is_the_programs_mistake() -> None:
    with pytest.raises(ConfigurationError, match="compression is one of none, gzip, zstd, not 'lz4'"):
        ProducerOptions(compression="lz4").check()  # type: ignore[arg-type]


@pytest.mark.parametrize("many", [False, True], ids=["single", "chunks"])
@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
@pytest.mark.asyncio(loop_scope="module")
async def test_events_that_are_larger_than_a_batch_are_stored_and_the_last_one_leaves_nothing_behind(
    nodes: Nodes, kind: str, many: bool
) -> None:
    log = await nodes.log(1)
    sent = [bytes((number,)) * size for number, size in enumerate((BATCH_BYTES, 10, 2 * BATCH_BYTES, BATCH_BYTES + 1))]
    async with ProducerClient(nodes.servers, log, ProducerOptions(idempotent=kind == "idempotent")) as producer:
        for _ in range(2):
            async with AsyncExitStack() as stack:
                to: Any = producer
                if kind == "transactional":
                    to = await stack.enter_async_context(producer.transaction())
                if many:
                    deliveries = [await to.send_many(sent, partition="0")]
                else:
                    deliveries = [await to.send(body, partition="0") for body in sent]
                assert sum([(await one).count for one in deliveries]) == len(sent)
    assert await nodes.bodies(log) == sent * 2


@pytest.mark.parametrize("kind", ["plain", "idempotent"])
async def test_a_node_that_does_not_take_record_batches_is_told_by_name(node: TinyNode, kind: str) -> None:
    node.takes_batches = False
    async with ProducerClient(node.address, "trades", ProducerOptions(idempotent=kind == "idempotent")) as producer:
        delivery = await producer.send(b"x", partition="0")
        with pytest.raises(UndeliveredError, match="does not take record batches of version 1") as caught:
            await delivery
        assert isinstance(caught.value.__cause__, UnsupportedError)
    assert node.log.bodies("0") == []
