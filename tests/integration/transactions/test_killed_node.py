"""A node is killed while clients that name no transactional id have transactions open there.

Nobody takes those over, and their time is longer than anybody here waits. Committed readers get past them all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import protocol
from holdfast.amqp import Accepted, Coordinator
from holdfast.client import ConsumerClient, ProducerClient, Start
from node.client_transactions.transactional_ids import MAX_TIMEOUT_MS, OWN_PREFIX
from tests.integration.clusters.cluster import READY_WITHIN_S, Cluster, wait_until
from tests.integration.transactions.transactor import LISTENER
from tests.unit.listener.support.peer import Peer
from tests.unit.listener.support.transacting import Control, send_under

PARTITIONS = 3


async def left_open(cluster: Cluster, log: str, node: int, *, noted: bool) -> None:
    """A transaction with an event in each partition; the node is dead. `noted`: its coordinator had heard of it."""
    port = int(cluster.address(node, LISTENER).rpartition(":")[2])
    async with Peer(port) as peer:
        link = peer.engine.open_sender(Coordinator(), properties={protocol.TRANSACTION_TIMEOUT: MAX_TIMEOUT_MS})
        await peer._opened(link)
        await peer.until(lambda: link.credit > 0)
        control = Control(peer, link)
        txn = await control.declare()
        for partition in range(PARTITIONS):
            sender = await peer.sender(log, str(partition))
            assert await send_under(peer, sender, txn, [b"lost"]) == [Accepted()]
        if noted:
            await asyncio.to_thread(wait_until, lambda: under_way(cluster), "the coordinator to hear of it")
        await asyncio.to_thread(cluster.kill, node)


def own_ids(cluster: Cluster) -> list[dict[str, Any]]:
    """Of nodes, as far as they have transactions under way."""
    found = cluster.call(lambda admin: admin.list_transactions())
    return [one for one in found if one["transactional_id"].startswith(OWN_PREFIX)]


def under_way(cluster: Cluster) -> bool:
    return any(one["open_ms"] is not None for one in own_ids(cluster))


async def read(cluster: Cluster, log: str, count: int) -> list[bytes]:
    servers = [cluster.address(node) for node in cluster.running]
    async with asyncio.timeout(READY_WITHIN_S), ConsumerClient(servers, log, start=Start.earliest()) as consumer:
        events = aiter(consumer)
        return sorted([bytes((await anext(events)).body) for _ in range(count)])


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
@pytest.mark.parametrize("back", [True, False], ids=["it comes back", "it stays away"])
def test_readers_get_past_what_a_killed_node_has_left_open(
    tmp_path: Path, make_cluster: Callable[..., Cluster], noted: bool, back: bool
) -> None:
    cluster = make_cluster()
    cluster.start()
    log = cluster.create("trades", partitions=PARTITIONS)

    async def story() -> None:
        for node in (1, 2):
            await left_open(cluster, log, node, noted=noted)
            if back:
                await asyncio.to_thread(cluster.start, node)
            servers = [cluster.address(one) for one in cluster.running]
            async with ProducerClient(servers, log) as producer:
                for partition in range(PARTITIONS):
                    await (await producer.send(b"behind it %d" % node, partition=str(partition)))
            expected = [b"behind it %d" % one for one in range(1, node + 1) for _ in range(PARTITIONS)]
            assert await read(cluster, log, len(expected)) == expected
            if not back:
                return
        await asyncio.to_thread(wait_until, lambda: not under_way(cluster), "all ids to be idle")

    asyncio.run(story())
