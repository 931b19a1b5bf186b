"""Faults F1, F2, F13, F16 and F18: processes are killed, paused or restarted, and leaderships move."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from chaos.faults.fault import Fault, Scene, named
from holdfast.client import HoldfastError

NEXT_WITHIN_S = 15.0
"""Longest time that a rolling restart waits for one node before it goes on."""

Whom = Literal["leader", "follower", "coordinator", "any", "minority", "majority", "all"]


def chosen(scene: Scene, whom: Whom) -> list[int]:
    if whom == "all":
        return scene.nodes
    if whom == "majority":
        return scene.some(len(scene.nodes) - scene.minority)
    return scene.some(scene.minority) if whom == "minority" else [scene.one(whom)]


@dataclass
class Kill(Fault):
    """SIGKILL of one or more nodes; they start again afterwards."""

    whom: Whom = "leader"
    id: str = "F1"
    heals = 1

    @property
    def kind(self) -> str:
        return f"kill {self.whom}"

    @property
    def leaves_majority(self) -> bool:  # type: ignore[override]
        return self.whom not in ("majority", "all")

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        nodes = chosen(scene, self.whom)
        scene.cluster.kill(*nodes)
        try:
            yield named(nodes)
        finally:
            scene.cluster.spawn(*nodes)


@dataclass
class Pause(Fault):
    """SIGSTOP of one or more nodes: their connections live on, they are silent, and do not notice the time."""

    whom: Whom = "leader"
    id: str = "F2"
    heals = 1

    @property
    def kind(self) -> str:
        return f"pause {self.whom}"

    @property
    def leaves_majority(self) -> bool:  # type: ignore[override]
        return self.whom not in ("majority", "all")

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        nodes = chosen(scene, self.whom)
        try:
            for node in nodes:
                scene.cluster.nodes[node].pause()
            yield named(nodes)
        finally:
            for node in nodes:
                scene.cluster.nodes[node].resume()


@dataclass
class HandOver(Fault):
    """A node that moves all its leaderships to others under load, and may lead again afterwards.

    It moves all of them since no command moves a single one."""

    whom: Whom = "leader"
    id: str = "F13"

    @property
    def kind(self) -> str:
        return "leadership transfer" + (" of coordinators" if self.whom == "coordinator" else "")

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.one(self.whom)
        with contextlib.suppress(HoldfastError):  # a node without a successor is a valid outcome
            scene.cluster.hand_over(node)
        try:
            yield named([node])
        finally:
            scene.cluster.wait_for(lambda: self._leads_again(scene, node), f"node {node} to be allowed to lead again")

    @staticmethod
    def _leads_again(scene: Scene, node: int) -> bool:
        if node not in scene.cluster.running:
            return True  # a new process may lead
        try:
            scene.cluster.lead_again(node)
        except HoldfastError:
            return False
        return True


@dataclass
class CrashClient(Fault):
    """Crash of some clients; others take their places."""

    clients: int = 3
    id: str = "F16"

    @property
    def kind(self) -> str:
        return "client crash"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        yield ", ".join(scene.crash_client() for _ in range(self.clients))


@dataclass
class RollingRestart(Fault):
    """Restart of each node, one after the other, as for an upgrade."""

    id: str = "F18"

    @property
    def kind(self) -> str:
        return "rolling restart"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        nodes = scene.chance.sample(scene.nodes, len(scene.nodes))
        for node in nodes:
            scene.cluster.nodes[node].stop()
            scene.cluster.spawn(node)
            # With other faults there may be no majority for it; the restart goes on nevertheless.
            scene.cluster.nodes[node].ready_within(NEXT_WITHIN_S)
        yield named(nodes)


@dataclass
class RestartStorm(Fault):
    """Kill of one node again and again while it starts."""

    id: str = "F1"
    times: int = 3
    heals = 1

    @property
    def kind(self) -> str:
        return "restart storm"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.leader()
        try:
            for _ in range(self.times):
                scene.cluster.kill(node)
                scene.cluster.spawn(node)
                scene.wait(scene.chance.uniform(0.0, 1.5))
            scene.cluster.kill(node)
            yield named([node])
        finally:
            scene.cluster.spawn(node)
