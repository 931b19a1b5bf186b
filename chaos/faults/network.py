"""Faults F3 to F8: links that are cut in one direction or both, slowed, reset in a frame, or that flap."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from chaos.cluster import links
from chaos.cluster.links import Harm, NetworkLink
from chaos.faults.fault import Fault, Scene, named
from chaos.faults.processes import Whom

How = Literal["swallow", "freeze", "refuse"]
"""Ways to cut a link: drop all bytes; hold them back without loss; or close and refuse connections. Programs behave
differently with each."""


@contextlib.contextmanager
def cut(scene: Scene, harmed: list[NetworkLink], how: How) -> Iterator[None]:
    if how == "refuse":
        with scene.cluster.links.refused(harmed):
            yield
    else:
        with scene.cluster.links.harmed(harmed, links.swallow if how == "swallow" else links.freeze):
            yield


@dataclass
class Isolate(Fault):
    """One node that is cut off from all others. `clients`: from clients, too."""

    whom: Whom = "leader"
    how: How = "swallow"
    clients: bool = False
    id: str = "F3"

    @property
    def kind(self) -> str:
        return f"isolate {self.whom}" + (" from clients, too" if self.clients else "") + f" ({self.how})"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.one(self.whom)
        harmed = scene.cluster.links.across([node], scene.nodes)
        if self.clients:
            harmed += scene.cluster.links.of_clients(node)
        with cut(scene, harmed, self.how):
            yield named([node])


@dataclass
class OneWay(Fault):
    """A node that hears no other node, or that no other node hears."""

    whom: Whom = "leader"
    direction: Literal["deaf", "mute"] = "deaf"
    how: How = "swallow"
    id: str = "F4"

    @property
    def kind(self) -> str:
        return f"{self.direction} {self.whom} ({self.how})"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        node = scene.one(self.whom)
        table = scene.cluster.links
        with cut(scene, table.into(node) if self.direction == "deaf" else table.out_of(node), self.how):
            yield named([node])


@dataclass
class Halves(Fault):
    """Two sets of nodes that do not hear each other. `bridge`: one node hears both."""

    bridge: bool = False
    how: How = "swallow"
    id: str = "F5"

    @property
    def kind(self) -> str:
        return ("bridge" if self.bridge else "halves") + f" ({self.how})"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        order = scene.chance.sample(scene.nodes, len(scene.nodes))
        between = [order.pop()] if self.bridge else []
        middle = len(order) // 2
        ones, others = sorted(order[:middle]), sorted(order[middle:])
        with cut(scene, scene.cluster.links.across(ones, others), self.how):
            yield f"{ones} | {others}" + (f", both heard by {between[0]}" if between else "")


@dataclass
class Ring(Fault):
    """Nodes on a ring: each hears a majority, its neighbours, and each majority differs."""

    id: str = "F5"

    @property
    def kind(self) -> str:
        return "majorities ring"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        ring = scene.chance.sample(scene.nodes, len(scene.nodes))
        count = len(ring)
        reach = count // 4 + 1 if count > 3 else 1  # neighbours on each side; with the node itself a majority
        apart = [
            (a, b)
            for (i, a), (j, b) in itertools.combinations(enumerate(ring), 2)
            if min((i - j) % count, (j - i) % count) > reach
        ]
        harmed = [link for a, b in apart for link in scene.cluster.links.across([a], [b])]
        with cut(scene, harmed, "swallow"):
            yield f"ring {ring}"


@dataclass
class Slow(Fault):
    """Links that are slow, narrow, or cut bytes into slices."""

    what: Literal["late by 50 ms", "late by 500 ms", "256 KiB/s", "in slices"] = "late by 50 ms"
    whom: Whom = "any"
    id: str = "F6"

    @property
    def kind(self) -> str:
        return f"{self.whom} {self.what}"

    @property
    def _harm(self) -> Harm:
        return {
            "late by 50 ms": links.slow(50),
            "late by 500 ms": links.slow(500),
            "256 KiB/s": links.narrow(256),
            "in slices": links.slice_bytes,
        }[self.what]

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        table = scene.cluster.links
        nodes = scene.nodes if self.whom == "all" else [scene.one(self.whom)]
        harmed = {link for node in nodes for link in (*table.into(node), *table.out_of(node), *table.of_clients(node))}
        with table.harmed(sorted(harmed), self._harm):
            yield named(nodes)


@dataclass
class Resets(Fault):
    """Connections that are reset, or end in the middle of a frame, again and again on random links."""

    whose: Literal["clients", "nodes"] = "clients"
    id: str = "F7"

    @property
    def kind(self) -> str:
        return f"resets of {self.whose}"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        wanted = links.CLIENTS if self.whose == "clients" else links.NODES
        every = sorted(link for link in scene.cluster.links.all if link.protocol == wanted)
        count = max(2, int(scene.hold_s / 0.4))
        for _ in range(count):
            way, direction = scene.chance.choice(scene.cluster.links.parts(scene.chance.choice(every)))
            after = scene.chance.randint(1, 60_000)
            with way.resetting(direction) if scene.chance.random() < 0.5 else way.cutting_after(after, direction):
                scene.wait(scene.chance.uniform(0.1, 0.4))
        yield f"{count} times"


@dataclass
class Flapping(Fault):
    """A pair of nodes whose links come and go about as fast as elections start."""

    period_s: float = 0.6
    id: str = "F8"

    @property
    def kind(self) -> str:
        return "flapping link"

    @contextlib.contextmanager
    def strike(self, scene: Scene) -> Iterator[str]:
        pair = scene.some(2)
        harmed = scene.cluster.links.across(pair[:1], pair[1:])
        count = max(2, int(scene.hold_s / self.period_s))
        for _ in range(count):
            with cut(scene, harmed, _drawn(scene.chance)):
                scene.wait(self.period_s / 2)
            scene.wait(self.period_s / 2)
        yield f"{named(pair)}, {count} times"


def _drawn(chance: random.Random) -> How:
    return chance.choice(("swallow", "freeze", "refuse"))
