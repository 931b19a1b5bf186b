"""kill -9 under load: of leaders, of all nodes at once, and a node that merely stands still for a while.

Three kinds of clients produce at the same time, each into its own partition: stock proton following redirects, stock
proton through gateways, and our own client. What they saw is then held against what the log holds (`history.check`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.integration.clusters.cluster import Cluster, wait_until
from tests.integration.conftest import number_from
from tests.integration.judges.history import check
from tests.integration.judges.judging import (
    KINDS,
    Producer,
    judge,
    percentiles,
    read_partition,
    start_producers,
    wait_resumed,
)

pytestmark = pytest.mark.cluster

KILLS = number_from("HOLDFAST_KILLS", 2)

PAUSE_S = 3.0


@pytest.mark.timeout(300 + 60 * KILLS)
def test_killing_leaders_loses_nothing(own_cluster: Cluster, log_name: str, measured: Any) -> None:
    cluster = own_cluster
    cluster.create(log_name, len(KINDS))
    producers = start_producers(cluster, log_name)
    gaps_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for kill in range(KILLS):
        aimed_at = kill % len(KINDS)
        leaders = cluster.leaders(log_name)
        victim = leaders[str(aimed_at)]
        killing_s = time.monotonic()
        cluster.kill(victim)
        killed_s = time.monotonic()
        for number, producer in enumerate(producers):
            gap_s = wait_resumed(producer, killed_s) + killed_s - killing_s
            if leaders[str(number)] == victim:
                gaps_s[KINDS[number]].append(gap_s)
        cluster.start(victim)
        for producer in producers:
            producer.wait_for(200)
    judge(cluster, log_name, producers)
    for kind, gaps in gaps_s.items():
        if gaps:
            measured(f"kill -9 of the leader to the next acknowledgement, {kind}: {percentiles(gaps)}")


@pytest.mark.parametrize("durability", ["fsync", "replicated"])
def test_killing_all_nodes_at_once_loses_nothing(
    make_cluster: Callable[..., Cluster], log_name: str, durability: str
) -> None:
    """Processes die, the machine lives: also what is only in its page cache is there afterwards."""
    cluster = make_cluster(durability=durability)
    cluster.start()
    cluster.create(log_name, len(KINDS))
    producers = start_producers(cluster, log_name)
    for _ in range(2):
        cluster.kill(*cluster.nodes)
        killed_s = time.monotonic()
        cluster.start()
        for producer in producers:
            wait_resumed(producer, killed_s)
            producer.wait_for(200)
    judge(cluster, log_name, producers)


def test_a_cluster_that_was_killed_and_left_alone_has_every_event(own_cluster: Cluster, log_name: str) -> None:
    """No producer comes back to mend anything: what was acknowledged is on the disks."""
    cluster = own_cluster
    cluster.create(log_name, len(KINDS))
    producers = start_producers(cluster, log_name)
    for producer in producers:
        producer.wait_for(500)
    acknowledged = [set(producer.sent.acknowledged) for producer in producers]
    sent = [producer.sent for producer in producers]
    cluster.kill(*cluster.nodes)
    abandon(producers)
    cluster.start()
    cluster.wait_led(log_name)
    for number, before in enumerate(acknowledged):
        bodies = [event.body for event in read_partition(cluster, log_name, str(number))]
        sent[number].acknowledged = before | sent[number].acknowledged
        check(sent[number], bodies)


def abandon(producers: Iterable[Producer]) -> None:
    """They never come back."""
    for producer in producers:
        producer.abandon()


def test_a_leader_that_stands_still_is_replaced_and_comes_back(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, len(KINDS))
    producers = start_producers(cluster, log_name)
    for partition in ("0", "1"):
        victim = cluster.leaders(log_name)[partition]
        with cluster.paused(victim):
            paused_at_s = time.monotonic()
            elsewhere = [cluster.address(node) for node in cluster.nodes if node != victim]
            wait_new_leader(cluster, log_name, partition, victim, elsewhere)
            for producer in producers:
                wait_resumed(producer, paused_at_s)
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - paused_at_s)))
        continued_at_s = time.monotonic()
        for producer in producers:
            wait_resumed(producer, continued_at_s)
            producer.wait_for(200)
    judge(cluster, log_name, producers)


def wait_new_leader(cluster: Cluster, log: str, partition: str, old: int, servers: list[str]) -> None:
    def found() -> bool:
        described = cluster.call(lambda admin: admin.describe_log(log), servers)
        leader = {entry["partition"]: entry["leader"] for entry in described["partitions"]}[partition]
        return leader not in (None, old)

    wait_until(found, f"a leader of partition {partition} other than node {old}, which stands still")


def test_a_follower_that_stands_still_is_not_missed(own_cluster: Cluster, log_name: str) -> None:
    cluster = own_cluster
    cluster.create(log_name, len(KINDS))
    leaders = cluster.leaders(log_name)
    follower = next(node for node in cluster.nodes if node != leaders["0"])
    producers = start_producers(cluster, log_name)
    with cluster.paused(follower):
        paused_at_s = time.monotonic()
        while time.monotonic() < paused_at_s + PAUSE_S:
            producers[0].wait_for(20)
    for producer in producers:
        producer.wait_for(200)
    judge(cluster, log_name, producers)
