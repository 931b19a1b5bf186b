"""Cancelled publishing (IP-16): what was sent may be stored, so it is not given up before its outcome is known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.amqp import Error, decode_message
from holdfast.amqp.links.delivery_states import ACCEPTED, RELEASED, Rejected
from holdfast.client import RejectedError, UndeliveredError
from tests.unit.client.support.idempotent import (
    batch_of,
    drop_connection_once,
    idempotent,
    last,
)
from tests.unit.client.support.tiny_node import TinyNode
from tests.unit.listener.support.peer import eventually


async def test_ip_16_cancelled_before_it_was_sent_it_was_never_published(node: TinyNode) -> None:
    async with idempotent(node, owner_level=0) as producer:  # who has a name publishes one at a time
        await producer.send_batch([b"0"], partition="0")
        first, second = await batch_of(producer, b"1"), await batch_of(producer, b"2")
        publishing = asyncio.create_task(producer.send_batch(first))
        waiting = asyncio.create_task(producer.send_batch(second))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not second.is_locked
        await publishing
        assert await last(producer) == 2
        await producer.send_batch(second)
    assert node.log.bodies("0") == [b"0", b"1", b"2"]


async def test_ip_16_cancelled_under_way_it_is_published_if_the_node_says_so(node: TinyNode) -> None:
    under_way = asyncio.Event()
    real = node.answer

    def tell(connection: Any, partition: str, count: int) -> bool:
        under_way.set()
        return False

    node.after_transfers, node.answer = tell, real
    async with idempotent(node) as producer:
        batch = await batch_of(producer, *(b"%d" % n for n in range(1500)))  # several rounds of credit
        publishing = asyncio.create_task(producer.send_batch(batch))
        await under_way.wait()
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert batch.is_published
        assert batch.starting_published_sequence_number == 1
        assert await last(producer) == 1500
        await producer.send_batch([b"next"], partition="0")
    assert node.log.numbers("0") == list(range(1, 1502))


async def test_ip_16_cancelled_under_way_and_never_answered_it_is_free_again(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.produce.partition_sender.CANCEL_BOUND_S", 0.05)
    under_way = asyncio.Event()

    def swallow(connection: Any, partition: str, count: int) -> bool:
        under_way.set()
        return True

    node.after_transfers = swallow
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await under_way.wait()
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert not batch.is_locked
        assert batch.starting_published_sequence_number is None
        assert await last(producer) == 0
        node.after_transfers = None
        await producer.send_batch(batch)
        assert batch.starting_published_sequence_number == 1


async def test_ip_16_what_was_sent_behind_a_publication_that_is_given_up_is_given_up_with_it(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.produce.partition_sender.CANCEL_BOUND_S", 0.05)
    swallowed = 0

    def swallow(connection: Any, partition: str, count: int) -> bool:
        nonlocal swallowed
        swallowed += count
        return True

    async with idempotent(node, named=False) as producer:
        node.after_transfers = swallow
        before = await producer.send(b"before", partition="0")
        batch = await batch_of(producer, b"cancelled")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await eventually(lambda: swallowed == 2)
        behind = await producer.send(b"behind", partition="0")
        await eventually(lambda: swallowed == 3)
        node.after_transfers = None
        node.answer = lambda payload: RELEASED
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert not batch.is_locked
        with pytest.raises(UndeliveredError, match="its outcome is not known"):
            await behind
        node.answer = lambda payload: ACCEPTED
        assert (await before).sequence_number == 1
        await producer.send_batch(batch)
        assert batch.starting_published_sequence_number == 2
    assert node.log.bodies("0") == [b"before", b"cancelled"]


async def test_ip_16_given_up_behind_a_refused_one_it_was_not_published(
    node: TinyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused one took its number with it; given again, it gets the next one."""
    monkeypatch.setattr("holdfast.client.produce.partition_sender.CANCEL_BOUND_S", 0.05)
    came: list[object] = []

    def refuse_the_first_and_be_silent(payload: bytes) -> Rejected | None:
        came.append(decode_message(payload).body)
        return Rejected(Error("holdfast:not-wanted", "not taken")) if came == [b"before"] else None

    async with idempotent(node) as producer:
        await producer.send_batch([b"0"], partition="0")
        node.answer = refuse_the_first_and_be_silent
        before = await producer.send(b"before", partition="0")
        batch = await batch_of(producer, b"cancelled")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await eventually(lambda: len(came) == 2)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert not batch.is_locked
        with pytest.raises(RejectedError):
            await before
        node.answer = lambda payload: ACCEPTED
        await producer.send_batch(batch)
        assert batch.starting_published_sequence_number == 2
    assert node.log.bodies("0") == [b"0", b"cancelled"]


