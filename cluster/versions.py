"""Versions of what nodes say, log and store, and the rule by which they stand side by side.

A *version* is one number for the wire between nodes, the commands in their logs and the layouts on their disks. A
program knows a range of them. The cluster has one *active* version, which the metadata group replicates
(`cluster/metadata`): until an operator raises it, all nodes say, log and store what belongs to it, and nothing newer.
So nodes of two releases work together, and going back is installing the old program again.

The rules: only what proposes, sends or writes asks for the active version (`cluster/features.py`); `apply` never
does, since replicas would answer it at different entries: a command says by itself what it is. A program that meets a
command that it does not know stops that replica (`cluster.raft.UnknownEntry`) instead of refusing what others carry
out. What is written in a layout of its own is written in that of the active version, and read in each of `Layouts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OLDEST = 14
NEWEST = 15
"""14 is the first version that knows of others; earlier ones were never released, and are refused. `FEATURES` says what
each later one brought (`cluster/features.py`)."""

MEMBERS_CHANGE_FROM = 15
"""Groups change their members: what a group that did so stores and says belongs to this version."""

INSTALL = "install the cluster's newest release on that node"

UNSET = 0
"""The active version of a cluster without any registered node: it is drawn with the first one."""


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions that a program knows."""

    oldest: int
    newest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.oldest <= version <= self.newest

    def __str__(self) -> str:
        return f"version {self.newest}" if self.oldest == self.newest else f"versions {self.oldest} to {self.newest}"

    def fault(self, active: int) -> str | None:
        """Why a node with this program cannot be part of a cluster with that active version; None: it can."""
        if active == UNSET or active in self:
            return None
        if active > self.newest:
            return (
                f"the cluster runs version {active}, and the program knows {self}: install the cluster's release on it"
            )
        return (
            f"the cluster runs version {active}, and the program knows {self}: install an earlier release on it, or "
            "finalize the upgrade of the cluster first (`holdfast cluster finalize`)"
        )


OURS = VersionRange(OLDEST, NEWEST)


class Layouts:
    """Layouts of one thing on disk: the number of each, by the version that brought it, the oldest first. The first is
    that of OLDEST: a layout leaves the table when no version that writes it is known any more."""

    __slots__ = ("_newest_first", "numbers")

    def __init__(self, by_version: Mapping[int, int]) -> None:
        self.numbers = tuple(by_version.values())
        self._newest_first = tuple(by_version.items())[::-1]

    def at(self, active: int) -> int:
        """The layout to write while this version is active. UNSET: the oldest, which every program here reads."""
        for version, layout in self._newest_first:
            if version <= active:
                return layout
        return self.numbers[0]

    def __contains__(self, layout: object) -> bool:
        return layout in self.numbers

    def __str__(self) -> str:
        return " and ".join(map(str, self.numbers))


def mismatch(ours: VersionRange, active: int, theirs: VersionRange, their_active: int) -> str | None:
    """Why two nodes may not speak to each other; None: they may. An active version is UNSET where it is not known."""
    if (fault := ours.fault(their_active)) is not None:
        return f"of this node: {fault}"
    if (fault := theirs.fault(active)) is not None:
        return f"of that node: {fault}"
    if ours.oldest > theirs.newest or theirs.oldest > ours.newest:
        return f"this node's program knows {ours}, that node's {theirs}: install releases that have one in common"
    return None
