"""What a node costs in memory: idle, and after much has passed through it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from holdfast.client.consumer import ConsumerClient
from holdfast.client.producer import ProducerClient
from holdfast.client.start_position import Start
from tests.integration.clusters.cluster import Cluster
from tests.integration.conftest import number_from

MIB = 1 << 20
EVENTS = number_from("HOLDFAST_EVENTS", 60_000)
ROUNDS = 6
BODY_BYTES = 1024

IDLE_BYTES = 150 * MIB
GROWTH_BYTES = 96 * MIB
"""The store's memory is bounded, and fills up while the log grows; a leak of a hundred bytes for each of a million
events would show."""

pytestmark = pytest.mark.cluster


def resident(cluster: Cluster) -> dict[int, int]:
    found = {}
    for node in cluster.nodes.values():
        assert node.process is not None
        found[node.id] = int(psutil.Process(node.process.pid).memory_info().rss)
    return found


def test_an_idle_node_is_small(own_cluster: Cluster, log_name: str, measured: Any) -> None:
    own_cluster.create(log_name, 4)
    for node, size in resident(own_cluster).items():
        measured(f"idle node {node}: {size / MIB:.0f} MiB resident")
        assert size < IDLE_BYTES


@pytest.mark.timeout(300 + EVENTS // 500)
def test_nothing_grows_with_what_passes_through(
    make_cluster: Callable[..., Cluster], log_name: str, measured: Any
) -> None:
    """Published at one node, read back at another, forgotten by retention; measured after each round. The cache of the
    newest events is full after the first of them."""
    cluster = make_cluster(storage={"cache_bytes": 4 * MIB})
    cluster.start()
    cluster.create(log_name, 2, retention_bytes=16 * MIB)
    sizes = []
    for _ in range(ROUNDS):
        asyncio.run(_round(cluster, log_name, EVENTS // ROUNDS))
        sizes.append(resident(cluster))
    for node in cluster.nodes:
        steps = " ".join(f"{size[node] / MIB:.0f}" for size in sizes)
        measured(f"node {node}, MiB resident after each {EVENTS // ROUNDS} events: {steps}")
        assert sizes[-1][node] - sizes[1][node] < GROWTH_BYTES


async def _round(cluster: Cluster, log: str, count: int) -> None:
    begun_ms = int(time.time() * 1000)  # of this machine's clock, like the times of events
    async with (
        ConsumerClient(cluster.address(2), log, start=Start.from_time(begun_ms)) as consumer,
        ProducerClient(cluster.address(1), log) as producer,
    ):
        body = bytes(BODY_BYTES)
        sending = asyncio.create_task(_send(producer, body, count))
        received = 0
        while received < count:
            events = await consumer.receive(timeout_s=120)
            assert events, f"{received} of {count} events came"
            received += len(events)
        await sending


async def _send(producer: ProducerClient, body: bytes, count: int) -> None:
    for _ in range(count):
        await producer.send(body)
    await producer.flush()
