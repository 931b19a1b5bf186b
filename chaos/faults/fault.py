"""Base class of faults, and the scene in which they strike."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from chaos.cluster.cluster import ChaosCluster
from chaos.cluster.proxied import ProxiedCluster


class Aborted(Exception):
    """The run has to end now."""


class CannotStrike(Exception):
    """The target of a fault cannot be found now. Nothing was changed; the history says so, and the run goes on."""


def _nobody() -> str:
    return "no client"


@dataclass
class Scene:
    """The surroundings in which a fault strikes.

    `hold_s`: how long the fault stays in force. `crash_client`: drops a client of the workload in the middle of its
    work, lets another one take its place, and returns its name. `transactional_ids`: those of the workload's writers;
    empty if it has no transactions."""

    cluster: ChaosCluster
    log: str
    chance: random.Random
    hold_s: float
    crash_client: Callable[[], str] = _nobody
    transactional_ids: Sequence[str] = ()
    over: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float) -> None:
        if self.over.wait(seconds):
            raise Aborted

    @property
    def own(self) -> ProxiedCluster:
        """The cluster, if the run itself has started it, with faulty disks, clocks and ZooKeeper.

        Other clusters are refused earlier for faults that need these (`catalogue.check_where`)."""
        if not isinstance(self.cluster, ProxiedCluster):
            raise CannotStrike("the nodes of this cluster are not the run's own")
        return self.cluster

    # ---------------------------------------------------------------- whom

    @property
    def nodes(self) -> list[int]:
        return sorted(self.cluster.nodes)

    def leader(self) -> int:
        """Draw the leader of a random partition; if no partition has a leader, any node."""
        leaders = self.cluster.leaders(self.log)
        drawn = self.chance.random()  # the same number of draws, whoever leads
        others = self.nodes
        return leaders[sorted(leaders)[int(drawn * len(leaders))]] if leaders else others[int(drawn * len(others))]

    def follower(self) -> int:
        """Draw a node that is not `leader()`."""
        leader = self.leader()
        return self.chance.choice([node for node in self.nodes if node != leader])

    def coordinator(self) -> int:
        """Return the node that leads the coordinators of most of the workload's transactional ids now.

        If several lead as many, the one of the first id wins. Nothing is drawn. Raises CannotStrike if no node can
        tell.
        """
        led = self.cluster.coordinators(self.transactional_ids)
        if not led:
            raise CannotStrike(f"nobody could say who decides for {', '.join(self.transactional_ids) or 'no id'}")
        return Counter(led.values()).most_common(1)[0][0]

    def one(self, whom: str) -> int:
        if whom == "coordinator":
            return self.coordinator()
        if whom == "leader":
            return self.leader()
        return self.follower() if whom == "follower" else self.chance.choice(self.nodes)

    def some(self, count: int) -> list[int]:
        return sorted(self.chance.sample(self.nodes, count))

    @property
    def minority(self) -> int:
        """The most nodes that a majority can do without."""
        return (len(self.nodes) - 1) // 2


class Fault(ABC):
    """One kind of fault. `strike` returns a block; inside it the fault is in force, and its value names the target."""

    id: str
    leaves_majority = True
    heals = 0
    """Faults that strike together heal in the order of this number: links first, for a node that starts needs them."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Short description for people."""

    @abstractmethod
    def strike(self, scene: Scene) -> AbstractContextManager[str]: ...


def named(nodes: list[int]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else "nodes " + ", ".join(map(str, nodes))
