"""What happens to a producer with transactions: its connection is cut, answers get lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast.amqp import Accepted, decode_message
from holdfast.client import ProducerClient
from node.listener.transactions.coordinator_link import CoordinatorLink
from tests.unit.client.support.real_cluster import Nodes
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.reading import start_at


async def bodies(nodes: Nodes, log: str) -> list[bytes]:
    """What a committed reader finds now, by partition."""
    found: list[bytes] = []
    broker = nodes.cluster.broker(1)
    async with Peer(nodes.cluster.ports[1]) as peer:
        for partition in broker.describe(log).partitions:
            link = await peer.receiver(start_at(log, "@earliest"), partition)
            link.drain(10_000)
            await peer.flush()
            await peer.until(lambda link=link: link.credit == 0)  # type: ignore[misc]
            found += [bytes(decode_message(payload).body) for payload in peer.received.get(link, [])]  # type: ignore[arg-type]
    return found


def cut(producer: ProducerClient) -> None:
    """The socket of its transactions ends, without a word."""
    transactor = producer._transactor
    assert transactor is not None
    assert transactor._session is not None
    transport = transactor._session.connection._transport
    assert transport is not None
    transport.abort()


@contextlib.asynccontextmanager
async def cut_before_the_answer(
    nodes: Nodes, producer: ProducerClient, monkeypatch: pytest.MonkeyPatch, *, decided: bool
) -> AsyncIterator[None]:
    """The next discharge is carried out (`decided`), or never is; whichever, its answer is not sent: the connection
    ends in its place."""
    original = CoordinatorLink._discharge
    happened = asyncio.Event()

    async def interrupted(link: CoordinatorLink, request: object) -> object:
        monkeypatch.undo()
        happened.set()
        if not decided:
            cut(producer)
            own = link._open.pop(request.txn_id)  # type: ignore[attr-defined]
            await own.abort()
            return None
        outcome = await original(link, request)  # type: ignore[arg-type]
        assert isinstance(outcome, Accepted)
        cut(producer)
        return None

    monkeypatch.setattr(CoordinatorLink, "_discharge", interrupted)
    yield
    assert happened.is_set()
