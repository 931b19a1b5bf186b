"""Fault F21: replicas move to other nodes under load, and some of these moves are called back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from chaos.faults.fault import CannotStrike, Fault, Scene
from holdfast.client import HoldfastError
from holdfast.client.admin import AdminClient


@dataclass
class MoveReplicas(Fault):
    """Moves of one replica of each partition to a node that has none; all of them are over afterwards."""

    cancelled: bool = False
    id: str = "F21"
    heals = 3  # it waits for nodes that others have killed

    @property
    def kind(self) -> str:
        return "moves that are called back" if self.cancelled else "moves of replicas"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        after_s = scene.chance.random() * scene.hold_s / 2
        try:
            asked = self._ask(scene)
            if self.cancelled:
                scene.wait(after_s)
                scene.cluster.call(lambda admin: admin.cancel_moves(scene.log), scene.cluster.running)
        except HoldfastError as error:
            raise CannotStrike(f"no replica was moved: {error}") from error
        try:
            yield ", ".join(asked)
        finally:
            scene.cluster.wait_for(lambda: self._is_over(scene), "the end of all moves")

    @staticmethod
    def _ask(scene: Scene) -> list[str]:
        """State another target for each partition. Raises CannotStrike."""
        cluster, asked = scene.cluster, []
        described = cluster.call(lambda admin: admin.describe_log(scene.log), cluster.running)
        for one in described["partitions"]:
            held, number = list(one["replicas"]), str(one["partition"])
            free = [node for node in scene.nodes if node not in held]
            if not free:
                raise CannotStrike("every node has a replica of every partition")
            target = [scene.chance.choice(free), *scene.chance.sample(held, len(held) - 1)]
            cluster.call(partial(_reassign, log=scene.log, partition=number, target=target), cluster.running)
            asked.append(f"{number} to {'+'.join(map(str, target))}")
        return asked

    @staticmethod
    def _is_over(scene: Scene) -> bool:
        try:
            return not scene.cluster.call(lambda admin: admin.list_moves(), scene.cluster.running)["moves"]
        except HoldfastError:
            return False


async def _reassign(admin: AdminClient, *, log: str, partition: str, target: list[int]) -> dict[str, Any]:
    return await admin.reassign_partition(log, partition, target)
