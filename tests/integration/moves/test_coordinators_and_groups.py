"""Coordinators of transactions move under transactions, and consumer groups go on where their partitions went."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from holdfast.client import ConsumerClient, ConsumerOptions, Start
from tests.integration.clusters.cluster import READY_WITHIN_S, Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.moves.moving import reassign, replicas, wait_settled
from tests.integration.transactions.transactor import ScriptedTransactor
from tests.integration.workloads.holdfast_producer import HoldfastProducer

pytestmark = pytest.mark.cluster

SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))
COORDINATORS = "$transactions"
NODES = 4
PARTITIONS = 2
WRITERS = 3
ENOUGH = 10
"""Transactions that each writer commits before the test ends, however fast replicas move."""


def committed(writer: ScriptedTransactor) -> int:
    return sum(one.outcome == "committed" for one in writer.attempts)


@pytest.mark.timeout(400)
def test_coordinators_move_under_transactions(make_cluster: Callable[..., Cluster]) -> None:
    """From three nodes to three others and back, to one, and to three again; a node that loses its replicas, too."""
    print(f"HOLDFAST_SEED={SEED}")
    chance = random.Random(SEED)
    cluster = make_cluster(nodes=NODES)
    cluster.start()
    log = cluster.create("trades", PARTITIONS)
    writers = [ScriptedTransactor(cluster, log, PARTITIONS, f"writer{number}") for number in range(WRITERS)]

    async def write(transactor: ScriptedTransactor, until: asyncio.Event) -> None:
        number = 0
        while not until.is_set() or committed(transactor) <= ENOUGH:
            number += 1
            await transactor.one(1 + number % NODES, commit=number % 4 != 0)

    async def move() -> None:
        count = len(replicas(cluster, COORDINATORS))
        for _ in range(2):
            for number in range(count):
                reassign(cluster, COORDINATORS, str(number), chance.sample(range(1, NODES + 1), 3))
                reassign(cluster, log, str(number % PARTITIONS), chance.sample(range(1, NODES + 1), 3))
            await asyncio.to_thread(wait_settled, cluster)
        for size in (1, 3):
            cluster.call(lambda admin, size=size: admin.alter_log(COORDINATORS, replicas=size))  # type: ignore[misc]
            await asyncio.to_thread(wait_settled, cluster)
            assert {len(nodes) for nodes in replicas(cluster, COORDINATORS).values()} == {size}

    async def story() -> None:
        for writer in writers:
            assert (await writer.one(1)).outcome == "committed"
        over = asyncio.Event()
        writing = [asyncio.create_task(write(writer, over)) for writer in writers]
        await move()
        over.set()
        await asyncio.gather(*writing)
        for writer in writers:
            for _ in range(40):  # the first learns what became of one that is in doubt
                if (await writer.one(1)).outcome == "committed":
                    break
            assert committed(writer) > ENOUGH
        seen = await writers[0].read(2)
        for writer in writers:
            own = [[name for name in partition if name.startswith(f"{writer.transactional_id}-")] for partition in seen]
            writer.judge(own)

    asyncio.run(story())


@pytest.mark.timeout(300)
def test_a_consumer_group_goes_on_where_its_partitions_went(
    make_cluster: Callable[..., Cluster], log_name: str
) -> None:
    cluster = make_cluster(nodes=NODES)
    cluster.start()
    log = cluster.create(log_name, PARTITIONS)
    producers = [
        HoldfastProducer(cluster.addresses, log, str(number), f"p{number}", idempotent=True).begin()
        for number in range(PARTITIONS)
    ]
    got: dict[str, list[str]] = {str(number): [] for number in range(PARTITIONS)}

    async def consume(over: asyncio.Event) -> None:
        options = ConsumerOptions(reconnect_timeout_s=READY_WITHIN_S)
        async with ConsumerClient(cluster.addresses, log, group="g", start=Start.earliest(), options=options) as member:
            while not over.is_set():
                events = await member.receive(max_events=100, timeout_s=0.5)
                for event in events:
                    got[event.partition].append(event.offset)
                if events:
                    await member.commit(events[-1])

    async def story() -> None:
        over = asyncio.Event()
        consuming = asyncio.create_task(consume(over))
        for _ in range(3):
            for number in range(PARTITIONS):
                at = replicas(cluster, log)[str(number)]
                coming = next(node for node in cluster.nodes if node not in at)
                reassign(cluster, log, str(number), [coming, *at[:2]])
            await asyncio.to_thread(wait_settled, cluster)
        for producer in producers:
            await asyncio.to_thread(producer.finish)
        expected = {partition: info.details["events"] for partition, info in cluster.info(log).items()}
        await asyncio.to_thread(
            wait_until, lambda: {p: len(set(found)) for p, found in got.items()} == expected, f"all of {expected}"
        )
        over.set()
        await consuming

    asyncio.run(story())
    for offsets in got.values():
        assert offsets == sorted(offsets), "it never went back: commits moved with the partitions"
