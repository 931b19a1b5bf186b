"""Fault F22: nodes join the cluster under load, take replicas, replace others, and leave again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from chaos.cluster.proxied import ProxiedCluster
from chaos.faults.fault import CannotStrike, Fault, Scene
from holdfast.client import HoldfastError
from holdfast.client.admin import AdminClient

JOINED_WITHIN_S = 20.0
"""A node cannot join while a majority is down."""

Takes = Literal["a share", "all of a node", "all of a dead node"]


@dataclass
class GuestNode(Fault):
    """A node that joins takes replicas, and leaves; afterwards the nodes are those of before."""

    takes: Takes = "a share"
    id: str = "F22"
    heals = 3  # it waits for nodes that others have killed

    @property
    def kind(self) -> str:
        return f"a node joins, takes {self.takes}, and leaves"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        cluster, replaced = scene.own, None if self.takes == "a share" else scene.follower()
        is_dead = self.takes == "all of a dead node"
        try:
            guest = cluster.invite()
        except HoldfastError as error:
            raise CannotStrike(f"no node was announced: {error}") from error
        try:
            if not cluster.guests[guest].ready_within(JOINED_WITHIN_S):
                raise CannotStrike(f"node {guest} has not joined within {JOINED_WITHIN_S:g} s")
            if is_dead:
                assert replaced is not None
                cluster.kill(replaced)
            self._give(scene, guest, replaced)
            yield f"node {guest} joins" + ("" if replaced is None else f" in place of node {replaced}")
        finally:
            if is_dead and replaced is not None:
                cluster.start(replaced)
            cluster.dismiss(guest)

    def _give(self, scene: Scene, guest: int, replaced: int | None) -> None:
        """Let replicas move to the guest. Raises CannotStrike."""
        try:
            if replaced is None:
                _share(scene, guest)
            else:
                _replace(scene.own, guest, replaced)
        except HoldfastError as error:
            raise CannotStrike(f"node {guest} was given nothing: {error}") from error


def _share(scene: Scene, guest: int) -> None:
    """One replica of each partition of the log moves to the guest."""
    cluster = scene.cluster
    for one in cluster.call(lambda admin: admin.describe_log(scene.log), cluster.running)["partitions"]:
        target = [guest, *scene.chance.sample(list(one["replicas"]), len(one["replicas"]) - 1)]
        cluster.call(partial(_reassign, log=scene.log, partition=one["partition"], target=target), cluster.running)


def _replace(cluster: ProxiedCluster, guest: int, replaced: int) -> None:
    """Move all replicas of a node to the guest, by a plan."""
    others = [node for node in cluster.running if node != replaced]
    cluster.call(partial(_apply_replacement, guest=guest, replaced=replaced), others)


async def _reassign(admin: AdminClient, *, log: str, partition: str, target: list[int]) -> dict[str, Any]:
    return await admin.reassign_partition(log, str(partition), target)


async def _apply_replacement(admin: AdminClient, *, guest: int, replaced: int) -> dict[str, Any]:
    plan = await admin.plan_balance(remove=replaced, successor=guest)
    return await admin.apply_balance(plan["digest"], remove=replaced, successor=guest)
