"""F1, F2, F13, F16, F18: processes that are killed, stand still, hand over, start anew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from chaos.faults.fault import Fault, Scene, named
from holdfast.client import HoldfastError

NEXT_WITHIN_S = 15.0
"""A rolling restart waits for one node for so long before it goes on."""

Whom = Literal["leader", "follower", "coordinator", "any", "minority", "majority", "all"]


def chosen(scene: Scene, whom: Whom) -> list[int]:
    if whom == "all":
        return scene.nodes
    if whom == "majority":
        return scene.some(len(scene.nodes) - scene.minority)
    return scene.some(scene.minority) if whom == "minority" else [scene.one(whom)]


@dataclass
class Kill(Fault):
    """kill -9; they start again when it is over."""

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
    """SIGSTOP: alive for the kernel, silent for everybody else, and without an idea how long it was away."""

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
    """A node moves its leaderships elsewhere, under load, and may lead again afterwards. All of them: there is no order
    to hand over one."""

    whom: Whom = "leader"
    id: str = "F13"

    @property
    def kind(self) -> str:
        return "leadership transfer" + (" of coordinators" if self.whom == "coordinator" else "")

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.one(self.whom)
        with contextlib.suppress(HoldfastError):  # nobody to hand over to is an answer, too
            scene.cluster.hand_over(node)
        try:
            yield named([node])
        finally:
            scene.cluster.wait_for(lambda: self._leads_again(scene, node), f"node {node} to be allowed to lead again")

    @staticmethod
    def _leads_again(scene: Scene, node: int) -> bool:
        if node not in scene.cluster.running:
            return True  # it forgot it with its process
        try:
            scene.cluster.lead_again(node)
        except HoldfastError:
            return False
        return True


@dataclass
class CrashClient(Fault):
    """Some clients are gone without a word, and others go on in their place."""

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
    """Each node is asked to end, as for an upgrade, and started again, one after the other."""

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
            # With other faults there may be no majority for it to find: then the next one's turn comes all the same.
            scene.cluster.nodes[node].ready_within(NEXT_WITHIN_S)
        yield named(nodes)


@dataclass
class RestartStorm(Fault):
    """One node is killed again and again while it starts."""

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
