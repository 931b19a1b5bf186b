"""`send_many` under a transaction: all of a call counts, or nothing of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.client import (
    ConfigurationError,
    Event,
    EventTooLargeError,
    InvalidOperationError,
    NotFoundError,
    ProducerClient,
    ProducerOptions,
    Transaction,
    TransactionRolledBackError,
    sync,
)
from holdfast.client.produce.send_api import PIECE_EVENTS
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies
from tests.unit.listener.support.peer import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOO_LARGE = bytes(8 << 20)


def producer(nodes: Nodes, log: str, **more: Any) -> ProducerClient:
    return ProducerClient(nodes.servers, log, ProducerOptions(**more))


def numbered(count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(count)]


async def test_the_events_keep_their_order_and_count_with_the_commit(nodes: Nodes) -> None:
    log, events = await nodes.log(3), numbered(3 * PIECE_EVENTS)
    async with producer(nodes, log) as one:
        async with one.transaction() as tx:
            await tx.send(b"before", partition="1")
            delivery = await tx.send_many(events, partition="1")
            await tx.send(b"behind", partition="1")
            result = await delivery
            assert (result.partition, result.count) == ("1", len(events))
            assert await bodies(nodes, log) == []
        assert await bodies(nodes, log) == [b"before", *events, b"behind"]
        async with one.transaction() as tx:
            await tx.send_many(events, key="IBM")
            await tx.abort()
        assert len(await bodies(nodes, log)) == len(events) + 2


async def test_a_call_goes_to_one_partition_but_events_with_keys_where_those_say(nodes: Nodes) -> None:
    log, keys = await nodes.log(4), [f"key-{number}" for number in range(50)]
    async with producer(nodes, log) as one:
        async with one.transaction() as tx:
            places = [(await tx.send_many([b"a", "b"])).partition for _ in range(4)]
            mixed = await tx.send_many([Event(key, key=key) for key in keys] + [b"without a key"])
            again = await tx.send_many([b"of a key"], key=keys[0])
            assert (await mixed).count == len(keys) + 1
        assert sorted(place or "" for place in places) == ["0", "1", "2", "3"]
        assert again.partition == mixed.partition == one.partition_of(keys[0])
        by_place: Counter[str] = Counter(one.partition_of(key) for key in keys)
        assert len(by_place) > 1
        for place, count in by_place.items():
            assert sum(body.startswith(b"key-") for body in await bodies(nodes, log, place)) == count


async def test_more_than_the_buffer_holds(nodes: Nodes) -> None:
    log, events = await nodes.log(1), numbered(5 * PIECE_EVENTS + 7)
    async with producer(nodes, log, max_buffered_events=100) as one, one.transaction() as tx:
        for start in range(0, len(events), 500):
            await tx.send_many(events[start : start + 500], partition="0")
    assert await bodies(nodes, log) == events


async def test_what_is_wrong_from_its_first_events_on_takes_nothing_in(nodes: Nodes) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log) as one:
        tx = one.transaction()
        with pytest.raises(InvalidOperationError, match="not begun"):
            await tx.send_many([b"early"], partition="0")
        async with tx:
            text: Any = b"one event"
            with pytest.raises(ConfigurationError, match="a list of events"):
                await tx.send_many(text, partition="0")
            with pytest.raises(NotFoundError):
                await tx.send_many([b"x"], partition="7")
            with pytest.raises(EventTooLargeError):
                await tx.send_many([*numbered(PIECE_EVENTS), TOO_LARGE], partition="0")
            await tx.send_many([], partition="0")
            await tx.send_many([b"fits"], partition="0")
        with pytest.raises(InvalidOperationError):
            await tx.send_many([b"late"], partition="0")
    assert await bodies(nodes, log) == [b"fits"]


@pytest.mark.parametrize("wrong", [Event(TOO_LARGE), 7])
async def test_a_call_that_takes_a_part_only_rolls_back(nodes: Nodes, wrong: Any) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log) as one:
        tx = one.transaction()
        await tx.begin()
        await tx.send(b"whole", partition="0")
        with pytest.raises((EventTooLargeError, ConfigurationError)):
            await tx.send_many([*numbered(PIECE_EVENTS), wrong], partition="0")
        with pytest.raises(TransactionRolledBackError, match="only a part"):
            await tx.commit()
    assert await bodies(nodes, log) == []


async def send_batch(tx: Transaction, events: Sequence[bytes]) -> object:
    return await tx.send_batch(events, partition="0")


async def send_many(tx: Transaction, events: Sequence[bytes]) -> object:
    return await tx.send_many(events, partition="0")


@pytest.mark.parametrize("call", [send_batch, send_many])
async def test_a_call_that_was_cancelled_halfway_rolls_back(nodes: Nodes, call: Any) -> None:
    log = await nodes.log(1)
    async with producer(nodes, log, max_buffered_events=100) as one:
        tx = one.transaction()
        await tx.begin()
        sending = asyncio.ensure_future(call(tx, numbered(200 * PIECE_EVENTS)))
        await eventually(lambda: tx._accumulator.events)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(TransactionRolledBackError, match="only a part"):
            await tx.commit()
        async with one.transaction() as tx:
            await tx.send_many([b"again"], partition="0")
    assert await bodies(nodes, log) == [b"again"]


async def test_members_of_a_group_and_synchronous_programs_have_it_too(nodes: Nodes) -> None:
    log = await nodes.log(1)

    def work() -> None:
        with (
            sync.ProducerClient(nodes.servers, log) as one,
            sync.TransactionGroup(nodes.servers, writer="many", batch=0, run="r") as group,
        ):
            with one.transaction() as tx:
                assert tx.send_many([b"a", b"b"], partition="0").result(60).count == 2
            group.open()
            with group.member(one, part="0") as member:
                assert member.send_many([b"c", b"d"], partition="0").result(60).count == 2
                group.commit([member.prepare()])

    await asyncio.to_thread(work)
    assert await bodies(nodes, log) == [b"a", b"b", b"c", b"d"]
