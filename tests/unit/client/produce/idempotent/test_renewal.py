"""A producer that the program has not named goes on by itself when a partition does not know it, or its numbers, any
more; what may be stored is never sent under other numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.amqp import Error, Rejected, decode_message
from holdfast.amqp.links.delivery_states import ACCEPTED
from holdfast.client import (
    EventBatch,
    NotAuthorizedError,
    ProducerClient,
    ProducerStateError,
    ProducerStolenError,
    RejectedError,
    UndeliveredError,
)
from holdfast.client.options import MAX_OWNER_LEVEL
from tests.unit.client.support import tiny_node
from tests.unit.client.support.idempotent import batch_of, drop_connection_once, idempotent, link_gone
from tests.unit.client.support.patience import impatient
from tests.unit.client.support.tiny_node import REJECTED, UNKNOWN, TinyNode
from tests.unit.client.support.tiny_producers import EPOCH, ID, SEQUENCE

RENEWS = "holdfast:renews"


def unnamed(node: TinyNode, **options: Any) -> ProducerClient:
    return idempotent(node, named=False, **options)


def forget(node: TinyNode) -> None:
    """The partitions lose all they know of producers."""
    node.log.producers.known.clear()


def swallow_and_forget_once(node: TinyNode) -> None:
    """The next transfer gets no answer but the end of its connection, and the partitions forget all producers."""

    def swallow(connection: Any, partition: str, count: int) -> bool:
        forget(node)
        asyncio.get_running_loop().call_soon(connection.abort)
        node.after_transfers = None
        return True

    node.after_transfers = swallow


async def in_doubt(node: TinyNode, producer: ProducerClient, batch: EventBatch, *, stored: bool) -> None:
    """Publish a batch, of which the producer hears nothing in time."""
    if stored:
        node.answer = lambda payload: UNKNOWN
    else:
        node.after_transfers = lambda connection, partition, count: True
    async with impatient(producer):
        with pytest.raises(UndeliveredError, match="were not confirmed"):
            await producer.send_batch(batch)
    node.answer, node.after_transfers = lambda payload: ACCEPTED, None


async def test_only_a_producer_without_names_says_that_it_renews_itself(node: TinyNode) -> None:
    async with unnamed(node) as one, idempotent(node) as other:
        await one.send_batch([b"1"], partition="0")
        await other.send_batch([b"2"], partition="0")
    assert [RENEWS in said for said in node.said] == [True, False]


async def test_forgotten_while_its_link_stands_it_goes_on_under_the_next_level(node: TinyNode) -> None:
    async with unnamed(node) as producer:
        await producer.send_batch([b"1", b"2"], partition="0")
        forget(node)
        sent = [await producer.send(b"%d" % number, partition="0") for number in range(3, 30)]
        await producer.flush()
        assert producer.stats.renewed == 1
        assert [(await one).sequence_number for one in sent] == list(range(1, 28))
        properties = await producer.get_partition_publishing_properties("0")
        assert (properties.owner_level, properties.last_published_sequence_number) == (1, 27)
    assert node.log.bodies("0") == [b"%d" % number for number in range(1, 30)]
    asked = node.identities[-1]
    assert (asked[EPOCH], asked[SEQUENCE]) == (1, None)


async def test_forgotten_between_two_links_it_goes_on(node: TinyNode) -> None:
    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        forget(node)
        next(iter(node.connections)).abort()
        await link_gone(producer)
        await producer.send_batch([b"2"], partition="0")
        assert producer.stats.renewed == 1
    assert node.log.bodies("0") == [b"1", b"2"]


async def test_what_is_in_doubt_when_it_is_forgotten_is_not_sent_again(node: TinyNode) -> None:
    """It may be stored under the old numbers: under new ones it would be stored twice."""
    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")

        swallow_and_forget_once(node)
        doubtful = await producer.send(b"doubtful", partition="0")
        with pytest.raises(UndeliveredError, match="nobody can tell any more"):
            await doubtful
        await producer.send_batch([b"2"], partition="0")
        assert (producer.stats.renewed, producer.stats.failed) == (1, 1)
    assert node.log.bodies("0") == [b"1", b"2"]


async def test_a_resend_that_is_known_needs_no_renewal(node: TinyNode) -> None:
    node.after_transfers = drop_connection_once()
    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        assert (producer.stats.renewed, producer.stats.resent) == (0, 1)
    assert node.log.bodies("0") == [b"1"]


async def test_another_batch_in_the_place_of_one_that_was_stored_is_stored_under_new_numbers(node: TinyNode) -> None:
    """Where producers have names this is an error (IP-15)."""
    async with unnamed(node) as producer:
        given_up = await batch_of(producer, b"1")
        await in_doubt(node, producer, given_up, stored=True)
        await producer.send_batch([b"2"], partition="0")
        assert producer.stats.renewed == 1
        with pytest.raises(UndeliveredError, match="nobody can tell any more"):
            await producer.send_batch(given_up)
        assert not given_up.is_locked
        await producer.send_batch(given_up)  # its owner knows now that this may store it twice
    assert node.log.bodies("0") == [b"1", b"2", b"1"]


@pytest.mark.parametrize("stored", [False, True])
async def test_the_same_batch_given_again_is_recognised(node: TinyNode, stored: bool) -> None:
    async with unnamed(node) as producer:
        given_up = await batch_of(producer, b"1")
        await in_doubt(node, producer, given_up, stored=stored)
        await producer.send_batch(given_up)
        assert given_up.starting_published_sequence_number == 1
        assert producer.stats.renewed == 0
    assert node.log.bodies("0") == [b"1"]


async def test_a_batch_given_again_that_waits_while_the_producer_is_renewed_is_in_doubt_still(node: TinyNode) -> None:
    async with unnamed(node) as producer:
        given_up = await batch_of(producer, b"1")
        await in_doubt(node, producer, given_up, stored=True)
        other = asyncio.create_task(producer.send_batch([b"2"], partition="0"))
        while not producer.outstanding:  # noqa: ASYNC110 - the other one is given before that is answered
            await asyncio.sleep(0)
        with pytest.raises(UndeliveredError, match="nobody can tell any more"):
            await producer.send_batch(given_up)
        await other
    assert node.log.bodies("0") == [b"1", b"2"]


async def test_what_is_refused_under_new_numbers_too_is_refused(node: TinyNode) -> None:
    """It is not the numbers then; what stands behind it goes on."""
    node.answer = lambda payload: REJECTED if b"bad" in payload else ACCEPTED
    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        bad = await producer.send(b"bad", partition="0")
        good = await producer.send(b"good", partition="0")
        with pytest.raises(RejectedError, match="not wanted"):
            await bad
        await good
        assert 1 <= producer.stats.renewed <= 2
    assert node.log.bodies("0") == [b"1", b"good"]


async def test_without_another_level_it_takes_another_id(node: TinyNode) -> None:
    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        identity = producer._partitions.sender("0")._identity
        assert identity is not None
        identity.owner_level = MAX_OWNER_LEVEL
        forget(node)
        await producer.send_batch([b"2"], partition="0")
        asked = node.identities[-1]
        assert (asked[ID], asked[EPOCH], asked[SEQUENCE]) == (None, None, None)
    assert node.log.bodies("0") == [b"1", b"2"]


async def test_a_producer_that_is_taken_over_does_not_renew_itself(node: TinyNode) -> None:
    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        mine = await producer.get_partition_publishing_properties("0")
        async with idempotent(node, producer_group_id=mine.producer_group_id, owner_level=1) as successor:
            await successor.send_batch([b"2"], partition="0")
        with pytest.raises(ProducerStolenError):
            await producer.send_batch([b"3"], partition="0")
    assert node.log.bodies("0") == [b"1", b"2"]


async def test_a_named_producer_does_not_renew_itself(node: TinyNode) -> None:
    async with idempotent(node, producer_group_id=7) as producer:
        await producer.send_batch([b"1"], partition="0")
        forget(node)
        for body in (b"2", b"3"):
            with pytest.raises(ProducerStateError):
                await producer.send_batch([body], partition="0")
        assert producer.stats.renewed == 0
    assert node.log.bodies("0") == [b"1"]


async def test_a_gap_that_a_partition_finds_is_closed_by_new_numbers(node: TinyNode) -> None:
    """A partition that went back in time, since all its replicas lost their power, knows fewer numbers."""
    async with unnamed(node) as producer:
        for number in range(5):
            await producer.send_batch([b"%d" % number], partition="0")
        ((_, known),) = node.log.producers.known.items()
        known.last = 2
        sent = [await producer.send(b"%d" % number, partition="0") for number in range(5, 8)]
        for one in sent:
            await one
        assert producer.stats.renewed == 1
    assert node.log.bodies("0") == [b"%d" % number for number in range(8)]


async def test_the_numbers_of_what_was_given_up_are_given_to_nothing_else(node: TinyNode) -> None:
    """A partition that has forgotten the bytes of what it stored knows it by its number, and answers `accepted`."""
    judge = node.log.producers.judge

    def by_number_alone(partition: str, payload: bytes) -> Rejected | bool:
        annotations = decode_message(payload).message_annotations
        producer = node.log.producers.known.get((partition, int(annotations[ID])))
        if producer is not None and producer.epoch == annotations[EPOCH] and annotations[SEQUENCE] in producer.stored:
            return False
        return judge(partition, payload)

    node.log.producers.judge = by_number_alone  # type: ignore[method-assign]
    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        node.answer = lambda payload: UNKNOWN
        async with impatient(producer):
            with pytest.raises(UndeliveredError):
                await producer.send_and_confirm(b"given up", partition="0")
        node.answer = lambda payload: ACCEPTED
        await producer.send_and_confirm(b"another one", partition="0")
    assert node.log.bodies("0") == [b"1", b"given up", b"another one"]


async def test_what_is_in_doubt_and_then_refused_is_in_doubt(node: TinyNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stored, its answer got lost, and when it came again there was no room to look."""
    outcome = tiny_node._ServerConnection.outcome
    no_room = Rejected(Error("amqp:resource-limit-exceeded", "no room"))

    def stored_and_lost(connection: Any, *what: Any) -> None:
        outcome(connection, *what)
        asyncio.get_running_loop().call_soon(connection.abort)
        monkeypatch.setattr(tiny_node._ServerConnection, "outcome", lambda *_: no_room)

    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        monkeypatch.setattr(tiny_node._ServerConnection, "outcome", stored_and_lost)
        batch = await batch_of(producer, b"stored")
        with pytest.raises(UndeliveredError, match="may be stored"):
            await producer.send_batch(batch)
        monkeypatch.setattr(tiny_node._ServerConnection, "outcome", outcome)
        await producer.send_batch(batch)
        assert producer.stats.renewed == 0
    assert node.log.bodies("0") == [b"1", b"stored"]


