"""The answer to the attach of a control link gets lost: the producer asks again, and is still the holder of its id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.client import ProducerClient, ProducerFencedError
from node.client_transactions.transactional_ids import TransactionManager
from node.client_transactions.transactional_producer import TransactionalProducer
from node.listener.amqp_transactions.control_link import CoordinatorLink
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies, cut
from tests.unit.listener.support.peer import WAIT_S, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


def lose_answers(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """So many attaches are carried out, and their connections end in place of the answer. The holders that they
    registered."""
    open_link, lost = CoordinatorLink.open, list[str]()

    def opened(link: CoordinatorLink) -> None:
        producer = link._producer
        if producer is None or len(lost) == count:
            open_link(link)
            return
        lost.append(producer.holder)
        link.host.abort()  # type: ignore[attr-defined]

    monkeypatch.setattr(CoordinatorLink, "open", opened)
    return lost


@pytest.mark.parametrize("count", [1, 3])
async def test_who_comes_back_and_loses_the_answer_is_not_fenced_by_itself(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    log = await nodes.log(1)
    name = f"lost {count}"
    async with asyncio.timeout(WAIT_S), ProducerClient(nodes.servers, log, transactional_id=name) as producer:
        async with producer.transaction() as tx:
            await tx.send(b"first", partition="0")
        lost = lose_answers(monkeypatch, count)
        cut(producer)
        async with producer.transaction() as tx:
            await tx.send(b"second", partition="0")
        assert len(lost) == count
        assert len(set(lost)) == 1, "one name in all tries of an attach"
        cut(producer)
        async with producer.transaction() as tx:
            await tx.send(b"third", partition="0")
        assert producer._transactor is not None
        assert producer._transactor._holder not in (None, *lost), "and another one in the next"
    assert await bodies(nodes, log) == [b"first", b"second", b"third"]


async def test_who_loses_the_answer_and_is_succeeded_stays_so(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await nodes.log(1)
    servers = nodes.servers
    successor = ProducerClient(servers, log, transactional_id="taken")
    async with asyncio.timeout(WAIT_S), ProducerClient(servers, log, transactional_id="taken") as zombie:
        async with zombie.transaction() as tx:
            await tx.send(b"first", partition="0")
        lost = lose_answers(monkeypatch, 1)
        cut(zombie)
        beginning = asyncio.create_task(zombie.transaction().begin())
        await eventually(lambda: len(lost) == 1)
        beginning.cancel()
        await asyncio.gather(beginning, return_exceptions=True)
        await successor.start()
        async with successor.transaction() as tx:
            await tx.send(b"of the successor", partition="0")
        with pytest.raises(ProducerFencedError):
            await zombie.transaction().begin()
        async with successor.transaction() as tx:
            await tx.send(b"again", partition="0")
        await successor.close()
    assert await bodies(nodes, log) == [b"first", b"of the successor", b"again"]


async def test_a_try_that_is_late_takes_nothing_from_the_one_that_was_answered(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try reaches the coordinator when the producer has long gone on by its second one."""
    log = await nodes.log(1)
    register, go, late = TransactionalProducer.register, asyncio.Event(), list[Any]()
    hold = TransactionManager.hold

    async def delayed(self: TransactionalProducer, *, lost: Any = None) -> None:
        monkeypatch.setattr(TransactionalProducer, "register", register)
        await go.wait()
        await register(self, lost=lost)

    async def holding(*args: Any, **named: Any) -> TransactionalProducer:
        monkeypatch.setattr(TransactionManager, "hold", hold)
        late.append(asyncio.ensure_future(hold(*args, **named)))
        return await asyncio.shield(late[0])

    async with asyncio.timeout(WAIT_S), ProducerClient(nodes.servers, log, transactional_id="late") as producer:
        async with producer.transaction() as tx:
            await tx.send(b"first", partition="0")
        cut(producer)
        monkeypatch.setattr(TransactionManager, "hold", holding)
        monkeypatch.setattr(TransactionalProducer, "register", delayed)
        tx = producer.transaction()
        beginning = asyncio.create_task(tx.begin())
        await eventually(lambda: bool(late))
        beginning.cancel()
        await asyncio.gather(beginning, return_exceptions=True)
        async with producer.transaction() as tx:
            await tx.send(b"second", partition="0")
        async with producer.transaction() as tx:
            await tx.send(b"third", partition="0")
            go.set()
            await asyncio.wait(late)
        async with producer.transaction() as tx:
            await tx.send(b"fourth", partition="0")
    assert await bodies(nodes, log) == [b"first", b"second", b"third", b"fourth"]
