"""`send_many`: what `send` of each event does, in the same order, with one outcome for all; whatever happens."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from holdfast.amqp import decode_message
from holdfast.amqp.engine.engine import MAX_MESSAGE_BYTES
from holdfast.amqp.links.delivery_states import ACCEPTED, RELEASED
from holdfast.client import (
    ClosedError,
    ConfigurationError,
    Event,
    EventTooLargeError,
    InvalidOperationError,
    NotFoundError,
    PartitionPublishingOptions,
    ProducerClient,
    ProducerOptions,
    RejectedError,
    UndeliveredError,
)
from holdfast.client import sync as client_sync
from holdfast.client.produce import batch_queue
from holdfast.client.produce.send_api import PIECE_BYTES, PIECE_EVENTS
from tests.unit.client.support.idempotent import idempotent
from tests.unit.client.support.patience import impatient
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.tiny_node import REJECTED, UNKNOWN, TinyNode
from tests.unit.listener.support.peer import eventually

on_real_nodes = pytest.mark.asyncio(loop_scope="module")
KINDS = pytest.mark.parametrize("idempotently", [False, True], ids=["plain", "idempotent"])


def producer_of(node: TinyNode, idempotently: bool, **options: Any) -> ProducerClient:
    if idempotently:
        return idempotent(node, **options)
    return ProducerClient(node.address, "trades", ProducerOptions(**options))


def numbers(first: int, end: int) -> list[bytes]:
    return [b"event %d" % number for number in range(first, end)]


# ---------------------------------------------------------------- on real nodes, in packed batches


@KINDS
@on_real_nodes
async def test_chunks_and_single_events_are_stored_in_the_order_of_the_calls(nodes: Nodes, idempotently: bool) -> None:
    log = await nodes.log(1)
    sent: list[bytes] = []
    told: list[tuple[int, Any]] = []
    chance = random.Random(7)
    async with ProducerClient(nodes.servers, log, idempotent=idempotently) as producer:
        while len(sent) < 20_000:
            count = chance.choice([1, 2, 30, 500, 1500, 5000])
            bodies = [b"%d " % number + bytes(chance.choice([0, 5, 300])) for number in range(count)]
            if count < 30:
                told += [(len(sent) + n, await producer.send(body, partition="0")) for n, body in enumerate(bodies)]
            else:
                told.append((len(sent), await producer.send_many(bodies, partition="0")))
            sent += bodies
        for place, delivery in told:
            result = await delivery
            assert int(result.offset or "", 16) == place
            assert result.sequence_number == (place + 1 if idempotently else None)
            assert result.partition == "0"
        assert sum([(await delivery).count for _, delivery in told]) == len(sent)
        assert (producer.stats.accepted, producer.stats.resent, producer.outstanding) == (len(sent), 0, 0)
    assert await nodes.bodies(log) == sent


@on_real_nodes
async def test_a_chunk_goes_where_its_key_or_its_turn_says(nodes: Nodes) -> None:
    log = await nodes.log(4)
    async with ProducerClient(nodes.servers, log) as producer:
        keyed = await (await producer.send_many([b"1", "2"], key="IBM"))
        assert keyed.partition == producer.partition_of("IBM")
        turns = [(await (await producer.send_many([b"x"] * 10))).partition for _ in range(8)]
        assert turns == ["0", "1", "2", "3"] * 2
        assert (await (await producer.send_many([], partition="2"))).count == 0
    stored = {partition: await nodes.bodies(log, partition) for partition in "0123"}
    assert stored[str(keyed.partition)][:2] == [b"1", b"2"]
    assert sum(bodies.count(b"x") for bodies in stored.values()) == 80


@on_real_nodes
async def test_events_with_keys_of_their_own_go_each_where_its_key_says(nodes: Nodes) -> None:
    log = await nodes.log(4)
    keys = [f"key {n % 9}" for n in range(300)]
    events = [Event(f"{n}", key=key) for n, key in enumerate(keys)]
    async with ProducerClient(nodes.servers, log) as producer:
        result = await (await producer.send_many(events))
        where = {key: producer.partition_of(key) for key in keys}
    assert (result.partition, result.count) == (where[keys[0]], 300)
    for partition in "0123":
        expected = [b"%d" % n for n, key in enumerate(keys) if where[key] == partition]
        assert await nodes.bodies(log, partition) == expected


@KINDS
@on_real_nodes
async def test_one_call_of_more_than_fits_is_taken_in_by_pieces(nodes: Nodes, idempotently: bool) -> None:
    log = await nodes.log(1)
    sent = numbers(0, 3 * PIECE_EVENTS + 5) + [bytes(PIECE_BYTES // 3)] * 7
    options = ProducerOptions(idempotent=idempotently, max_buffered_events=2 * PIECE_EVENTS)
    most = 0
    async with ProducerClient(nodes.servers, log, options) as producer:
        calling = asyncio.ensure_future(producer.send_many(sent, partition="0"))
        while not calling.done():
            most = max(most, producer.outstanding)
            await asyncio.sleep(0)
        assert (await calling.result()).count == len(sent)
    assert most <= 3 * PIECE_EVENTS, "a piece is taken in while there is room, and no more"
    assert await nodes.bodies(log) == sent


@on_real_nodes
async def test_events_learn_their_numbers_and_are_published_once(nodes: Nodes) -> None:
    log = await nodes.log(1)
    events = [Event(f"{n}", properties={"n": n} if n == 1 else None) for n in range(3)]
    async with nodes.producer(log, {"0": PartitionPublishingOptions()}) as producer:
        delivery = await producer.send_many([*events, b"bare"], partition="0")
        with pytest.raises(InvalidOperationError, match="is being published already"):
            await producer.send_many(events[:1], partition="0")
        first = (await delivery).sequence_number
        assert first is not None
        assert [event.published_sequence_number for event in events] == [first, first + 1, first + 2]
        with pytest.raises(InvalidOperationError, match="was published before"):
            await producer.send_many([b"new", events[1]], partition="0")
        with pytest.raises(InvalidOperationError, match="twice"):
            await producer.send_many([Event("x")] * 2, partition="0")
    assert await nodes.bodies(log) == [b"0", b"1", b"2", b"bare"]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@on_real_nodes
async def test_chunks_may_be_compressed(nodes: Nodes, compression: Any) -> None:
    log = await nodes.log(1)
    sent = [b"price of IBM: %d" % number for number in range(3000)]
    options = ProducerOptions(compression=compression)
    async with ProducerClient(nodes.servers, log, options) as producer:
        await (await producer.send_many(sent, partition="0"))
    assert await nodes.bodies(log) == sent


@on_real_nodes
async def test_the_synchronous_twin(nodes: Nodes) -> None:
    log = await nodes.log(1)

    def work() -> None:
        with client_sync.ProducerClient(nodes.servers, log, idempotent=True) as producer:
            one = producer.send_many(numbers(0, 1000), partition="0")
            told = one.result()
            assert (told.count, told.sequence_number, told.partition) == (1000, 1, "0")
            assert (one.is_done, one.count, one.partition) == (True, 1000, "0")

    await asyncio.to_thread(work)
    assert await nodes.bodies(log) == numbers(0, 1000)


# ---------------------------------------------------------------- what goes wrong; single transfers, as of any peer


@KINDS
async def test_a_chunk_is_single_messages_to_a_peer_that_knows_no_batches(node: TinyNode, idempotently: bool) -> None:
    async with producer_of(node, idempotently) as producer:
        await producer.send(b"first", partition="0")
        delivery = await producer.send_many(numbers(0, 2000), partition="0")
        await producer.send(b"last", partition="0")
        assert (await delivery).count == 2000
        await producer.flush()
    assert node.log.bodies("0") == [b"first", *numbers(0, 2000), b"last"]


@KINDS
@pytest.mark.parametrize("answer", [RELEASED, UNKNOWN], ids=["certainly not stored", "perhaps stored"])
async def test_what_is_not_confirmed_is_sent_again_from_there_on(
    node: TinyNode, idempotently: bool, answer: Any
) -> None:
    from_here: bytes | None = None
    chance = random.Random(3)

    def mostly_fine(payload: bytes) -> Any:
        nonlocal from_here
        body = decode_message(payload).body
        if from_here is None and chance.random() < 0.005:
            from_here = body  # type: ignore[assignment]
        elif from_here == body:
            from_here = None
        return ACCEPTED if from_here is None else answer

    node.answer = mostly_fine
    async with producer_of(node, idempotently) as producer:
        told = [await producer.send_many(numbers(n, n + 100), partition="0") for n in range(0, 1000, 100)]
        assert [(await one).count for one in told] == [100] * 10
        stats = producer.stats
        assert (stats.accepted, producer.outstanding) == (1000, 0)
        assert stats.released if answer is RELEASED else stats.resent
    assert list(dict.fromkeys(node.log.bodies("0"))) == numbers(0, 1000)
    if idempotently or answer is RELEASED:
        assert node.log.bodies("0") == numbers(0, 1000)


async def test_an_event_that_is_refused_fails_its_chunk_and_no_other(node: TinyNode) -> None:
    node.answer = lambda payload: REJECTED if b"bad" in payload else ACCEPTED
    async with ProducerClient(node.address, "trades") as producer:
        asked = await producer.send_many([b"1", b"bad", b"2"], partition="0")
        good = await producer.send_many([b"3", b"4"], partition="0")
        with pytest.raises(RejectedError, match="not wanted") as caught:
            await asked
        assert caught.value.__notes__ == ["1 of the 3 events failed; this is the first failure"]
        assert (await good).count == 2
        await producer.flush()  # it was asked for
        await producer.send_many([b"5", b"bad", b"bad"], partition="0")
        with pytest.raises(RejectedError) as unheard:
            await producer.flush()
        assert unheard.value.__notes__[-1] == "2 events failed; this is the first failure"
        await producer.flush()
        assert (producer.stats.accepted, producer.stats.rejected) == (5, 3)
    assert node.log.bodies("0") == [b"1", b"2", b"3", b"4", b"5"]


@KINDS
async def test_an_event_that_is_too_large_is_left_out_and_said(node: TinyNode, idempotently: bool) -> None:
    async with producer_of(node, idempotently, after_failure="continue") as producer:
        delivery = await producer.send_many([b"before", bytes(MAX_MESSAGE_BYTES), b"after"], partition="0")
        with pytest.raises(EventTooLargeError):
            await delivery
        assert (producer.stats.accepted, producer.stats.rejected, producer.stats.attached) == (2, 1, 1)
    assert node.log.bodies("0") == [b"before", b"after"]


@KINDS
async def test_chunks_nobody_answers_for_are_given_up_in_time(node: TinyNode, idempotently: bool) -> None:
    producer = producer_of(node, idempotently)
    await producer.start()
    if not idempotently:
        await producer.send_and_confirm(b"event", partition="1")
    async with asyncio.timeout(40), impatient(producer, "0"):
        node.after_transfers = lambda connection, partition, count: True
        await producer.send_many(numbers(0, 200), partition="0")
        asked = await producer.send_many(numbers(200, 250), partition="0")
        with pytest.raises(UndeliveredError, match="were not confirmed"):
            await asked
        with pytest.raises(UndeliveredError):
            await producer.close()
    assert producer.stats.failed == 250
    assert producer.outstanding == 0


async def test_a_call_that_is_cancelled_while_it_waits_has_sent_the_first_events(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.produce.send_api.PIECE_EVENTS", 10)
    node.credit = 0
    async with ProducerClient(node.address, "trades", ProducerOptions(max_buffered_events=10)) as producer:
        calling = asyncio.ensure_future(producer.send_many(numbers(0, 25), partition="0"))
        await eventually(lambda: producer.outstanding == 10)
        await asyncio.sleep(0)
        assert not calling.done()
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        await eventually(lambda: any(link.role == "receiver" for one in node.connections for link in one.links))
        for connection in node.connections:
            for link in connection.links:
                if link.role == "receiver":
                    link.grant(100)
            connection.flush()
        node.credit = 100
        await asyncio.wait_for(producer.flush(), 40)
    assert node.log.bodies("0") == numbers(0, 10)


async def test_what_was_sent_is_known_to_be_confirmed_before_more_is_sent_into_the_room_that_this_makes(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_queue, "MOST_EVENTS", 100)
    did: list[str] = []
    async with ProducerClient(node.address, "trades", ProducerOptions(max_buffered_events=10)) as producer:
        first = await producer.send_many(numbers(0, 10), partition="0")

        async def send_more() -> None:
            await producer.send_many(numbers(10, 20), partition="0")
            did.append("sent")

        async def confirm() -> None:
            await first
            did.append("confirmed")

        await asyncio.gather(send_more(), confirm())
    assert did == ["confirmed", "sent"]


async def test_a_list_that_changes_while_the_call_waits_is_sent_as_it_was(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades", ProducerOptions(max_buffered_events=10)) as producer:
        await producer.send_many(numbers(0, 10), partition="0")
        events = numbers(10, 20)
        calling = asyncio.ensure_future(producer.send_many(events, partition="0"))
        await asyncio.sleep(0)
        assert not calling.done()
        events += [b"too late"]
        assert (await (await calling)).count == 10
    assert node.log.bodies("0") == numbers(0, 20)


async def test_what_waits_when_the_producer_closes_is_told(node: TinyNode) -> None:
    node.credit = 0
    producer = ProducerClient(node.address, "trades", ProducerOptions(max_buffered_events=PIECE_EVENTS))
    await producer.start()
    taken = await producer.send_many(numbers(0, PIECE_EVENTS), partition="0")
    calling = asyncio.ensure_future(producer.send_many(numbers(0, 5), partition="0"))
    await asyncio.sleep(0)
    await producer.abandon()
    with pytest.raises(ClosedError):
        await calling
    with pytest.raises((ClosedError, UndeliveredError)):
        await taken
    with pytest.raises(ClosedError):
        await producer.send_many([b"late"], partition="0")


async def test_misuse(node: TinyNode) -> None:
    async with ProducerClient(node.address, "trades") as producer:
        for wrong in ("text", b"bytes", iter([b"a"]), {b"a"}):
            with pytest.raises(ConfigurationError, match="takes a list of events"):
                await producer.send_many(wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="bytes or str"):
            await producer.send_many([b"a", 7], partition="0")  # type: ignore[list-item]
        with pytest.raises(NotFoundError):
            await producer.send_many([b"a"], partition="9")
        assert producer.outstanding == 0
    assert not any(node.log.partitions.values())


async def test_a_batch_stands_where_it_was_given_between_chunks(node: TinyNode) -> None:
    async with idempotent(node) as producer:
        first = await producer.send_many(numbers(0, 300), partition="0")
        batch = asyncio.ensure_future(producer.send_batch([b"batch"], partition="0"))
        await asyncio.sleep(0)
        second = await producer.send_many(numbers(300, 600), partition="0")
        await batch
        await first
        await second
    assert node.log.bodies("0") == [*numbers(0, 300), b"batch", *numbers(300, 600)]
