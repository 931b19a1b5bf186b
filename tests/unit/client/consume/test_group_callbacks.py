"""What a program does in its callbacks, and within its loop, as a member of a group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.client import ConsumerClient, HoldfastError, OwnershipLostError, ProducerClient, Start
from holdfast.client import sync as threaded
from tests.unit.client.support.members import filled
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.peer import WAIT_S, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


def member(nodes: Nodes, log: str, **more: Any) -> ConsumerClient:
    return ConsumerClient(nodes.servers, log, group="g", start=Start.earliest(), **more)


async def take(consumer: ConsumerClient, count: int) -> list[int]:
    """The numbers of so many events, or of some more."""
    found: list[int] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            found += [int(event.body) for event in await consumer.receive()]
    return found


async def test_a_commit_within_the_loop_is_of_what_the_loop_was_given(nodes: Nodes) -> None:
    log = await filled(nodes, 1, 100)
    async with member(nodes, log) as consumer, asyncio.timeout(WAIT_S):
        async for event in consumer:
            assert await consumer.commit() == {"0": event.offset}
            if event.body == b"2":
                break
    async with member(nodes, log) as consumer:
        assert (await take(consumer, 1))[0] == 3


async def test_a_transaction_within_the_loop_commits_what_the_loop_was_given(nodes: Nodes) -> None:
    log, copies = await filled(nodes, 1, 100), await nodes.log(1)
    producer = ProducerClient(nodes.servers, copies, transactional_id="copies")
    async with producer, member(nodes, log) as consumer, asyncio.timeout(WAIT_S):
        async for event in consumer:
            async with producer.transaction() as transaction:
                await transaction.send(event.body)
                await transaction.commit_offsets(consumer)
            if event.body == b"2":
                break
    async with member(nodes, log) as consumer:
        assert (await take(consumer, 1))[0] == 3
    assert await nodes.bodies(copies) == [b"0", b"1", b"2"]


async def test_a_commit_within_a_loop_on_a_thread_of_its_own(nodes: Nodes) -> None:
    log = await filled(nodes, 1, 100)

    def work() -> None:
        with threaded.ConsumerClient(nodes.servers, log, group="g", start=Start.earliest()) as consumer:
            for event in consumer:
                assert consumer.commit() == {"0": event.offset}
                if event.body == b"2":
                    break

    await asyncio.to_thread(work)
    async with member(nodes, log) as consumer:
        assert (await take(consumer, 1))[0] == 3


@pytest.fixture
def told() -> list[str]:
    """What the loop's exception handler is told, of the tests that set it."""
    return []


def listen(told: list[str]) -> None:
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: told.append(f"{context['message']}: {context.get('exception')!r}")
    )


@pytest.fixture(autouse=True)
async def _usual_handler() -> Any:
    yield
    asyncio.get_running_loop().set_exception_handler(None)


def readers() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("reader")]


@pytest.mark.parametrize("kind", ["function", "coroutine", "cancelled"])
async def test_an_on_assigned_that_fails_is_told_to_who_waits(nodes: Nodes, kind: str) -> None:
    log = await filled(nodes, 1, 10)

    def function(partition: str) -> None:
        raise ValueError("own fault")

    async def coroutine(partition: str) -> None:
        raise ValueError("own fault")

    async def cancelled(partition: str) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with member(nodes, log, on_assigned=locals()[kind]) as consumer:
        with pytest.raises(HoldfastError, match="on_assigned failed for partition '0'") as caught:
            await take(consumer, 1)
        assert isinstance(caught.value.__cause__, RuntimeError if kind == "cancelled" else ValueError)
        await eventually(lambda: readers() == [])  # nor does it wait for another partition: it would be the same
        assert consumer.assignment == {}
        assert list(consumer._readers) == []
        async with member(nodes, log) as other:
            assert len(await take(other, 10)) == 10


