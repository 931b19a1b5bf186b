"""Return of a node that many partitions prefer as leader: how fast it gets them back, and what clients notice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from benchmarks.driver.measure import percentiles_ms
from benchmarks.subjects.elastic.figures import Rows, spread
from benchmarks.subjects.elastic.growing import ElasticCluster, until
from benchmarks.subjects.elastic.load import SteadyProducer, beside
from benchmarks.subjects.partitions import elections_in
from holdfast.client import AdminClient

LOADED, MANY = "loaded", "many"
LOADED_PARTITIONS = 12
RETURNING = 3
SETTLE_S = 15.0
QUIET_S = 10.0

Leaders = dict[tuple[str, str], int]


async def returning(cluster: ElasticCluster, partitions: int, rate: int) -> Rows:
    """Kill a node, wait until the others lead everything, and start it again while clients publish."""
    async with cluster.admin() as admin:
        await admin.create_log(LOADED, partitions=LOADED_PARTITIONS, replicas=3)
        await admin.create_log(MANY, partitions=partitions - LOADED_PARTITIONS, replicas=3)
        await asyncio.sleep(SETTLE_S)
        await until(lambda: _are_even(admin), "preferred leaders")
        led_before = Counter((await _leaders(admin)).values())[RETURNING]
        cluster.kill(RETURNING)
        await until(lambda: _leads_nothing(admin), "other leaders")
        await asyncio.sleep(SETTLE_S)
        producer = SteadyProducer(cluster.servers, LOADED, LOADED_PARTITIONS, rate)
        calm = await beside(producer, asyncio.sleep(QUIET_S))
        sizes = {node: cluster.log_path(node).stat().st_size for node in (1, 2, 3)}
        took: list[float] = []
        moving = await beside(producer, _back(cluster, admin, took))
    led = Counter(group for node, size in sizes.items() for group, _ in elections_in(cluster.log_path(node), size))
    gaps, calm_gaps = (spread(list(part.longest_gaps_ms().values())) for part in (moving, calm))
    latency, calm_latency = (percentiles_ms(part.latencies()) for part in (moving, calm))
    return [
        ("partitions, and those that the node leads", f"{partitions}, {led_before}"),
        ("leaders are even, after the node is up", f"{took[0]:.1f} s"),
        ("elections of a group meanwhile, at most", str(max(led.values(), default=0))),
        ("longest gap of a loaded partition: median, longest", f"{gaps[0]:.0f} ms, {gaps[1]:.0f} ms"),
        ("the same before", f"{calm_gaps[0]:.0f} ms, {calm_gaps[1]:.0f} ms"),
        ("p99; before", f"{latency['p99']:.1f} ms; {calm_latency['p99']:.1f} ms"),
        ("refused or given up", str(len(moving.failed))),
    ]


async def _back(cluster: ElasticCluster, admin: AdminClient, took: list[float]) -> None:
    await cluster.restart(RETURNING)
    began = time.monotonic()
    await until(lambda: _are_even(admin), "even leaders")
    took.append(time.monotonic() - began)


async def _leaders(admin: AdminClient) -> Leaders:
    found: Leaders = {}
    for log in (LOADED, MANY):
        for one in (await admin.describe_log(log))["partitions"]:
            found[log, str(one["partition"])] = one.get("leader") or 0
    return found


async def _leads_nothing(admin: AdminClient) -> bool:
    leaders = set((await _leaders(admin)).values())
    return not leaders & {0, RETURNING}


async def _are_even(admin: AdminClient) -> bool:
    """Tell whether all nodes lead as many partitions; of each of both logs one may lead one more."""
    led = Counter((await _leaders(admin)).values())
    return set(led) == {1, 2, 3} and max(led.values()) - min(led.values()) <= 2
