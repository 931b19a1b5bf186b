"""Nodes and partitions as they are known at one moment, frozen: what a plan is made from."""

from __future__ import annotations

from dataclasses import dataclass

REPORT_LIMIT_S = 30.0
"""Age of a report on which no plan is made any more."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A registered node. Bytes are of its disk, as its latest report says."""

    node: int
    rack: str = ""
    leaving: bool = False
    capacity_bytes: int = 0
    """0: not known; then its disk is never full."""
    used_bytes: int = 0
    away_s: float = 0.0
    """Seconds without contact; 0: it is up."""
    report_age_s: float = 0.0
    garbage_bytes: int = 0
    """Bytes of those used that are dead, and are given back when space gets short."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """A partition: where it lies, and how large one replica of it is."""

    group: int
    name: str
    replicas: tuple[int, ...]
    """Settled replicas, preferred leader first."""
    configuration_version: int = 1
    target: tuple[int, ...] = ()
    """Replicas that it will have when what is under way is done; empty: nothing is."""
    size_bytes: int = 0
    leader: int | None = None
    wanted_replicas: int = 0
    """Replicas that its log wants; 0: as many as it has."""

    @property
    def is_movable(self) -> bool:
        """True if a plan may name it. Without a leader a move cannot begin, and would take a slot from those that
        can; with a target, or while its log wants another number of replicas, somebody else has decided."""
        resized = self.wanted_replicas not in (0, len(self.replicas))
        return self.leader is not None and not self.target and not resized


@dataclass(frozen=True, slots=True)
class BalanceInput:
    nodes: tuple[NodeLoad, ...]
    partitions: tuple[PartitionLoad, ...]
