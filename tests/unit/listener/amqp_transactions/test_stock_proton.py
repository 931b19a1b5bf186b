"""Unmodified python-qpid-proton and its transactions, on partitions that different nodes lead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection

from tests.unit.listener.support.cluster import ListenerCluster
from tests.unit.listener.support.stock import WAIT_S, from_offset

PARTITIONS = 4


class Bound(LinkOption):
    def __init__(self, partition: str) -> None:
        self.partition = partition

    def apply(self, link: Any) -> None:
        link.properties = {symbol("event-streams-partition"): symbol(self.partition)}


class Sending(MessagingHandler, TransactionHandler):
    """One transaction after the other, each with a message to each partition; `plan` says how each one ends."""

    def __init__(self, url: str, plan: list[str]) -> None:
        super().__init__()
        self.url, self.plan = url, list(plan)
        self.ends: list[str] = []
        self.outcomes: list[Any] = []
        self.transaction: Any = None
        self.to_settle = 0

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, reconnect=False)
        self.senders = [
            event.container.create_sender(self.connection, "trades", name=f"s{number}", options=[Bound(str(number))])
            for number in range(PARTITIONS)
        ]
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.to_settle = PARTITIONS
        for number, sender in enumerate(self.senders):
            self.transaction.send(sender, Message(body=f"{self.plan[0]} {number} of {len(self.ends)}"))

    def on_delivery(self, event: Any) -> None:
        super().on_delivery(event) if hasattr(super(), "on_delivery") else None
        delivery = event.delivery
        if delivery.link in self.senders and delivery.updated and delivery.remote_state == 0x34:
            self.outcomes.append(delivery.remote.data)
            self.to_settle -= 1
            delivery.settle()
            if self.to_settle == 0:
                self.transaction.commit() if self.plan[0] == "commit" else self.transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self._next("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self._next("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._next("failed")

    def on_transaction_declare_failed(self, event: Any) -> None:
        self._next("not declared")

    def _next(self, how: str) -> None:
        self.ends.append(how)
        self.plan.pop(0)
        if self.plan:
            self.container.declare_transaction(self.connection, handler=self)
        else:
            self.connection.close()


class Receiving(MessagingHandler, TransactionHandler):
    """Takes two events under a transaction, gives it up; takes what comes then under another one, and commits."""

    def __init__(self, url: str, *, settle_first: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.settle_first = url, settle_first
        self.taken: list[list[str]] = []
        self.transaction: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, reconnect=False)
        options = [Bound("0"), from_offset("@earliest")]
        self.receiver = event.container.create_receiver(self.connection, "trades", options=options)
        self._declare()

    def _declare(self) -> None:
        self.container.declare_transaction(self.connection, handler=self, settle_before_discharge=self.settle_first)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.taken.append([])
        self.receiver.flow(2)

    def on_message(self, event: Any) -> None:
        self.taken[-1].append(event.message.body)
        self.transaction.accept(event.delivery)
        if len(self.taken[-1]) == 2:
            self.transaction.abort() if len(self.taken) == 1 else self.transaction.commit()

    def on_transaction_aborted(self, event: Any) -> None:
        self._declare()

    def on_transaction_committed(self, event: Any) -> None:
        if len(self.taken) < 3:
            self._declare()
        else:
            self.connection.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListenerCluster]:
    async with ListenerCluster(tmp_path) as three:
        await three.create("trades", partitions=PARTITIONS)
        yield three


def url(cluster: ListenerCluster, node: int) -> str:
    return f"amqp://127.0.0.1:{cluster.ports[node]}"


async def run(handler: Any) -> None:
    await asyncio.wait_for(asyncio.to_thread(Container(handler).run), WAIT_S)


def stored(cluster: ListenerCluster, node: int) -> list[str]:
    connection = BlockingConnection(url(cluster, node), timeout=WAIT_S)
    found = []
    for number in range(PARTITIONS):
        options = [Bound(str(number)), from_offset("@earliest")]
        receiver = connection.create_receiver("trades", credit=0, options=options, name=f"r{number}")
        receiver.link.drain(100)
        connection.wait(lambda link=receiver.link: link.credit == 0)
        while receiver.fetcher.has_message:
            found.append(receiver.fetcher.pop().body)
    connection.close()
    return found


async def test_commits_and_aborts_across_partitions(cluster: ListenerCluster) -> None:
    handler = Sending(url(cluster, 1), ["commit", "abort", "commit"])
    await run(handler)
    assert handler.ends == ["committed", "aborted", "committed"]
    assert len(handler.outcomes) == 3 * PARTITIONS
    for node in cluster.nodes:
        found = await asyncio.to_thread(stored, cluster, node)
        assert found == [f"commit {number} of {turn}" for number in range(PARTITIONS) for turn in (0, 2)]


@pytest.mark.parametrize("settle_first", [True, False])
async def test_what_was_rolled_back_is_received_again(cluster: ListenerCluster, settle_first: bool) -> None:
    await run(Sending(url(cluster, 2), ["commit"] * 4))
    leader = cluster.leader("trades", "0")
    for node in (leader, cluster.other_than(leader)):
        handler = Receiving(url(cluster, node), settle_first=settle_first)
        await run(handler)
        first, again, behind = handler.taken
        assert first == again == ["commit 0 of 0", "commit 0 of 1"]
        assert behind == ["commit 0 of 2", "commit 0 of 3"]
