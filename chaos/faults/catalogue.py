"""Catalogue of faults by number; each number has several variants, of which one is drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from chaos.faults.compounds import InQuickSuccession, InsideRecovery, PowerLossThenQuorum
from chaos.faults.fault import Fault
from chaos.faults.machines import HOUR_MS, BadDisk, BitFlips, LoseDisk, PowerLoss, WrongClock
from chaos.faults.members import GuestNode
from chaos.faults.moves import MoveReplicas
from chaos.faults.network import Flapping, Halves, Isolate, OneWay, Resets, Ring, Slow
from chaos.faults.processes import CrashClient, HandOver, Kill, Pause, RestartStorm, RollingRestart
from chaos.faults.zookeeper import CutFromZooKeeper, EndSessions, KillZooKeeper

Make = Callable[[], Fault]

CATALOGUE: Final[dict[str, tuple[str, Sequence[Make]]]] = {
    "F0": ("no fault", ()),
    "F1": (
        "kill -9, and start again",
        (
            lambda: Kill("leader"),
            lambda: Kill("leader"),
            lambda: Kill("follower"),
            lambda: Kill("majority"),
            lambda: Kill("all"),
            RestartStorm,
        ),
    ),
    "F2": (
        "processes that stand still",
        (lambda: Pause("leader"), lambda: Pause("leader"), lambda: Pause("follower"), lambda: Pause("majority")),
    ),
    "F3": (
        "a node apart from the others",
        (
            lambda: Isolate("leader", "swallow"),
            lambda: Isolate("leader", "freeze"),
            lambda: Isolate("leader", "refuse"),
            lambda: Isolate("follower", "swallow"),
            lambda: Isolate("leader", "swallow", clients=True),
        ),
    ),
    "F4": (
        "a node that hears no other node, or that no other node hears",
        (
            lambda: OneWay("leader", "deaf"),
            lambda: OneWay("leader", "mute"),
            lambda: OneWay("leader", "deaf", "freeze"),
            lambda: OneWay("follower", "deaf"),
            lambda: OneWay("follower", "mute"),
        ),
    ),
    "F5": ("halves, bridge, ring", (Halves, lambda: Halves(bridge=True), lambda: Halves(how="freeze"), Ring)),
    "F6": (
        "links that are slow, narrow, or cut bytes into slices",
        (
            lambda: Slow("late by 50 ms", "all"),
            lambda: Slow("late by 500 ms", "any"),
            lambda: Slow("256 KiB/s", "leader"),
            lambda: Slow("in slices", "all"),
        ),
    ),
    "F7": ("connections reset, or ended in a frame", (Resets, lambda: Resets("nodes"))),
    "F8": ("a link that comes and goes", (Flapping,)),
    "F9": (
        "loss of power, and of what was not synced",
        (
            lambda: PowerLoss("any"),
            lambda: PowerLoss("all"),
            lambda: PowerLoss("all", staggered=True),
            lambda: PowerLoss("majority", staggered=True),
        ),
    ),
    "F10": ("bits that flip in a stopped node's files", (BitFlips, lambda: BitFlips("*.sst"))),
    "F11": (
        "disks that are full, slow, or fail to sync",
        (
            BadDisk,
            lambda: BadDisk("full", "follower"),
            lambda: BadDisk("slow to sync"),
            lambda: BadDisk("failing to sync"),
        ),
    ),
    "F12": ("a node without its data is let in again", (LoseDisk,)),
    "F13": ("leadership handed over under load", (HandOver,)),
    "F14": (
        "ZooKeeper, in which the nodes find each other, fails",
        (
            KillZooKeeper,
            lambda: KillZooKeeper("all"),
            CutFromZooKeeper,
            lambda: CutFromZooKeeper("leader", "refuse"),
            EndSessions,
            lambda: EndSessions("all"),
        ),
    ),
    "F15": (
        "a clock that leaps",
        (WrongClock, lambda: WrongClock(-HOUR_MS), lambda: WrongClock(HOUR_MS, "follower")),
    ),
    "F1C": ("kill -9 of the leader of the transaction coordinators", (lambda: Kill("coordinator", id="F1C"),)),
    "F2C": ("the leader of the transaction coordinators stands still", (lambda: Pause("coordinator", id="F2C"),)),
    "F3C": (
        "the leader of the transaction coordinators apart from the other nodes",
        (
            lambda: Isolate("coordinator", "swallow", id="F3C"),
            lambda: Isolate("coordinator", "freeze", id="F3C"),
            lambda: Isolate("coordinator", "refuse", id="F3C"),
        ),
    ),
    "F13C": ("the leader of the transaction coordinators hands over", (lambda: HandOver("coordinator", id="F13C"),)),
    "F16": ("a client crashes, and another one takes its place", (CrashClient,)),
    "F18": ("rolling restart", (RollingRestart,)),
    "F19": (
        "faults in a row, and inside of each other's recovery",
        (
            PowerLossThenQuorum,
            lambda: PowerLossThenQuorum("cut off"),
            InsideRecovery,
            InQuickSuccession,
        ),
    ),
    "F20": (
        "a disk that fails to sync, then a loss of power, then a quorum that needs it",
        (
            lambda: PowerLossThenQuorum("paused", syncs_fail=True, id="F20"),
            lambda: PowerLossThenQuorum("cut off", syncs_fail=True, id="F20"),
        ),
    ),
    "F21": (
        "replicas move to other nodes, and some moves are called back",
        (MoveReplicas, lambda: MoveReplicas(cancelled=True)),
    ),
    "F22": (
        "nodes join, take replicas or replace others, and leave",
        (GuestNode, lambda: GuestNode("all of a node"), lambda: GuestNode("all of a dead node")),
    ),
}


class UnknownFault(ValueError):
    """A number that no fault has."""


class UnfitFault(ValueError):
    """A fault that has no target in the workload, or that another fault excludes."""


def check(ids: Sequence[str]) -> None:
    for one in ids:
        if one not in CATALOGUE:
            raise UnknownFault(f"{one!r} is no fault; there are {', '.join(CATALOGUE)}")


def check_for(ids: Sequence[str], workload: str, *, is_transactional: bool) -> None:
    """Check that the workload has the targets of the faults, and that they can go together. Raises UnfitFault."""
    unfit = [one for one in ids if one in NEED_TRANSACTIONS and not is_transactional]
    if unfit:
        raise UnfitFault(
            f"{', '.join(unfit)} strikes who decides on transactions, and workload {workload} has none: choose one "
            "that has (W4)"
        )
    cut = [one for one in ids if one in NEED_LINKS]
    if cut and NEED_ZOOKEEPER & set(ids):
        raise UnfitFault(
            f"{', '.join(cut)} harms the ways between nodes, and nodes that find each other in ZooKeeper (F14) all "
            "read one address of a node there, past the proxies: run them apart"
        )


def check_where(ids: Sequence[str], *, no_links: str = "") -> None:
    """Check that the faults can strike nodes of an inventory. Raises UnfitFault.

    `no_links`: why links between them cannot be broken; "" if they can."""
    for one in ids:
        if why := why_not_there(one, no_links):
            can = [name for name in CATALOGUE if not why_not_there(name, no_links)]
            raise UnfitFault(f"{one}, {CATALOGUE[one][0]}: {why}; on nodes of an inventory there are {', '.join(can)}")


def why_not_there(one: str, no_links: str) -> str:
    """Say why a fault cannot strike nodes of an inventory; "" if it can."""
    if one in NEED_DISKS:
        return "that takes a disk on order below a node which the run itself has started"
    if one in NEED_CLOCKS:
        return "that takes a clock on order in a node which the run itself has started"
    if one in NEED_ZOOKEEPER:
        return "that takes a ZooKeeper which the run itself has started"
    if one in BRING_NODES:
        return "that takes another node, which the run itself has to start"
    if one in DESTROY:
        return "that would damage, or delete, data which are not the run's own"
    if one in NEED_LINKS and no_links:
        return f"that takes a proxy on each way, and {no_links}"
    return ""


def of(fault_id: str, chance: random.Random, nodes: int) -> Fault:
    """Draw a fault of one number; a ring only with five nodes or more, since with fewer it cuts nothing."""
    makes = [make for make in CATALOGUE[fault_id][1] if not (make is Ring and nodes < 5)]
    return chance.choice(makes)()


NEED_DISKS: Final = frozenset({"F9", "F11", "F19", "F20"})
NEED_CLOCKS: Final = frozenset({"F15"})
"""Faults that need nodes with faulty disks (`NEED_DISKS`) or clocks (`NEED_CLOCKS`)."""
DESTROY: Final = frozenset({"F10", "F12"})
"""Faults that damage the data of a stopped node."""
BRING_NODES: Final = frozenset({"F22"})
"""Faults in which another node joins."""
NEED_SPARE: Final = frozenset({"F21"})
"""Faults that need a node without a replica of a partition: logs of such a run have one replica less than nodes."""
NEED_ZOOKEEPER: Final = frozenset({"F14"})
"""Faults that need nodes which find each other by ZooKeeper."""
NEED_LINKS: Final = frozenset({"F3", "F3C", "F4", "F5", "F6", "F7", "F8", "F19", "F20"})
"""Faults of which some variants break links between nodes."""
NEED_TRANSACTIONS: Final = frozenset({"F1C", "F2C", "F3C", "F13C"})
"""Faults that are aimed at coordinators, each a variant of the fault with the plain number. They have numbers of their
own so that the draws of other plans stay the same."""
