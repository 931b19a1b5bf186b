"""Power is lost again and again, of one node, of several one after the other, of all at once, while producers work.

The disks are on order (chaos/disk): of what a node has not synced, bytes and names, each loss keeps what chance will
have. What was acknowledged is there afterwards, once, in its order. The draw is seeded; a failure shows the seed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.disk import FaultyDisk, LostWrites
from tests.disks import disk_on_order
from tests.integration.clusters.cluster import READY_WITHIN_S, Cluster
from tests.integration.conftest import number_from
from tests.integration.judges.judging import judge, wait_resumed
from tests.integration.workloads.holdfast_producer import HoldfastProducer

pytestmark = pytest.mark.cluster

POWER_LOSSES = number_from("HOLDFAST_POWER_LOSSES", 4)
"""Each strikes one node or more."""
SEED = number_from("HOLDFAST_SEED", random.SystemRandom().randrange(1 << 32))
NODES = (1, 2, 3)
LONGEST_WAIT_S = 1.0
PATIENCE_S = 300.0
"""Of producers, while no majority is there: a start takes its time on a busy machine."""
PER_SECOND = 300
"""Each start reads what was written since the last flush of a table, and each loss of power rewrites the disk."""


class Grid:
    """What the nodes are plugged into."""

    def __init__(self, cluster: Cluster, disks: dict[int, FaultyDisk], chance: random.Random) -> None:
        self._cluster, self._disks, self._chance = cluster, disks, chance
        self.losses: list[LostWrites] = []
        self.all: list[Callable[[], None]] = [
            self.one, self.all_at_once, self.one_after_the_other, self.one_while_it_starts, self.two, self.one_twice,
        ]  # fmt: skip

    def _wait(self) -> None:
        time.sleep(self._chance.uniform(0.0, LONGEST_WAIT_S))

    def _lose(self, *nodes: int) -> None:
        self._cluster.kill(*nodes)
        for node in nodes:
            self.losses.append(self._disks[node].lose_power(self._chance))

    def _some(self, count: int) -> list[int]:
        return self._chance.sample(NODES, count)

    def one(self) -> None:
        (node,) = self._some(1)
        self._lose(node)
        self._wait()
        self._cluster.start(node)

    def two(self) -> None:
        nodes = self._some(2)
        self._lose(*nodes)
        self._wait()
        self._cluster.start(*nodes)

    def all_at_once(self) -> None:
        self._lose(*NODES)
        self._cluster.start()

    def one_after_the_other(self) -> None:
        """Before the one is back the next is gone."""
        for node in self._some(3):
            self._lose(node)
            self._wait()
            self._cluster.start(node, wait=False)
            self._wait()
        for node in NODES:
            self._cluster.wait_ready(node)

    def one_while_it_starts(self) -> None:
        (node,) = self._some(1)
        self._lose(node)
        for _ in range(3):
            self._cluster.start(node, wait=False)
            self._wait()
            self._lose(node)
        self._cluster.start(node)

    def one_twice(self) -> None:
        """As soon as it serves it goes again."""
        (node,) = self._some(1)
        for _ in range(2):
            self._lose(node)
            self._cluster.start(node)


@pytest.mark.early
@pytest.mark.timeout(360 + 60 * POWER_LOSSES)
def test_no_loss_of_power_loses_or_doubles_what_was_acknowledged(
    make_cluster: Callable[..., Cluster], log_name: str, tmp_path: Path
) -> None:
    print(f"HOLDFAST_SEED={SEED}")
    chance = random.Random(SEED)
    disks = {node: disk_on_order(tmp_path / f"disk{node}") for node in NODES}
    cluster = make_cluster(disks=disks)
    cluster.start()
    cluster.create(log_name, 4)
    everywhere = [cluster.address(node) for node in cluster.nodes]
    gateways = [cluster.address(node, "never") for node in cluster.nodes]
    producers = [
        HoldfastProducer(
            servers, log_name, str(number), f"p{number}",
            per_second=PER_SECOND, idempotent=True, patience_s=PATIENCE_S,
        ).begin()
        for number, servers in enumerate((everywhere, gateways, everywhere, gateways))
    ]  # fmt: skip
    for producer in producers:
        producer.wait_for(100, within_s=READY_WITHIN_S)
    grid = Grid(cluster, disks, chance)
    for number in range(POWER_LOSSES):
        if number % len(grid.all) == 0:
            drawn = chance.sample(grid.all, len(grid.all))
        kind = drawn[number % len(drawn)]
        print(f"{time.strftime('%H:%M:%S')} {kind.__name__}")
        kind()
        over_s = time.monotonic()
        for producer in producers:
            wait_resumed(producer, over_s)
    judge(cluster, log_name, producers)
    undone = [loss for loss in grid.losses if loss.sectors or loss.names]
    print(f"{len(grid.losses)} nodes lost power, {len(undone)} of them something: {grid.losses}")
    assert undone, "nothing was lost that was not synced: this proves nothing"
