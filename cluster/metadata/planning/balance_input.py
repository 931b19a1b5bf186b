"""Nodes and partitions as they are known at one moment, frozen: what a plan is made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NodeState = Literal["expected", "active", "leaving", "gone"]
Balance = Literal["off", "repair", "on"]
BALANCES: tuple[Balance, ...] = ("off", "repair", "on")

REPORT_LIMIT_S = 30.0
"""Age of a report on which no plan is made any more."""


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """Replicated settings of the planner. Marks are percent of a node's disk."""

    balance: Balance = "repair"
    """What happens without an operator's word. `repair`: nodes that are lost or leave are emptied. `on`: all goals."""
    replace_after_s: int = 900
    """Seconds that a node must be away before its replicas are made elsewhere."""
    disk_high: int = 85
    """Mark of a disk above which replicas move away, down to `disk_low`."""
    disk_low: int = 75
    disk_target: int = 80
    """Mark that no target of a move exceeds, with all that is on its way there."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A registered node. Bytes are of its disk, as its latest report says."""

    node: int
    rack: str = ""
    state: NodeState = "active"
    capacity_bytes: int = 0
    """0: not known; then its disk is never full."""
    used_bytes: int = 0
    away_s: float = 0.0
    """Seconds without contact; 0: it is up."""
    report_age_s: float = 0.0


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

    @property
    def is_movable(self) -> bool:
        """True if a plan may name it. Without a leader a move cannot begin, and would take a slot from those that
        can; with a target somebody else has decided."""
        return self.leader is not None and not self.target


@dataclass(frozen=True, slots=True)
class BalanceInput:
    nodes: tuple[NodeLoad, ...]
    partitions: tuple[PartitionLoad, ...]