async def test_forgotten_again_before_anything_was_confirmed_it_goes_on(node: TinyNode) -> None:
    async with unnamed(node) as producer:
        await producer.send_batch([b"1"], partition="0")
        swallow_and_forget_once(node)
        with pytest.raises(UndeliveredError, match="nobody can tell any more"):
            await producer.send_and_confirm(b"doubtful", partition="0")
        await producer.get_partition_publishing_properties("0")  # it is let in under the new level
        forget(node)
        next(iter(node.connections)).abort()
        await link_gone(producer)
        await producer.send_batch([b"2"], partition="0")
        assert producer.stats.renewed == 2
    assert node.log.bodies("0") == [b"1", b"2"]


async def test_a_refused_attach_that_says_nothing_of_numbers_renews_nothing(node: TinyNode) -> None:
    """What is in doubt is recognised when its producer is let in again."""
    node.after_transfers = drop_connection_once()
    left = 1

    def refuse(address: str, partition: str | None) -> Error | None:
        nonlocal left
        if partition is None or not node.identities or not left:
            return None
        left -= 1
        return Error("amqp:unauthorized-access", "not yours")

    node.refuse = refuse
    async with unnamed(node) as producer:
        batch = await batch_of(producer, b"1")
        with pytest.raises(NotAuthorizedError):
            await producer.send_batch(batch)
        await producer.send_batch(batch)
        assert producer.stats.renewed == 0
    assert node.log.bodies("0") == [b"1"]