async def test_an_on_revoked_that_fails_ends_nothing(nodes: Nodes, told: list[str]) -> None:
    """The documented use: a last commit, and the next owner was faster."""
    listen(told)
    log = await filled(nodes, 1, 20)
    heard: list[str] = []

    async def revoked(partition: str) -> None:
        heard.append(partition)
        if len(heard) < 3:
            await consumer.commit()

    async with member(nodes, log, on_revoked=revoked) as consumer:
        assert len(await take(consumer, 20)) == 20
        for epoch in (5, 6):
            async with member(nodes, log, partitions=["0"], epoch=epoch) as other:
                assert await take(other, 10)
                await eventually(lambda epoch=epoch: len(heard) == epoch - 4 and not consumer.assignment)
            await filled(nodes, 1, 10, log)
            assert len(await take(consumer, 30)) >= 30
        assert len(consumer.assignment) == 1
    assert len(told) == 2
    assert all(OwnershipLostError.__name__ in one for one in told)


async def test_close_tells_of_each_partition_and_closes_all_whatever_callbacks_do(
    nodes: Nodes, told: list[str]
) -> None:
    listen(told)
    log = await filled(nodes, 3, 10)
    heard: list[str] = []

    def revoked(partition: str) -> None:
        heard.append(partition)
        raise ValueError(f"own fault {len(heard)}")

    consumer = member(nodes, log, on_revoked=revoked)
    with pytest.raises(ValueError, match="own fault 1"):
        async with consumer:
            assert len(await take(consumer, 30)) == 30
    assert sorted(heard) == ["0", "1", "2"]
    assert ["own fault" in one for one in told] == [True, True]
    assert readers() == []
    await consumer.close()
    async with member(nodes, log) as other:
        assert len(await take(other, 30)) == 30


async def test_a_close_that_is_cancelled_in_a_callback_closes_all(nodes: Nodes) -> None:
    log = await filled(nodes, 1, 10)
    within = asyncio.Event()

    async def revoked(partition: str) -> None:
        within.set()
        await asyncio.sleep(WAIT_S * 2)

    consumer = member(nodes, log, on_revoked=revoked)
    await consumer.start()
    assert len(await take(consumer, 10)) == 10
    closing = asyncio.create_task(consumer.close())
    await within.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert readers() == []
    async with member(nodes, log) as other:
        assert len(await take(other, 10)) == 10


async def test_two_closes_at_once_let_a_callback_end_its_work(nodes: Nodes) -> None:
    log = await filled(nodes, 2, 10)
    committed: dict[str, str] = {}

    async def revoked(partition: str) -> None:
        await asyncio.sleep(0.1)
        committed.update(await consumer.commit())

    consumer = member(nodes, log, on_revoked=revoked)
    await consumer.start()
    assert len(await take(consumer, 20)) == 20
    await asyncio.gather(consumer.close(), consumer.close())
    assert committed == dict.fromkeys("01", f"{9:016x}")


@pytest.mark.parametrize("which", ["on_assigned", "on_revoked", "on_revoked by close"])
async def test_close_within_a_callback(nodes: Nodes, which: str) -> None:
    log = await filled(nodes, 1, 10)
    passed: list[str] = []

    async def callback(partition: str) -> None:
        await consumer.close()
        await asyncio.sleep(0.05)  # it may go on, and is closed behind it
        passed.append(partition)

    consumer = member(nodes, log, **{which.partition(" ")[0]: callback})
    await consumer.start()
    if which != "on_assigned":
        assert len(await take(consumer, 10)) == 10
    if which == "on_revoked":
        async with member(nodes, log, partitions=["0"], epoch=5) as other:
            assert await take(other, 10)
            await eventually(lambda: passed)
    if which == "on_revoked by close":
        await consumer.close()
    with pytest.raises(HoldfastError, match="was closed"):
        await take(consumer, 1)
    await asyncio.wait_for(consumer.close(), WAIT_S)
    assert passed == ["0"]
    assert readers() == []
    async with member(nodes, log) as other:
        assert len(await take(other, 10)) == 10
