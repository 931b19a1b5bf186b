"""What every fault is, and what it finds when it strikes."""

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
    """The run is to end now."""


class CannotStrike(Exception):
    """Whom the fault is for cannot be found now. Nothing was done; the history says so, and the run goes on."""


def _nobody() -> str:
    return "no client"


@dataclass
class Scene:
    """Where a fault strikes. `hold_s`: how long it will be in force. `crash_client`: of the workload, one of its
    clients is thrown away in the middle of its work, and another one takes its place; who it was. `transactional_ids`:
    of its writers; empty for a workload without transactions."""

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
        """The cluster as one that the run has started for itself, with disks, clocks and a ZooKeeper on order. Faults
        that need them are refused where it is another one (`catalogue.check_where`)."""
        if not isinstance(self.cluster, ProxiedCluster):
            raise CannotStrike("the nodes of this cluster are not the run's own")
        return self.cluster

    # ---------------------------------------------------------------- whom

    @property
    def nodes(self) -> list[int]:
        return sorted(self.cluster.nodes)

    def leader(self) -> int:
        """Of a partition by chance; where nobody leads one, any node."""
        leaders = self.cluster.leaders(self.log)
        drawn = self.chance.random()  # the same number of draws, whoever leads
        others = self.nodes
        return leaders[sorted(leaders)[int(drawn * len(leaders))]] if leaders else others[int(drawn * len(others))]

    def follower(self) -> int:
        """Who leads no more partitions than need be: one that is not `leader()`."""
        leader = self.leader()
        return self.chance.choice([node for node in self.nodes if node != leader])

    def coordinator(self) -> int:
        """Who leads the coordinators of most of the workload's transactional ids, by the cluster's word at this moment;
        of several the one whose id comes first. No draw: whom "the coordinator" means is not chance's to say."""
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
    """`strike` gives a block that is entered when the fault is in force, with the word of whom it struck."""

    id: str
    leaves_majority = True
    heals = 0
    """Faults that strike together heal in the order of this number: links first, for a node that starts needs them."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """A word or two, for people."""

    @abstractmethod
    def strike(self, scene: Scene) -> AbstractContextManager[str]: ...


def named(nodes: list[int]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else "nodes " + ", ".join(map(str, nodes))
