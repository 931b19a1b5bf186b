"""The parts of the benchmark: each starts what it needs on a cluster, and returns the rows of a table."""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections import Counter
from collections.abc import Sequence

from benchmarks.driver.measure import percentiles_ms
from benchmarks.subjects.elastic.figures import (
    REST_S,
    STAGES,
    CancelFigure,
    Rows,
    Stages,
    SteadyLoad,
    cancels,
    leaderless_s,
    share_of_pace,
    spread,
)
from benchmarks.subjects.elastic.growing import SHORT_LOOK_S, ElasticCluster, until
from benchmarks.subjects.elastic.load import SteadyProducer, beside, fill, stored
from benchmarks.subjects.partitions import elections_in
from holdfast.client import AdminClient

LOG = "elastic"
REPLICAS = 3
MIB, GIB = 1 << 20, 1 << 30
PACE = 64 * MIB
"""Bytes a second of copies into a node, as it comes (`holdfast cluster settings`)."""

SEED = 51
SETTLE_S = 15.0
"""Pause until leaderships are where they are preferred, and groups rest."""

CANCEL_BYTES = 48 * MIB
"""Bytes of each partition whose move is cancelled: they are copied in the better part of a second."""

SWAPPED, SWAPPED_BYTES = 100, 2 * MIB
LED_WITHIN_S = 60.0


async def create(admin: AdminClient, partitions: int, nodes: Sequence[int] = ()) -> None:
    """Create the log. `nodes`: those that are to keep it."""
    await admin.create_log(LOG, partitions=partitions, replicas=REPLICAS)
    if nodes:
        for partition in range(partitions):
            await admin.reassign_partition(LOG, str(partition), _turned(nodes, partition))


def _turned(nodes: Sequence[int], by: int) -> list[int]:
    """Three of the nodes, another one first each time."""
    return [nodes[(by + place) % len(nodes)] for place in range(REPLICAS)]


# ---- 3 -> 5 -> 3


async def rounds(cluster: ElasticCluster, count: int, partitions: int, rate: int, quiet_s: float) -> Rows:
    """Let two nodes join, spread the log over all five, and let them leave, while clients publish."""
    async with cluster.admin() as admin:
        await create(admin, partitions)
    producer = SteadyProducer(cluster.servers, LOG, partitions, rate)
    quiet = await beside(producer, asyncio.sleep(quiet_s))
    found, took = [], []
    stages = Stages()
    stages.watch(producer.latencies_ns)
    for number in range(count):
        began = time.monotonic()
        found.append(await beside(producer, _there_and_back(cluster, partitions, 4 + 2 * number, stages)))
        took.append(time.monotonic() - began - REST_S)
    verdict = await stored(cluster.servers, LOG, producer.all)
    gaps = spread([gap for one in found for gap in one.longest_gaps_ms().values()])
    quiet_gaps = spread(list(quiet.longest_gaps_ms().values()))
    calm, (resting, moving) = _latency(quiet), stages.rest_and_moves()
    return [
        ("rounds, and the median time of one", f"{count}, {spread(took)[0]:.0f} s"),
        ("events acknowledged", f"{sum(map(len, producer.all.values())):,}"),
        ("between two events of a partition", f"{1000 * partitions / rate:.0f} ms"),
        ("lost, doubled, out of order", f"{verdict.lost}, {verdict.doubled}, {verdict.out_of_order}"),
        ("refused or given up", str(sum(len(one.failed) for one in found))),
        ("longest gap of acknowledgements of a partition: median, longest", f"{gaps[0]:.0f} ms, {gaps[1]:.0f} ms"),
        ("the same without moves", f"{quiet_gaps[0]:.0f} ms, {quiet_gaps[1]:.0f} ms"),
        ("p50 and p99 without moves", f"{calm['p50']:.1f} ms, {calm['p99']:.1f} ms"),
        ("p50 and p99 with moves", f"{moving['p50']:.1f} ms, {moving['p99']:.1f} ms"),
        ("p99 with moves, times that of three nodes at rest", f"{moving['p99'] / calm['p99']:.1f}"),
        ("p99 with moves, times that of five at rest", f"{moving['p99'] / resting['p99']:.1f}"),
        *stages.rows(),
    ]


async def _there_and_back(cluster: ElasticCluster, partitions: int, first: int, stages: Stages) -> None:
    new = [first, first + 1]

    async def join() -> None:
        for node in new:
            await cluster.join(node)

    async def move() -> None:
        async with cluster.admin() as admin:
            for partition in range(partitions):
                await admin.reassign_partition(LOG, str(partition), _turned([1, 2, 3, *new], partition))
            await cluster.settled(admin)

    async def rest() -> None:
        await asyncio.sleep(REST_S)

    async def leave() -> None:
        for node in new:
            await cluster.leave(node)
        async with cluster.admin() as admin:
            await cluster.settled(admin)

    for act, stage in zip((join, move, rest, leave), STAGES, strict=True):
        with stages.during(stage):
            await act()


def _latency(*parts: SteadyLoad) -> dict[str, float]:
    return percentiles_ms(array("q", [one for part in parts for one in part.latencies_ns]))


# ---- emptying a node


