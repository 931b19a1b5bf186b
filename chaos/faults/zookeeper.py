"""Faults F14: failures of ZooKeeper, by which nodes find each other. Nodes can serve data without it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from chaos.cluster.registrations import unanswered
from chaos.cluster.zookeeper import Ensemble, end_session
from chaos.faults.fault import CannotStrike, Fault, Scene, named
from chaos.faults.network import How, cut
from chaos.faults.processes import Whom


def ensemble_of(scene: Scene) -> Ensemble:
    if scene.own.ensemble is None:
        raise CannotStrike("the nodes of this cluster find each other without ZooKeeper")
    return scene.own.ensemble


@dataclass
class KillZooKeeper(Fault):
    """SIGKILL of the ensemble's leader, or of all its servers; they start again afterwards."""

    whom: Literal["leader", "all"] = "leader"
    id: str = "F14"

    @property
    def kind(self) -> str:
        return "kill ZooKeeper's leader" if self.whom == "leader" else "kill all of ZooKeeper"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        ensemble = ensemble_of(scene)
        ensemble.start()  # a server that ended by itself is not part of this fault
        servers = [ensemble.leader()] if self.whom == "leader" else ensemble.servers
        try:
            for server in servers:
                server.kill()
            yield ", ".join(server.directory.name for server in servers)
        finally:
            ensemble.start()


@dataclass
class CutFromZooKeeper(Fault):
    """A node that reaches all but ZooKeeper."""

    whom: Whom = "any"
    how: How = "swallow"
    id: str = "F14"

    @property
    def kind(self) -> str:
        return f"cut {self.whom} off from ZooKeeper ({self.how})"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        ensemble_of(scene)
        node = scene.one(self.whom)
        with cut(scene, scene.cluster.links.to_zookeeper(node), self.how):
            yield named([node])


@dataclass
class EndSessions(Fault):
    """End of the ZooKeeper session of one node, or of each; their registrations go with it."""

    whom: Literal["one", "all"] = "one"
    id: str = "F14"

    @property
    def kind(self) -> str:
        return f"end the ZooKeeper session of {self.whom}"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        ensemble = ensemble_of(scene)
        try:
            sessions = scene.own.registered()
        except unanswered() as error:
            raise CannotStrike(f"ZooKeeper does not answer: {type(error).__name__}") from error
        if not sessions:
            raise CannotStrike("no node is registered in ZooKeeper")
        nodes = sorted(sessions) if self.whom == "all" else [scene.chance.choice(sorted(sessions))]
        ended = [node for node in nodes if end_session(ensemble.address, sessions[node])]
        yield named(ended) if ended else "nobody: the sessions had ended by themselves"
