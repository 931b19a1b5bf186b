"""Our idempotent producer while leaders are killed and stopped: every acknowledged event stands there exactly once.

The same events are counted as in `test_failover.py`; there, a producer without idempotence is allowed copies.
"""

from __future__ import annotations

import time

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.conftest import number_from
from tests.integration.judges.history import check
from tests.integration.judges.judging import read_partition, wait_resumed
from tests.integration.workloads.holdfast_producer import HoldfastProducer

pytestmark = pytest.mark.cluster

KILLS = number_from("HOLDFAST_KILLS", 2)
PARTITIONS = ("0", "1")
STANDSTILL_S = 3.0


def start_producers(cluster: Cluster, log: str) -> list[HoldfastProducer]:
    addresses = [cluster.address(node) for node in cluster.nodes]
    gateways = [cluster.address(node, "never") for node in cluster.nodes]
    ways = {"0": addresses, "1": gateways}
    producers = [
        HoldfastProducer(ways[partition], log, partition, f"numbered-{partition}", idempotent=True)
        for partition in PARTITIONS
    ]
    for producer in producers:
        producer.begin()
    for producer in producers:
        producer.wait_for(100)
    return producers


def judge(cluster: Cluster, log: str, producers: list[HoldfastProducer]) -> None:
    for partition, producer in zip(PARTITIONS, producers, strict=True):
        sent = producer.finish()
        bodies = [event.body for event in read_partition(cluster, log, partition)]
        assert check(sent, bodies, copies_allowed=()) == 0
        assert bodies == [sent.body(number) for number in range(sent.numbers)], "all of them, in order, once"


@pytest.mark.timeout(300 + 60 * KILLS)
def test_killing_leaders_makes_no_copies(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, len(PARTITIONS))
    producers = start_producers(cluster, log_name)
    for kill in range(KILLS):
        victim = cluster.leaders(log_name)[PARTITIONS[kill % len(PARTITIONS)]]
        cluster.kill(victim)
        killed_s = time.monotonic()
        for producer in producers:
            wait_resumed(producer, killed_s)
        cluster.start(victim)
        for producer in producers:
            producer.wait_for(200)
    judge(cluster, log_name, producers)


def test_a_leader_that_stood_still_makes_no_copies(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, len(PARTITIONS))
    producers = start_producers(cluster, log_name)
    with cluster.paused(cluster.leaders(log_name)["0"]):
        stopped_s = time.monotonic()
        time.sleep(STANDSTILL_S)
    for producer in producers:
        wait_resumed(producer, stopped_s + STANDSTILL_S)
        producer.wait_for(200)
    judge(cluster, log_name, producers)
