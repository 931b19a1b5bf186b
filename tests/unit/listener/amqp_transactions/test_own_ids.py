"""The ids of a node that no client named: they are lent again, whatever came of the ones before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.client_transactions import transactional_ids as managing
from node.client_transactions.errors import TransactionFailed
from node.client_transactions.transactional_ids import TransactionManager
from node.client_transactions.transactional_producer import TransactionalProducer
from node.partition.api import Failed
from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.peer import eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        yield three


async def ended(manager: TransactionManager, timeout_ms: int) -> str:
    """The id of a transaction that was begun and rolled back."""
    transaction = await manager.begin_anonymous(timeout_ms)
    await transaction.abort()
    manager.give_back(transaction)
    await eventually(lambda: not manager._ending)
    return transaction.producer.name


async def test_timeouts_do_not_use_up_the_ids(cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managing, "MAX_OWN", 2)
    manager = cluster.broker(1).transactions
    used = [await ended(manager, timeout_ms) for timeout_ms in (1000, 2000, 3000, 4000, 4000)]
    assert len(set(used)) == 2
    for _ in range(2):
        await manager.begin_anonymous(5000)
    with pytest.raises(TransactionFailed, match="2 transactions are open"):
        await manager.begin_anonymous(5000)


async def test_of_two_links_that_want_an_id_at_once_the_later_registration_has_it(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = cluster.broker(1).transactions
    register, registered, go_on = TransactionalProducer.register, asyncio.Event(), asyncio.Event()

    async def slow(self: TransactionalProducer, *, lost: Any = None) -> None:
        await register(self, lost=lost)
        registered.set()
        await go_on.wait()

    fenced: list[str] = []
    monkeypatch.setattr(TransactionalProducer, "register", slow)
    first = asyncio.ensure_future(manager.hold("worker", 1000, fenced.append))
    await registered.wait()
    monkeypatch.setattr(TransactionalProducer, "register", register)
    second = await manager.hold("worker", 1000, fenced.append)
    go_on.set()
    with pytest.raises(TransactionFailed, match="another link"):
        await first
    transaction = await manager.begin(second)
    await transaction.commit()
    assert not fenced


async def test_two_tries_of_one_attach_do_not_fence_each_other(cluster: ListenerCluster) -> None:
    manager, fenced = cluster.broker(1).transactions, list[str]()
    first = await manager.hold("worker", 1000, fenced.append, holder="h")
    second = await manager.hold("worker", 1000, fenced.append, holder="h")
    assert (first.pair, first.fenced, fenced) == (second.pair, "", []), "which of them was answered is not known here"
    transaction = await manager.begin(first)
    await transaction.commit()
    manager.let_go(second)
    await manager.hold("worker", 1000, fenced.append, holder="other", succeeds="h")


async def test_a_coordinator_that_is_down_keeps_nobody_from_the_others(
    cluster: ListenerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = cluster.broker(1).transactions
    await manager.begin_anonymous(1000)
    groups = [await manager.coordinators.group_of(f"$node-1-{number}") for number in range(1, 20)]
    down, real = groups[0], manager.calls

    class OneIsDown:
        async def ask(self, group: int, question: Any) -> Any:
            return Failed("not_leader", True, "down") if group == down else await real.ask(group, question)

        async def ask_until(self, group: int, question: Any, within_s: float) -> Any:
            return (
                Failed("not_leader", True, "down") if group == down else await real.ask_until(group, question, within_s)
            )

    manager.calls = OneIsDown()
    outcomes = []
    for _ in groups:
        try:
            outcomes.append((await manager.begin_anonymous(1000)).producer.group)
        except TransactionFailed:
            outcomes.append(down)
    assert outcomes == groups
