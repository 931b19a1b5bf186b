"""What happens to a producer with transactions: its connection is cut, answers get lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.amqp import Accepted, decode_message
from holdfast.client import AdminClient, ProducerClient
from node.listener.amqp_transactions.connection_transaction import ClientTransaction
from node.listener.amqp_transactions.control_link import CoordinatorLink
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.reading import start_at


async def bodies(nodes: Nodes, log: str, *partitions: str) -> list[bytes]:
    """What a committed reader finds now, by partition: in these, or in all."""
    found: list[bytes] = []
    broker = nodes.cluster.broker(1)
    async with Peer(nodes.cluster.ports[1]) as peer:
        for partition in partitions or broker.describe(log).partitions:
            link = await peer.receiver(start_at(log, "@earliest"), partition)
            link.drain(10_000)
            await peer.flush()
            await peer.until(lambda link=link: link.credit == 0)  # type: ignore[misc]
            found += [bytes(decode_message(payload).body) for payload in peer.received.get(link, [])]  # type: ignore[arg-type]
    return found


async def noted(admin: AdminClient, name: str) -> dict[str, Any]:
    """What is listed of an id, once its coordinator was told of what it has open: that may take a second."""
    while True:
        (listed,) = [one for one in await admin.list_transactions() if one["transactional_id"] == name]
        if listed["state"] != "empty":
            return listed
        await asyncio.sleep(0.05)


def cut(producer: ProducerClient) -> None:
    """The socket of its transactions ends, without a word."""
    transactor = producer._transactor
    assert transactor is not None
    transport = transactor.connection._transport
    assert transport is not None
    transport.abort()


@contextlib.asynccontextmanager
async def cut_before_the_answer(
    nodes: Nodes, producer: ProducerClient, monkeypatch: pytest.MonkeyPatch, *, decided: bool | None
) -> AsyncIterator[None]:
    """The next discharge is carried out (`decided`), or never is: then its transaction is rolled back, or, None, no
    coordinator hears of it, as when its node dies. Its answer is not sent: the connection ends in its place."""
    original = CoordinatorLink._discharge
    happened = asyncio.Event()

    async def interrupted(link: CoordinatorLink, own: ClientTransaction, *, fail: bool) -> object:
        monkeypatch.undo()
        happened.set()
        if not decided:
            cut(producer)
            del link._open[own.txn_id]
            if decided is not None:
                await own.abort()
            return None
        outcome = await original(link, own, fail=fail)
        assert isinstance(outcome, Accepted)
        cut(producer)
        return None

    monkeypatch.setattr(CoordinatorLink, "_discharge", interrupted)
    yield
    assert happened.is_set()
