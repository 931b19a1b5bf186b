"""A node that is cut off from the others, and first in a client's list: it must not cost every call its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.client import AdminClient, HoldfastError, ProducerClient, ProducerOptions
from tests.integration.clusters.cluster import Cluster
from tests.integration.clusters.cuts import PeerWays
from tests.integration.clusters.proxied import proxy_server

pytestmark = pytest.mark.cluster

CALL_S = 1.5
"""Less than a node takes to say that it cannot answer: a call ends while it waits for the one that is cut off."""
CALLS = 30


async def calls_until_one_succeeds(call: Callable[[], Awaitable[object]]) -> int:
    for number in range(1, CALLS + 1):
        try:
            await call()
        except HoldfastError:
            continue
        return number
    pytest.fail(f"{CALLS} calls in a row were spent on a node that is cut off, with others at hand")


def test_impatient_callers_turn_from_a_node_that_is_cut_off_to_another_one(
    make_cluster: Callable[..., Cluster], log_name: str, tmp_path: Path
) -> None:
    with proxy_server(tmp_path) as server:
        cluster = make_cluster()
        ways = PeerWays(server, cluster)
        cluster.start()
        cluster.create(log_name, 1)
        node = cluster.leaders(log_name)["0"]
        servers = [cluster.address(node), *(cluster.address(other) for other in cluster.nodes if other != node)]

        async def story() -> None:
            options = ProducerOptions(idempotent=True, delivery_timeout_s=CALL_S)
            admin = AdminClient(servers, timeout_s=CALL_S)
            producer = ProducerClient(servers, log_name, options)
            try:
                await producer.start()
                batch = await producer.create_batch(partition="0")
                batch.add(b"anything")
                with ways.cut(node, hears=False, is_heard=False):
                    await calls_until_one_succeeds(lambda: admin.log_info(log_name, complete=True))
                    await calls_until_one_succeeds(lambda: producer.send_batch(batch))
            finally:
                await producer.abandon()
                await admin.close()

        asyncio.run(story())
