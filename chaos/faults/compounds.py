"""Faults F19: compounds, one fault during the recovery from another. Most known losses in other systems took two."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from chaos.disk.orders import FOR_EVER
from chaos.faults.fault import Fault, Scene, named
from chaos.faults.machines import lose_power
from chaos.faults.network import Isolate
from chaos.faults.processes import Kill


@dataclass
class PowerLossThenQuorum(Fault):
    """A loss of power at a node, then a quorum that needs the events that only this node may have lost.

    A minority is set aside while the others acknowledge. One of the others loses power. Then the rest is set aside, so
    that this node and the minority are the quorum. Events that it acknowledged without a sync would be lost here.

    `aside`: the nodes are paused or cut off (as Jepsen's pause-kill and part-kill for NATS). `syncs_fail`: the node's
    syncs fail before it loses power."""

    aside: Literal["paused", "cut off"] = "paused"
    syncs_fail: bool = False
    id: str = "F19"
    heals = 2

    @property
    def kind(self) -> str:
        failing = ", its syncs failing before" if self.syncs_fail else ""
        return f"power loss, minority {self.aside} before, others after{failing}"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        order = scene.chance.sample(scene.nodes, len(scene.nodes))
        aside, struck, rest = order[: scene.minority], order[scene.minority], order[scene.minority + 1 :]
        cluster = scene.own
        with cluster.expecting_the_worst(struck):
            with self._apart(scene, aside):
                if self.syncs_fail:
                    cluster.disks[struck].orders.fail("sync", "*.seg", most=FOR_EVER)
                scene.wait(scene.hold_s)
                cluster.disks[struck].orders.withdraw()
                lose_power(scene, struck)
            with self._apart(scene, rest):
                cluster.spawn(struck)
                scene.wait(scene.hold_s)
            yield f"{named(aside)} aside, node {struck} lost power, then {named(rest)} aside"

    @contextlib.contextmanager
    def _apart(self, scene: Scene, nodes: list[int]) -> Iterator[None]:
        cluster = scene.cluster
        if self.aside == "cut off":
            with cluster.links.harmed(cluster.links.across(nodes, [n for n in scene.nodes if n not in nodes])):
                yield
            return
        try:
            for node in nodes:
                cluster.nodes[node].pause()
            yield
        finally:
            for node in nodes:
                cluster.nodes[node].resume()


@dataclass
class InsideRecovery(Fault):
    """A killed node comes back and has to catch up; meanwhile the leader is cut off."""

    id: str = "F19"
    heals = 2

    @property
    def kind(self) -> str:
        return "leader cut off while another one recovers"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        with Kill("follower").strike(scene) as killed:
            scene.wait(scene.hold_s / 2)
            number = int(killed.rpartition(" ")[2])
            scene.cluster.spawn(number)
            with Isolate("leader").strike(scene) as isolated:
                yield f"{killed} killed, {isolated} cut off"


@dataclass
class InQuickSuccession(Fault):
    """A kill of every node, one after the other within a second or so; each starts again at once."""

    id: str = "F19"
    heals = 2

    @property
    def kind(self) -> str:
        return "all killed in quick succession"

    leaves_majority = False

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        nodes = scene.chance.sample(scene.nodes, len(scene.nodes))
        try:
            for node in nodes:
                scene.cluster.kill(node)
                scene.wait(scene.chance.uniform(0.1, 1.0))
                scene.cluster.spawn(node)
            yield named(nodes)
        finally:
            scene.cluster.spawn(*nodes)
