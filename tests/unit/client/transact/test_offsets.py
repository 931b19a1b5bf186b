"""Positions of a consumer group that move with the commit of what was made of its events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.client import (
    AdminClient,
    ConfigurationError,
    ConsumerClient,
    OwnershipLostError,
    ProducerClient,
    ReceivedEvent,
    Start,
    TransactionRolledBackError,
)
from holdfast.client.consume.uncommitted_events import HandedOutEvents
from holdfast.client.transport.management_requests import Exchange
from tests.unit.client.support.members import filled
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies, cut

pytestmark = pytest.mark.asyncio(loop_scope="module")


def reader(nodes: Nodes, log: str, **more: Any) -> ConsumerClient:
    return ConsumerClient(nodes.servers, log, **({"group": "g", "start": Start.earliest()} | more))


async def took(consumer: ConsumerClient, count: int) -> list[ReceivedEvent]:
    found: list[ReceivedEvent] = []
    while len(found) < count:
        found += await consumer.receive(count - len(found))
    return found


async def committed(nodes: Nodes, log: str, group: str = "g") -> dict[str, int]:
    """Events that are done, by partition."""
    async with AdminClient(nodes.servers) as admin:
        rows = (await admin.describe_group(log, group))["partitions"]
    return {row["partition"]: row["committed_position"] or 0 for row in rows}


async def test_positions_move_with_the_commit_and_not_without_it(nodes: Nodes) -> None:
    source, target = await filled(nodes, partitions=4, count=10), await nodes.log(2)
    async with ProducerClient(nodes.servers, target) as producer, reader(nodes, source) as consumer:
        events = await took(consumer, 40)
        tx = producer.transaction()
        await tx.begin()
        for event in events:
            await tx.send(event.body, key=event.partition)
        await tx.commit_offsets(consumer)
        assert sum((await committed(nodes, source)).values()) == 0
        await tx.abort()
        assert sum((await committed(nodes, source)).values()) == 0
        async with producer.transaction() as tx:
            for event in events:
                await tx.send(event.body, key=event.partition)
            await tx.commit_offsets(consumer)
        assert await committed(nodes, source) == dict.fromkeys("0123", 10)
        assert len(await bodies(nodes, target)) == 40
        assert consumer.handed_out() == []
        assert await consumer.commit() == dict.fromkeys("0123", f"{9:016x}")
        async with producer.transaction() as tx:
            await tx.commit_offsets(consumer)


async def test_positions_that_were_not_noted_since_their_call_was_cancelled_are_not_committed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await filled(nodes, partitions=1, count=10)
    asked = asyncio.Event()

    async def unanswered(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    producing = ProducerClient(nodes.servers, source)
    async with asyncio.timeout(60), producing as producer, reader(nodes, source) as consumer:
        await took(consumer, 4)
        async with producer.transaction() as tx:
            with monkeypatch.context() as patch:
                patch.setattr(Exchange, "run", unanswered)
                committing = asyncio.ensure_future(tx.commit_offsets(consumer))
                await asked.wait()
                committing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await committing
        assert [one.partition for one in consumer.handed_out()] == ["0"]
        assert await committed(nodes, source) == {"0": 0}


async def test_only_positions(nodes: Nodes) -> None:
    """Nothing was written: what was read is done all the same, or not."""
    source = await filled(nodes, partitions=1, count=10)
    producing = ProducerClient(nodes.servers, source, transactional_id="sink")
    async with producing as producer, reader(nodes, source) as consumer:
        await took(consumer, 4)
        async with producer.transaction() as tx:
            await tx.commit_offsets(consumer)
        assert await committed(nodes, source) == {"0": 4}
        await took(consumer, 3)
        tx = producer.transaction()
        await tx.begin()
        await tx.commit_offsets(consumer)
        cut(producer)
        with pytest.raises(TransactionRolledBackError):
            await tx.commit()
        assert await committed(nodes, source) == {"0": 4}
        async with producer.transaction() as tx:
            await tx.commit_offsets(consumer)
        assert await committed(nodes, source) == {"0": 7}


async def test_a_zombie_cannot_commit_what_its_successor_works_on(nodes: Nodes) -> None:
    """It has not heard that it was replaced: the partition refuses its claim at the commit."""
    source, target = await filled(nodes, partitions=1, count=10), await nodes.log(1)
    async with (
        ProducerClient(nodes.servers, target) as producer,
        reader(nodes, source, partitions=["0"], epoch=1) as zombie,
    ):
        events = await took(zombie, 10)
        positions = zombie.handed_out()
        async with reader(nodes, source, partitions=["0"], epoch=2) as successor:
            again = await took(successor, 10)
            assert [event.offset for event in again] == [event.offset for event in events]

            class Deaf:
                def handed_out(self) -> Any:
                    return positions

            tx = producer.transaction()
            await tx.begin()
            await tx.send(b"counted twice", partition="0")
            await tx.commit_offsets(Deaf())
            with pytest.raises(TransactionRolledBackError) as refused:
                await tx.commit()
            assert refused.value.condition == "amqp:transaction:rollback"
            async with producer.transaction() as tx:
                await tx.send(b"counted", partition="0")
                await tx.commit_offsets(successor)
    assert await bodies(nodes, target) == [b"counted"]
    assert await committed(nodes, source) == {"0": 10}


async def test_events_of_a_partition_that_was_lost_are_not_left_out_of_a_commit(nodes: Nodes) -> None:
    source, target = await filled(nodes, partitions=2, count=10), await nodes.log(1)
    lost = asyncio.Event()
    first = reader(nodes, source, on_revoked=lambda _: lost.set())
    async with ProducerClient(nodes.servers, target) as producer, first:
        await took(first, 20)
        async with reader(nodes, source) as second:
            await asyncio.wait_for(lost.wait(), 60)

            async def work() -> None:
                async with producer.transaction() as tx:
                    await tx.send(b"of both partitions", partition="0")
                    await tx.commit_offsets(first)

            for _ in range(2):
                with pytest.raises(OwnershipLostError) as error:
                    await work()
                assert not error.value.retriable
            assert await bodies(nodes, target) == []
            await took(second, 10)
            async with producer.transaction() as tx:
                await tx.send(b"of one", partition="0")
                await tx.commit_offsets(second)
    assert await bodies(nodes, target) == [b"of one"]


async def test_only_a_member_of_a_group_has_positions(nodes: Nodes) -> None:
    source = await filled(nodes, partitions=1, count=10)
    async with (
        ProducerClient(nodes.servers, source) as producer,
        ConsumerClient(nodes.servers, source, start=Start.earliest()) as consumer,
        producer.transaction() as tx,
    ):
        with pytest.raises(ConfigurationError, match="group"):
            await tx.commit_offsets(consumer)


async def test_the_book_of_what_was_handed_out() -> None:
    heard: list[Any] = []
    book = HandedOutEvents("log", lambda *given: {"given": given}, lambda *given: heard.append(given))
    book.took("0", 1, "a")
    book.took("1", 2, "b")
    book.goes_on("0", 1, 3)
    ours = {("0", 3), ("1", 2)}
    first, second = book.all(ours)
    assert (first.claim, first.offset, first.arguments) == (3, "a", {"given": ("0", "a", 3)})
    second.committed()
    assert heard == [("1", "b", 2)]
    book.committed("1", "b", 2)
    book.committed("0", "a", 1)  # of another claim
    assert [one.partition for one in book.all(ours)] == ["0"]
    book.took("0", 4, "c")  # its partition was somebody else's in between
    for _ in range(2):
        with pytest.raises(OwnershipLostError, match="partition 0"):
            book.all({("0", 4)})
    book.came_for_more()
    assert [one.offset for one in book.all({("0", 4)})] == ["c"]