async def test_ip_16_cancelled_twice_leaves_the_line_usable(node: TinyNode) -> None:
    under_way = asyncio.Event()

    def swallow(connection: Any, partition: str, count: int) -> bool:
        under_way.set()
        return True

    node.after_transfers = swallow
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await under_way.wait()
        publishing.cancel()
        await asyncio.sleep(0.02)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        node.after_transfers = None
        await asyncio.sleep(0)
        await producer.send_batch(batch)
    assert node.log.numbers("0") == [1]


async def test_ip_16_cancelled_while_it_looks_for_a_leader_it_is_published_if_one_is_found(node: TinyNode) -> None:
    """What was sent may be stored: it is not given up before its outcome is known, or the patience is over."""
    node.after_transfers = drop_connection_once()
    looking = asyncio.Event()
    leaderless = True

    def refuse(address: str, partition: str | None) -> Error | None:
        if partition is None or not node.identities or not leaderless:
            return None
        looking.set()
        return Error("amqp:internal-error", "no leader at the moment")

    node.refuse = refuse
    async with idempotent(node) as producer:
        batch = await batch_of(producer, b"1", b"2")
        publishing = asyncio.create_task(producer.send_batch(batch))
        await looking.wait()
        publishing.cancel()
        await asyncio.sleep(0.02)
        assert not publishing.done()
        assert batch.is_locked
        leaderless = False
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert batch.is_published
        assert (await producer.send_batch([b"3"], partition="0")).sequence_number == 3
    assert node.log.bodies("0") == [b"1", b"2", b"3"]


async def test_ip_16_who_waits_behind_a_cancelled_publish_comes_after_its_end(node: TinyNode) -> None:
    held: list[Any] = []

    def hold(connection: Any, partition: str, count: int) -> bool:
        held.append(connection)
        return len(held) == 1

    node.after_transfers = hold
    async with idempotent(node) as producer:
        publishing = asyncio.create_task(producer.send_batch([b"1"], partition="0"))
        waiting = asyncio.create_task(producer.send_batch([b"2"], partition="0"))
        await eventually(lambda: held)
        publishing.cancel()
        await asyncio.sleep(0.02)
        assert not waiting.done()
        held[0].abort()  # now the first is sent again, and stored
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert (await waiting).sequence_number == 2
    assert node.log.bodies("0") == [b"1", b"2"]


async def test_what_comes_after_a_cancelled_one_has_time_of_its_own(node: TinyNode) -> None:
    """The link is being attached for a batch that nobody waits for any more."""
    async with idempotent(node) as producer:
        sender = producer._partitions.sender("0")
        usual_s, sender._delivery_timeout_s = sender._delivery_timeout_s, 0.3
        node.silent = True
        publishing = asyncio.create_task(producer.send_batch(await batch_of(producer, b"cancelled")))
        await eventually(lambda: ("receiver", "trades", "0") in node.attaches)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        sender._delivery_timeout_s = usual_s
        later = await producer.send(b"later", partition="0")
        await eventually(lambda: asyncio.get_running_loop().time() > sender._progress_at_s + 0.3)
        node.silent = False
        await later
    assert node.log.bodies("0") == [b"later"]
