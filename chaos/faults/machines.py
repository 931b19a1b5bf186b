"""Faults F9 to F12 and F15: loss of power, bit flips, full or slow disks, lost disks, and clocks that leap."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from chaos.faults.fault import Fault, Scene, named
from chaos.faults.processes import Whom, chosen

LONGEST_PAUSE_S = 1.5
"""Longest pause between two staggered losses of power."""
FLIPPED_BYTES = 64
HOUR_MS = 3_600_000
LEFT_BYTES = 200_000
SLOW_SYNC_S = 1.0


def lose_power(scene: Scene, *nodes: int) -> None:
    """Kill nodes and drop a random part of their unsynced bytes."""
    scene.cluster.kill(*nodes)
    for node in nodes:
        scene.own.disks[node].lose_power(scene.chance)


@dataclass
class PowerLoss(Fault):
    """Loss of power of one or more nodes. `staggered`: one after the other, each starts again at once."""

    whom: Whom = "any"
    staggered: bool = False
    id: str = "F9"
    heals = 2

    @property
    def kind(self) -> str:
        return f"power loss of {self.whom}" + (", staggered" if self.staggered else "")

    @property
    def leaves_majority(self) -> bool:  # type: ignore[override]
        return self.whom not in ("majority", "all")

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        nodes = chosen(scene, self.whom)
        try:
            if self.staggered:
                nodes = scene.chance.sample(nodes, len(nodes))
                for node in nodes:
                    lose_power(scene, node)
                    scene.wait(scene.chance.uniform(0.2, LONGEST_PAUSE_S))
                    scene.cluster.spawn(node)
            else:
                lose_power(scene, *nodes)
            yield named(nodes)
        finally:
            scene.cluster.spawn(*nodes)


@dataclass
class BitFlips(Fault):
    """Damage to some bytes of a stopped node's newest file of one kind."""

    pattern: str = "*.seg"
    id: str = "F10"
    heals = 2

    @property
    def kind(self) -> str:
        return f"bit flips in {self.pattern}"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.one("any")
        scene.cluster.kill(node)
        with scene.own.expecting_the_worst(node):
            data_dir = scene.own.nodes[node].data_dir
            files = sorted(data_dir.rglob(self.pattern), key=lambda path: path.stat().st_mtime)
            for path in files[-1:]:
                content = bytearray(path.read_bytes())
                at = scene.chance.randrange(max(1, len(content) - FLIPPED_BYTES))
                content[at : at + FLIPPED_BYTES] = bytes(byte ^ 0x5A for byte in content[at : at + FLIPPED_BYTES])
                path.write_bytes(content)
            yield named([node]) + (f", {files[-1].name}" if files else ", which has none")


@dataclass
class BadDisk(Fault):
    """A node whose disk is full, slow to sync, or fails to sync."""

    how: Literal["full", "slow to sync", "failing to sync"] = "full"
    whom: Whom = "leader"
    id: str = "F11"
    heals = 2

    @property
    def kind(self) -> str:
        return f"disk of {self.whom} {self.how}"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.one(self.whom)
        orders = scene.own.disks[node].orders
        with scene.own.expecting_the_worst(node):
            if self.how == "full":
                orders.leave_room("*", LEFT_BYTES)
            elif self.how == "slow to sync":
                orders.delay("sync", "*.seg", SLOW_SYNC_S)
            else:
                orders.fail("sync", "*.seg", errno.EIO)
            try:
                yield named([node])
            finally:
                orders.withdraw()


@dataclass
class LoseDisk(Fault):
    """A node whose disk was replaced by an empty one; an operator lets it in again."""

    id: str = "F12"
    heals = 2

    @property
    def kind(self) -> str:
        return "disk replaced"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.one("any")
        scene.cluster.kill(node)
        try:
            yield named([node])
        finally:
            scene.own.replace(node)


@dataclass
class WrongClock(Fault):
    """A leap of a node's wall clock."""

    by_ms: int = HOUR_MS
    whom: Whom = "leader"
    id: str = "F15"

    @property
    def kind(self) -> str:
        return f"clock of {self.whom} {self.by_ms / HOUR_MS:+g} h"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.one(self.whom)
        scene.own.clocks[node].set_wrong(self.by_ms)
        try:
            yield named([node])
        finally:
            scene.own.clocks[node].set_wrong(0)