async def empty(cluster: ElasticCluster, gib: float, partitions: int = 8) -> Rows:
    """Move all that one node has to one that has nothing."""
    size = int(gib * GIB)
    async with cluster.admin() as admin:
        await create(admin, partitions, [1, 2, 3])
        await cluster.settled(admin)
        await fill(cluster.servers, LOG, partitions, size // partitions)
        began = time.monotonic()
        for partition in range(partitions):
            wished = [4 if node == 3 else node for node in _turned([1, 2, 3], partition)]
            await admin.reassign_partition(LOG, str(partition), wished)
        await cluster.settled(admin)
    seconds = time.monotonic() - began
    share = share_of_pace(size, seconds, PACE)
    return [
        ("moved from one node to another", f"{size / GIB:.2f} GiB in {partitions} partitions"),
        ("time", f"{seconds:.1f} s"),
        ("rate", f"{size / seconds / MIB:.1f} MiB/s"),
        (f"share of the pace of the node that takes it, {PACE // MIB} MiB/s", f"{share:.0%}"),
    ]


# ---- cancels


async def cancel(cluster: ElasticCluster, count: int, partitions: int = 4) -> Rows:
    """Cancel moves at random moments."""
    chance, found = random.Random(SEED), []
    async with cluster.admin() as admin:
        await create(admin, partitions)
        await fill(cluster.servers, LOG, partitions, CANCEL_BYTES)
        for _ in range(count):
            found.append(await _cancel_one(cluster, admin, str(chance.randrange(partitions)), chance))
    return cancels(found)


async def _cancel_one(
    cluster: ElasticCluster, admin: AdminClient, partition: str, chance: random.Random
) -> CancelFigure:
    before = await _replicas(admin, partition)
    coming = next(node for node in (1, 2, 3, 4) if node not in before)
    wished = [*chance.sample(before, REPLICAS - 1), coming]
    await admin.reassign_partition(LOG, partition, wished)
    await asyncio.sleep(chance.uniform(0.0, 1.0))
    began = time.monotonic()
    await admin.cancel_moves(LOG, partition=partition)
    answered = time.monotonic() - began
    began = time.monotonic()
    await cluster.settled(admin, SHORT_LOOK_S)
    in_force = time.monotonic() - began
    return CancelFigure(answered, in_force, await _replicas(admin, partition) == sorted(wished))


async def _replicas(admin: AdminClient, partition: str) -> list[int]:
    found = (await admin.describe_log(LOG))["partitions"]
    return next(sorted(one["replicas"]) for one in found if str(one["partition"]) == partition)


# ---- the loss of a rack

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}


async def rack(cluster: ElasticCluster, partitions: int = SWAPPED) -> Rows:
    """Lose the rack of both who comes and who goes, in the middle of as many swaps."""
    async with cluster.admin() as admin:
        await create(admin, partitions, [1, 2, 3])
        await cluster.settled(admin)
        await fill(cluster.servers, LOG, partitions, SWAPPED_BYTES)
        await asyncio.sleep(SETTLE_S)
        leaders = {str(one["partition"]): one["leader"] for one in (await admin.describe_log(LOG))["partitions"]}
        for partition in range(partitions):
            wished = [4 if node == 1 else node for node in _turned([1, 2, 3], partition)]
            await admin.reassign_partition(LOG, str(partition), wished)
        await until(lambda: _are_done(admin, partitions // 2), "half of the swaps")
    lost_at, sizes = time.time(), {node: cluster.log_path(node).stat().st_size for node in (2, 3, 5, 6)}
    for node in (1, 4):
        cluster.kill(node)
    # A group whose leader was there gets another one; the others keep theirs.
    waited: dict[str, float] = {}
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < SETTLE_S and time.time() - lost_at < LED_WITHIN_S:
        before = len(waited)
        for node, size in sizes.items():
            for group, at in elections_in(cluster.log_path(node), size):
                waited[group] = min(at, waited.get(group, at))
        if len(waited) > before:
            quiet_since = time.monotonic()
        await asyncio.sleep(0.5)
    async with cluster.admin() as admin:
        now = (await admin.describe_log(LOG))["partitions"]
        leaderless = sum(one.get("leader") in (None, 0, 1, 4) for one in now)
    median_s, longest_s = leaderless_s(lost_at, waited)
    return [
        ("swaps under way or done, in one rack", str(partitions)),
        ("partitions that were led there before the swaps", str(Counter(leaders.values())[1])),
        ("groups that got another leader", str(len(waited))),
        ("time without a leader: median, longest", f"{median_s:.2f} s, {longest_s:.2f} s"),
        ("partitions without a leader in the end", str(leaderless)),
    ]


async def _are_done(admin: AdminClient, at_most: int) -> bool:
    return int((await admin.list_moves(limit=0))["moving"]) <= at_most


# ---- many nodes


async def idle(cluster: ElasticCluster, nodes: int, partitions: int, watch_s: float) -> Rows:
    """Measure what nodes use that nobody asks anything of."""
    async with cluster.admin() as admin:
        await create(admin, partitions)
    await asyncio.sleep(2 * SETTLE_S)
    before, began = cluster.cpu_s(), time.monotonic()
    await asyncio.sleep(watch_s)
    cores = (cluster.cpu_s() - before) / (time.monotonic() - began)
    return [
        ("nodes, partitions", f"{nodes}, {partitions:,}"),
        ("all nodes together", f"{cores:.2f} cores"),
        ("a node", f"{cores / nodes:.3f} cores"),
    ]
