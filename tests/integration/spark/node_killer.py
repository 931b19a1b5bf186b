"""Nodes are killed, one after the other, while Spark works."""

from __future__ import annotations

import random
import time

from tests.integration.clusters.cluster import Cluster

KILL_EVERY_S = 10.0


class NodeKiller:
    """Kills a node and starts it again, when it is asked and so long after the last one. `most` None: as often as it is
    asked."""

    def __init__(self, cluster: Cluster, most: int | None) -> None:
        self.killed: list[int] = []
        self._cluster, self._most = cluster, most
        self._chance = random.Random(len(cluster.nodes))
        self._last_s = 0.0

    def turn(self) -> None:
        """If it is time."""
        if len(self.killed) == self._most or time.monotonic() < self._last_s + KILL_EVERY_S:
            return
        self._last_s = time.monotonic()
        self.kill(self._chance.choice(self._cluster.running))

    def kill(self, victim: int) -> None:
        """This one, now."""
        self.killed.append(victim)
        self._cluster.kill(victim)
        self._cluster.start(victim)
