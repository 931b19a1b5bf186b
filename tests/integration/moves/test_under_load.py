"""Partitions go to and fro under load, and nodes die meanwhile: nothing is lost, doubled or out of order.

The draw is seeded; a failure shows the seed, and HOLDFAST_SEED replays the same moves (their timing is the machine's).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.conftest import number_from
from tests.integration.judges.judging import Producer, judge, read_partition, wait_resumed
from tests.integration.moves.moving import moves, reassign, replicas, wait_settled
from tests.integration.workloads.consumers import HoldfastConsumer, ResumingConsumer
from tests.integration.workloads.holdfast_producer import HoldfastProducer
from tests.integration.workloads.producers import OrderedProducer

pytestmark = pytest.mark.cluster

ROUNDS = number_from("HOLDFAST_MOVES", 3)
SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))
NODES = 5
PARTITIONS = 4


class Load:
    """A producer and a consumer of each kind, on partitions that move."""

    def __init__(self, cluster: Cluster, log: str) -> None:
        self.cluster, self._log = cluster, log
        everywhere = [cluster.address(node) for node in cluster.nodes]
        gateways = [cluster.address(node, "never") for node in cluster.nodes]
        self.producers: list[Producer] = [
            OrderedProducer(everywhere, log, "0", "redirected", padding=500).begin(),
            OrderedProducer(gateways, log, "1", "gateway").begin(),
            HoldfastProducer(everywhere, log, "2", "numbered", idempotent=True).begin(),
            HoldfastProducer(gateways, log, "3", "holdfast", idempotent=True).begin(),
        ]
        self._consumers: list[ResumingConsumer | HoldfastConsumer] = [
            ResumingConsumer(gateways, log, "0").begin(),
            ResumingConsumer(everywhere, log, "1").begin(),
            HoldfastConsumer(everywhere, log, "2").begin(),
            HoldfastConsumer(gateways, log, "3").begin(),
        ]
        for producer in self.producers:
            producer.wait_for(100)

    def resumed(self) -> None:
        """Every producer has been answered an event that it sent after this."""
        now_s = time.monotonic()
        for producer in self.producers:
            wait_resumed(producer, now_s)

    def judge(self) -> None:
        judge(self.cluster, self._log, self.producers)
        for partition, consumer in enumerate(self._consumers):
            stored = [event.body for event in read_partition(self.cluster, self._log, str(partition))]
            assert consumer.wait_for(len(stored)) == stored, f"partition {partition}"


def _loaded(make_cluster: Callable[..., Cluster], log: str, replicas: int = 3) -> tuple[Cluster, Load, random.Random]:
    print(f"HOLDFAST_SEED={SEED}")
    cluster = make_cluster(nodes=NODES)
    cluster.start()
    cluster.create(log, PARTITIONS, replicas)
    return cluster, Load(cluster, log), random.Random(SEED)


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_partitions_that_move_to_and_fro_lose_nothing(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster, load, chance = _loaded(make_cluster, log_name)
    for _ in range(ROUNDS):
        wished = {str(number): chance.sample(range(1, NODES + 1), 3) for number in range(PARTITIONS)}
        for partition, nodes in wished.items():
            reassign(cluster, log_name, partition, nodes)
        wait_settled(cluster)
        found = cluster.describe(log_name)["partitions"]
        assert {one["partition"]: one["replicas"] for one in found} == {p: sorted(n) for p, n in wished.items()}
        assert {one["partition"]: one["preferred"] for one in found} == {p: n[0] for p, n in wished.items()}
        load.resumed()
    load.judge()


@pytest.mark.timeout(600)
def test_nodes_that_die_amid_moves_lose_nothing(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    """The leader, the node that comes, the one that leaves, the leader of the metadata, all at once."""
    cluster, load, chance = _loaded(make_cluster, log_name)

    def victims(kind: str) -> list[int]:
        if kind == "all":
            return list(cluster.nodes)
        if kind == "metadata":
            return [cluster.call(lambda admin: admin.cluster_status())["metadata"]["leader"] or 1]
        if kind == "leader":
            return [cluster.leaders(log_name)[chance.choice("0123")]]
        told = moves(cluster) or {"moves": []}
        found = [one[kind] for one in told["moves"] if one[kind] is not None]
        return [chance.choice(found)] if found else [chance.randint(1, NODES)]

    kinds = ["leader", "add", "remove", "metadata", "all"]
    for kind in chance.sample(kinds, len(kinds)):
        wished = {str(number): chance.sample(range(1, NODES + 1), 3) for number in range(PARTITIONS)}
        for partition, nodes in wished.items():
            reassign(cluster, log_name, partition, nodes)
        time.sleep(chance.uniform(0.0, 0.3))
        dead = victims(kind)
        print(f"{time.strftime('%H:%M:%S')} kill -9 of {kind}: {dead}")
        cluster.kill(*dead)
        time.sleep(chance.uniform(0.0, 1.0))
        cluster.start(*dead)
        wait_settled(cluster)
        assert replicas(cluster, log_name) == {partition: sorted(nodes) for partition, nodes in wished.items()}
        load.resumed()
    load.judge()


@pytest.mark.timeout(400)
def test_more_and_fewer_replicas_while_a_log_is_used(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster, load, _ = _loaded(make_cluster, log_name, replicas=1)
    for count in (3, 2, 5, 1):
        cluster.call(lambda admin, count=count: admin.alter_log(log_name, replicas=count))  # type: ignore[misc]
        wait_settled(cluster)
        assert {len(nodes) for nodes in replicas(cluster, log_name).values()} == {count}
        load.resumed()
    load.judge()


@pytest.mark.timeout(220 + 60 * ROUNDS)
def test_moves_that_are_cancelled_at_any_moment(make_cluster: Callable[..., Cluster], log_name: str) -> None:
    cluster, load, chance = _loaded(make_cluster, log_name)
    for _ in range(4 * ROUNDS):
        partition, before = chance.choice("0123"), replicas(cluster, log_name)
        wished = chance.sample(range(1, NODES + 1), 3)
        reassign(cluster, log_name, partition, wished)
        time.sleep(chance.uniform(0.0, 0.4))
        cluster.call(lambda admin, partition=partition: admin.cancel_moves(log_name, partition=partition))  # type: ignore[misc]
        wait_settled(cluster)
        found = replicas(cluster, log_name)
        assert len(found[partition]) == 3
        assert set(found[partition]) <= set(before[partition]) | set(wished)
        load.resumed()
    load.judge()