async def test_a_batch_with_a_key_goes_where_the_key_goes_in_each_log(node: TinyNode) -> None:
    async with unnamed(node) as producer:
        batch = await producer.create_batch(key="IBM")
        batch.add(b"1")
        await producer.send_batch(batch)
        assert batch.partition is None


async def test_batches_in_doubt_that_are_given_again_in_another_order_are_not_mixed_up(node: TinyNode) -> None:
    """The second one would get the number of the first one, which a partition may know by its number alone."""
    async with unnamed(node) as producer:
        first, second = await batch_of(producer, b"1"), await batch_of(producer, b"2")
        node.after_transfers = lambda connection, partition, count: True
        async with impatient(producer):
            both = await asyncio.gather(producer.send_batch(first), producer.send_batch(second), return_exceptions=True)
        assert [type(one) for one in both] == [UndeliveredError] * 2
        node.after_transfers = None
        with pytest.raises(UndeliveredError, match="nobody can tell any more"):
            await producer.send_batch(second)
        assert producer.stats.renewed == 1
        await producer.send_batch(second)
    assert node.log.bodies("0") == [b"2"]


async def test_batches_in_doubt_that_are_given_again_in_their_order_are_recognised(node: TinyNode) -> None:
    async with unnamed(node) as producer:
        first, second = await batch_of(producer, b"1"), await batch_of(producer, b"2")
        node.answer = lambda payload: UNKNOWN
        async with impatient(producer):
            await asyncio.gather(producer.send_batch(first), producer.send_batch(second), return_exceptions=True)
        node.answer = lambda payload: ACCEPTED
        await producer.send_batch(first)
        await producer.send_batch(second)
        assert producer.stats.renewed == 0
    assert node.log.bodies("0") == [b"1", b"2"]
