"""A client sleeps while every node that it was given is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import ConsumerClient, ConsumerOptions, ProducerClient, Start
from holdfast.client.transport import node_watch
from tests.integration.clusters.cluster import ClusterSettings, wait_until
from tests.integration.membership.growing import GrowingCluster
from tests.integration.membership.test_joining import TOLD

pytestmark = pytest.mark.cluster

FOUNDERS = (1, 2, 3)


def replace(cluster: GrowingCluster, old: int, *, kill: bool) -> None:
    """A new node takes the place of one that leaves, or that was killed."""
    new = old + len(FOUNDERS)
    if kill:
        cluster.kill(old)
    cluster.join(new, seeds=cluster.running)
    cluster.call(lambda admin: admin.remove_node(old))
    if not kill:
        assert cluster.wait_exit(old) == 3
        cluster.nodes[old].expected_dead = True
    wait_until(lambda: old not in cluster.node_list(), f"node {old} is gone")
    cluster.wait_voters(3)


async def outlive(cluster: GrowingCluster, seeds: list[int], order: list[int], *, kill: bool) -> list[bytes]:
    """Bodies that a reader got while a producer and it slept through the replacement of all their nodes."""
    servers = [cluster.address(node) for node in seeds]
    async with (
        ProducerClient(servers, "trades") as producer,
        ConsumerClient(servers, "trades", start=Start.earliest()) as reader,
    ):
        await producer.send_and_confirm(b"before")
        got = [(await anext(aiter(reader))).body]
        for old in order:
            await asyncio.to_thread(replace, cluster, old, kill=kill)
        await producer.send_and_confirm(b"after")
        got.append((await anext(aiter(reader))).body)
        return got


async def stored(cluster: GrowingCluster) -> list[bytes]:
    servers = [cluster.address(node) for node in cluster.running]
    options = ConsumerOptions(until_end=True)
    async with ConsumerClient(servers, "trades", start=Start.earliest(), options=options) as reader:
        return [event.body async for event in reader]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[GrowingCluster]:
    one = GrowingCluster(tmp_path, ClusterSettings(nodes=3))
    try:
        one.start()
        one.create("trades", partitions=1, replicas=3)
        yield one
        assert one.complaints(allowed=TOLD) == []
    finally:
        one.close()


@pytest.mark.timeout(400)
def test_a_client_that_sleeps_outlives_all_nodes_that_it_was_given(cluster: GrowingCluster) -> None:
    assert asyncio.run(outlive(cluster, [*FOUNDERS], [*FOUNDERS], kill=False)) == [b"before", b"after"]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("its_own", ["first", "last"])
def test_a_client_that_sleeps_outlives_nodes_that_are_killed(
    cluster: GrowingCluster, its_own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its only connection is to the leader, which is killed as the first node or as the last one."""
    monkeypatch.setattr(node_watch, "PAUSE_S", 0.0)
    leader = cluster.leaders("trades")["0"]
    others = [node for node in FOUNDERS if node != leader]
    order = [leader, *others] if its_own == "first" else [*others, leader]
    assert asyncio.run(outlive(cluster, [leader, *others], order, kill=True)) == [b"before", b"after"]
    assert asyncio.run(stored(cluster)) == [b"before", b"after"]
