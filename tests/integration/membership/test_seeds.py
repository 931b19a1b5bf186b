"""A client sleeps while every node that it was given is replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.client import ConsumerClient, ProducerClient, Start
from tests.integration.clusters.cluster import ClusterSettings, wait_until
from tests.integration.membership.growing import GrowingCluster
from tests.integration.membership.test_joining import TOLD

pytestmark = pytest.mark.cluster

FOUNDERS = (1, 2, 3)


def replace_all(cluster: GrowingCluster) -> None:
    """Nodes 4, 5 and 6 take the places of the founders, one after the other."""
    for old in FOUNDERS:
        new = old + len(FOUNDERS)
        cluster.join(new, seeds=[one for one in (*FOUNDERS, *range(4, new)) if one >= old])
        cluster.call(lambda admin, old=old: admin.remove_node(old))  # type: ignore[misc]
        assert cluster.wait_exit(old) == 3
        cluster.nodes[old].expected_dead = True
        wait_until(lambda old=old: old not in cluster.node_list(), f"node {old} is gone")  # type: ignore[misc]


@pytest.mark.timeout(400)
def test_a_client_that_sleeps_outlives_all_nodes_that_it_was_given(tmp_path: Path) -> None:
    cluster = GrowingCluster(tmp_path, ClusterSettings(nodes=3))

    async def outlive() -> list[bytes]:
        seeds = [cluster.address(node) for node in FOUNDERS]
        async with (
            ProducerClient(seeds, "trades") as producer,
            ConsumerClient(seeds, "trades", start=Start.earliest()) as reader,
        ):
            await producer.send_and_confirm(b"before")
            got = [(await anext(aiter(reader))).body]
            await asyncio.to_thread(replace_all, cluster)
            await producer.send_and_confirm(b"after")
            got.append((await anext(aiter(reader))).body)
            return got

    try:
        cluster.start()
        cluster.create("trades", partitions=1, replicas=3)
        assert asyncio.run(outlive()) == [b"before", b"after"]
        assert cluster.complaints(allowed=TOLD) == []
    finally:
        cluster.close()
