"""Faults drawn at random, one after the other, under load: what no scenario above thought of.

The draw is seeded; a failure shows the seed, and HOLDFAST_SEED replays the same faults (their timing is the machine's).
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable

import pytest

from tests.integration.clusters.cluster import Cluster
from tests.integration.conftest import number_from
from tests.integration.judges.judging import judge, read_partition, wait_resumed
from tests.integration.workloads.consumers import HoldfastConsumer, ResumingConsumer
from tests.integration.workloads.holdfast_producer import HoldfastProducer
from tests.integration.workloads.producers import OrderedProducer

pytestmark = pytest.mark.cluster

FAULTS = number_from("HOLDFAST_FAULTS", 4)
PARTITIONS = 4  # one for each kind of producer
SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))


class Faults:
    def __init__(self, cluster: Cluster, log: str, chance: random.Random) -> None:
        self.cluster, self._log, self._chance = cluster, log, chance
        self.all: list[Callable[[], None]] = [
            self.kill_leader,
            self.kill_one,
            self.kill_two,
            self.kill_all,
            self.kill_again_while_it_starts,
            self.stop_one,
            self.pause_leader,
            self.pause_two,
            self.pause_all,
            self.kill_one_pause_another,
        ]

    def _some(self, count: int) -> list[int]:
        return self._chance.sample(sorted(self.cluster.nodes), count)

    def _leader(self) -> int:
        return self.cluster.leaders(self._log)[str(self._chance.randrange(PARTITIONS))]

    def _wait(self, longest_s: float) -> None:
        time.sleep(self._chance.uniform(0.0, longest_s))

    def _kill(self, *nodes: int) -> None:
        self.cluster.kill(*nodes)
        self._wait(2.0)
        self.cluster.start(*nodes)

    def kill_leader(self) -> None:
        self._kill(self._leader())

    def kill_one(self) -> None:
        self._kill(*self._some(1))

    def kill_two(self) -> None:
        self._kill(*self._some(2))

    def kill_all(self) -> None:
        self._kill(*self.cluster.nodes)

    def kill_again_while_it_starts(self) -> None:
        """Its first deeds after a start are interrupted, several times."""
        node = self._leader()
        self.cluster.kill(node)
        for _ in range(3):
            self.cluster.start(node, wait=False)
            self._wait(1.0)
            self.cluster.kill(node)
        self.cluster.start(node)

    def stop_one(self) -> None:
        node = self._some(1)[0]
        self.cluster.stop(node)
        self._wait(1.0)
        self.cluster.start(node)

    def pause_leader(self) -> None:
        with self.cluster.paused(self._leader()):
            self._wait(3.0)

    def pause_two(self) -> None:
        one, two = self._some(2)
        with self.cluster.paused(one), self.cluster.paused(two):
            self._wait(3.0)

    def pause_all(self) -> None:
        with contextlib.ExitStack() as paused:
            for node in self.cluster.nodes:
                paused.enter_context(self.cluster.paused(node))
            self._wait(3.0)

    def kill_one_pause_another(self) -> None:
        one, two = self._some(2)
        with self.cluster.paused(two):
            self.cluster.kill(one)
            self._wait(2.0)
        self.cluster.start(one)


@pytest.mark.early
@pytest.mark.timeout(360 + 60 * FAULTS)
@pytest.mark.parametrize("durability", ["fsync", "replicated"] if "HOLDFAST_FAULTS" in os.environ else ["fsync"])
def test_random_faults_lose_nothing(make_cluster: Callable[..., Cluster], log_name: str, durability: str) -> None:
    print(f"HOLDFAST_SEED={SEED}")
    chance = random.Random(f"{SEED} {durability}")
    cluster = make_cluster(durability=durability)
    cluster.start()
    cluster.create(log_name, PARTITIONS)
    everywhere = [cluster.address(node) for node in cluster.nodes]
    gateways = [cluster.address(node, "never") for node in cluster.nodes]
    producers = [
        OrderedProducer(everywhere, log_name, "0", "redirected", window=1500, padding=500).begin(),
        OrderedProducer(gateways, log_name, "1", "gateway", window=1500).begin(),
        HoldfastProducer(everywhere, log_name, "2", "holdfast").begin(),
        HoldfastProducer(gateways, log_name, "3", "numbered", idempotent=True).begin(),
    ]
    consumers = [
        ResumingConsumer(gateways, log_name, "0").begin(),
        ResumingConsumer(everywhere, log_name, "1").begin(),
        HoldfastConsumer(everywhere, log_name, "2").begin(),
        HoldfastConsumer(gateways, log_name, "3").begin(),
    ]
    for producer in producers:
        producer.wait_for(100)
    faults = Faults(cluster, log_name, chance)
    # Each kind once before any comes again.
    for number in range(FAULTS):
        if number % len(faults.all) == 0:
            drawn = chance.sample(faults.all, len(faults.all))
        fault = drawn[number % len(drawn)]
        print(f"{time.strftime('%H:%M:%S')} {fault.__name__}")
        fault()
        over_s = time.monotonic()
        for producer in producers:
            wait_resumed(producer, over_s)
    judge(cluster, log_name, producers)
    for partition, consumer in enumerate(consumers):
        stored = [event.body for event in read_partition(cluster, log_name, str(partition))]
        assert consumer.wait_for(len(stored)) == stored, f"partition {partition}"
