"""Producers pack what goes out together, where the node agrees; nobody notices but by the speed."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from holdfast.amqp import OtherState, Rejected
from holdfast.amqp.links.delivery_states import ACCEPTED
from holdfast.batches.codec import Codec
from holdfast.batches.packed_batch import HEAD_BYTES, unpack
from holdfast.client import ConfigurationError, ProducerClient, ProducerOptions
from holdfast.client.transport.packed_transfers import BATCH_BYTES, PackedTransfers
from holdfast.protocol import STORED_CODE
from node.listener.incoming import incoming_link
from node.listener.incoming.batch_envelopes import Envelope, open_packed
from tests.unit.client.support.real_cluster import Nodes


class Link:
    """A sending link with so much credit."""

    is_open = True

    def __init__(self, credit: int, limit: int = 0) -> None:
        self.credit, self.remote_max_message_size = credit, limit
        self.sent: deque[list[bytes]] = deque()
        self._next = 100

    def send_many(self, payloads: list[bytes], txn_id: bytes | None = None) -> range:
        assert len(payloads) <= self.credit
        self.credit -= len(payloads)
        self.sent += [unpack(one, 1 << 30) for one in payloads]
        self._next += len(payloads)
        return range(self._next - len(payloads), self._next)


def came_in(nodes: Nodes) -> int:
    """Events, as the nodes' metrics count them."""
    return sum(node._listeners[0].counters.events_in for node in nodes.cluster.nodes.values())


def packing(link: Any, most_unsettled: int = 1000) -> PackedTransfers:
    return PackedTransfers(link, Codec.NONE, most_unsettled)


def test_each_message_hears_the_outcome_of_its_batch() -> None:
    link = Link(2)
    one = packing(link)
    assert one.put([b"a", b"b", b"c"], None) == range(3)
    assert one.put([b"d"], None) == range(3, 4)
    assert list(link.sent) == [[b"a", b"b", b"c"], [b"d"]]
    refused = Rejected(None)
    assert one.outcomes([(101, refused), (100, ACCEPTED)]) == [
        (3, refused),
        (0, ACCEPTED),
        (1, ACCEPTED),
        (2, ACCEPTED),
    ]
    assert one.outcomes([(100, ACCEPTED)]) == []


def test_the_place_of_a_batch_is_that_of_its_first_message_and_counts_them_all() -> None:
    one = packing(Link(5))
    one.put([b"a", b"b", b"c"], None)
    told = one.outcomes([(100, OtherState(STORED_CODE, (40, 1, "7")))])
    assert told == [(0, OtherState(STORED_CODE, (40, 3, "7"))), (1, ACCEPTED), (2, ACCEPTED)]


def test_what_the_link_has_no_credit_for_waits_and_so_does_everybody_behind() -> None:
    link = Link(1, limit=HEAD_BYTES + 2 * (4 + 10))
    one = packing(link)
    ten = [bytes([65 + place]) * 10 for place in range(5)]
    one.put(ten, None)
    assert list(link.sent) == [ten[:2]]
    assert one.credit == 0
    link.credit = 5
    assert one.credit == 0, "what waits goes first"
    one.send()
    assert list(link.sent) == [ten[:2], ten[2:4], ten[4:]]
    assert one.credit == 995


def test_no_more_is_unsettled_than_was_agreed() -> None:
    link = Link(50)
    one = packing(link, 10)
    assert one.credit == 10
    one.put([b"x"] * 7, None)
    assert one.credit == 3
    one.outcomes([(100, ACCEPTED)])
    assert one.credit == 10


@pytest.mark.parametrize("size", [1, 1000, BATCH_BYTES, 2 * BATCH_BYTES])
def test_a_batch_is_no_larger_than_the_node_takes_nor_than_is_good(size: int) -> None:
    link = Link(5000, limit=4 * BATCH_BYTES)
    one = packing(link, 10_000)
    one.put([bytes(size)] * 500, None)
    assert sum(map(len, link.sent)) == 500
    assert max(map(len, link.sent)) <= max(1, BATCH_BYTES // size)
    assert one.max_message_size < link.remote_max_message_size


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_sent_is_stored_in_order_with_its_places(
    nodes: Nodes, kind: str, compression: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await nodes.log(1)
    sizes: list[int] = []

    def opened(payload: bytes, most_bytes: int) -> Envelope:
        sizes.append(len(payload))
        return open_packed(payload, most_bytes)

    monkeypatch.setattr(incoming_link, "open_packed", opened)
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
    assert (sum(sizes) < sum(map(len, sent)) / 2) == (compression != "none")


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
