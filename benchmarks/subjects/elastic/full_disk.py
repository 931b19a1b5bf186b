"""Disk that is filled above its mark while clients publish: whether plans relieve it, and what clients notice."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from benchmarks.driver.measure import percentiles_ms
from benchmarks.subjects.elastic.figures import Rows, Stages, spread
from benchmarks.subjects.elastic.growing import ElasticCluster, until
from benchmarks.subjects.elastic.load import SteadyProducer, beside, fill
from holdfast.client import AdminClient

LOG = "full"
PARTITIONS = 12
NODE = 3
"""Keeps its data on the small file system."""

HIGH, LOW = 86, 75
PIECE_BYTES = 1 << 20
QUIET_S = 15.0
MOVING, CLEANING = "replicas move away", "segments are cleaned"


def used_percent(directory: Path) -> float:
    """Share of a file system that is used, as a node tells it."""
    system = os.statvfs(directory)
    return 100 * (1 - system.f_bavail / system.f_blocks)


async def relieve(cluster: ElasticCluster, small: Path, rate: int) -> Rows:
    """Fill the disk of a node, and let plans relieve it. `small`: a directory on that disk."""
    async with cluster.admin() as admin:
        await admin.balance_settings("off")
        await admin.create_log(LOG, partitions=PARTITIONS, replicas=3)
        for partition in range(PARTITIONS):
            nodes = [1, 2, NODE]
            turned = [nodes[(partition + place) % 3] for place in range(3)]
            await admin.reassign_partition(LOG, str(partition), turned)
        await cluster.settled(admin)
        while used_percent(small) < HIGH:
            await fill(cluster.servers, LOG, PARTITIONS, PIECE_BYTES)
        filled = used_percent(small)
        producer = SteadyProducer(cluster.servers, LOG, PARTITIONS, rate)
        calm = await beside(producer, asyncio.sleep(QUIET_S))
        began, stages = time.monotonic(), Stages((MOVING, CLEANING))
        stages.watch(producer.latencies_ns)
        moving = await beside(producer, _relieved(cluster, admin, small, stages))
        took_s = time.monotonic() - began
    latency, calm_latency = (percentiles_ms(part.latencies()) for part in (moving, calm))
    gaps = spread(list(moving.longest_gaps_ms().values()))
    return [
        ("used before, after", f"{filled:.0f} %, {used_percent(small):.0f} %"),
        ("time until below the mark, and nothing moves", f"{took_s:.0f} s"),
        ("events acknowledged meanwhile; refused", f"{len(moving.latencies_ns):,}; {len(moving.failed + calm.failed)}"),
        ("p99 without moves, with them", f"{calm_latency['p99']:.1f} ms, {latency['p99']:.1f} ms"),
        ("p99 with them, times that without", f"{latency['p99'] / calm_latency['p99']:.1f}"),
        *stages.rows(),
        ("longest gap of a partition: median, longest", f"{gaps[0]:.0f} ms, {gaps[1]:.0f} ms"),
    ]


async def _relieved(cluster: ElasticCluster, admin: AdminClient, small: Path, stages: Stages) -> None:
    async def begun() -> bool:
        return bool((await admin.list_moves(limit=0))["moving"])

    with stages.during(MOVING):
        await admin.balance_settings("on")
        await until(begun, "a plan", 60.0)
        await cluster.settled(admin)
    with stages.during(CLEANING):
        await until(lambda: _is_below(small), f"less than {LOW} %", 300.0)
        await cluster.settled(admin)


async def _is_below(small: Path) -> bool:
    return used_percent(small) < LOW
