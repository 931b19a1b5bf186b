"""Who is cancelled while a transaction begins or ends does not spoil the next one."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.amqp.links.delivery_states import DeliveryState
from holdfast.client import InvalidOperationError, ProducerClient
from holdfast.client.transact.transaction_manager import Transactor
from holdfast.client.transport.links import Sender, SenderOwner
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.amqp_transactions.control_link import CoordinatorLink
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.client.support.transacting import bodies
from tests.unit.listener.support.peer import WAIT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("name", [None, "cancelled in begin"])
async def test_a_begin_that_is_cancelled_leaves_nothing_open(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    log = await nodes.log(1)
    answered = asyncio.Event()

    def unheard(transactor: Transactor, outcomes: list[tuple[int, DeliveryState]]) -> None:
        """The node has begun the transaction, and its answer comes in the turn in which the program gives up."""
        answered.set()

    async with ProducerClient(nodes.servers, log, transactional_id=name) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(Transactor, "on_outcomes", unheard)
            beginning = asyncio.create_task(producer.transaction().begin())
            async with asyncio.timeout(WAIT_S):
                await answered.wait()
            beginning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await beginning
        async with producer.transaction() as transaction:
            await transaction.send(b"after it", partition="0")
    assert await bodies(nodes, log) == [b"after it"]


async def test_the_next_transaction_waits_for_a_commit_whose_caller_was_cancelled(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await nodes.log(1)
    original = CoordinatorLink._discharge
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(link: CoordinatorLink, own: ClientTransaction, *, fail: bool) -> object:
        asked.set()
        await go.wait()
        return await original(link, own, fail=fail)

    monkeypatch.setattr(CoordinatorLink, "_discharge", slow)
    async with ProducerClient(nodes.servers, log) as producer, asyncio.timeout(WAIT_S):
        first = producer.transaction()
        await first.begin()
        await first.send(b"first", partition="0")
        committing = asyncio.create_task(first.commit())
        await asked.wait()
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        second = producer.transaction()
        beginning = asyncio.create_task(second.begin())
        await asyncio.sleep(0)
        assert not beginning.done()
        go.set()
        await beginning
        await second.send(b"second", partition="0")
        await second.commit()
    assert await bodies(nodes, log) == [b"first", b"second"]


@pytest.mark.parametrize("ends", ["commit", "abort"])
async def test_what_waits_for_a_link_when_its_transaction_ends_is_not_taken_in(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    log, attach = await nodes.log(1), Transactor.attach
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(transactor: Transactor, partition: str, owner: SenderOwner, bound_s: float) -> Sender:
        link = await attach(transactor, partition, owner, bound_s)
        asked.set()
        await go.wait()
        return link

    monkeypatch.setattr(Transactor, "attach", slow)
    async with ProducerClient(nodes.servers, log) as producer, asyncio.timeout(WAIT_S):
        transaction = producer.transaction()
        await transaction.begin()
        sending = asyncio.create_task(transaction.send(b"too late", partition="0"))
        await asked.wait()
        await (transaction.commit() if ends == "commit" else transaction.abort())
        go.set()
        with pytest.raises(InvalidOperationError, match="cannot be sent under"):
            await sending
        async with producer.transaction() as transaction:
            await transaction.send(b"next", partition="0")
    assert await bodies(nodes, log) == [b"next"]
