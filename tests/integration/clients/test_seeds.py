"""A client needs the address of one node: nodes tell the others, and the client outlives the one it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from proton.utils import BlockingConnection

from holdfast.client import ConsumerClient, ProducerClient, Start
from tests.integration.clusters.cluster import Cluster

pytestmark = pytest.mark.cluster


def test_a_node_tells_every_client_of_the_others(cluster: Cluster) -> None:
    for node in cluster.nodes:
        connection = BlockingConnection(cluster.address(node))
        told = connection.conn.remote_properties["holdfast:nodes"]
        connection.close()
        others = [cluster.address(other) for other in cluster.nodes if other != node]
        assert sorted(f"{host}:{int(port)}" for host, port, _ in told) == sorted(others)


def test_a_client_goes_on_when_the_only_node_that_it_was_given_is_gone(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start()
    cluster.create("trades", 1)
    leader = cluster.leaders("trades")["0"]

    async def outlive() -> list[bytes]:
        seed = cluster.address(leader)
        async with (
            ProducerClient(seed, "trades") as producer,
            ConsumerClient(seed, "trades", start=Start.earliest()) as reader,
        ):
            await producer.send_and_confirm(b"before")
            got = [(await anext(aiter(reader))).body]
            await asyncio.to_thread(cluster.kill, leader)
            await producer.send_and_confirm(b"after")
            got.append((await anext(aiter(reader))).body)
            return got

    assert asyncio.run(outlive()) == [b"before", b"after"]
