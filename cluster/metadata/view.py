"""Reading the metadata of this node: what it has applied, which may be behind what the leader has.

The rule: a view never says more than was committed. A caller must bear that another node already knows better
(a deleted log, another partition): the answers of those asked say so, and asking again later helps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cluster.metadata.metadata_pb2 import Reassign
from cluster.metadata.moves import check_targets, moving_record
from cluster.metadata.state_machine import MetadataMachine
from cluster.metadata.types import (
    INTERNAL_PREFIX,
    BalanceSettings,
    CommandRefused,
    GrantRecord,
    LogRecord,
    MoveRecord,
    NodeRecord,
    PartitionRecord,
    Refusal,
    RuleRecord,
    UserRecord,
)
from cluster.stale_copy_detection import NEVER_STARTED, KnownStart


@dataclass(frozen=True, slots=True)
class MoveCounts:
    """Partitions that have a target or a move; moves under way, and those of them that make no progress."""

    moving: int
    under_way: int
    stalled: int


class MetadataView:
    def __init__(self, machine: MetadataMachine) -> None:
        self._machine = machine
        self._groups: dict[int, tuple[LogRecord, PartitionRecord]] = {}
        self._groups_revision = -1

    # -- logs and partitions

    @property
    def logs(self) -> Mapping[str, LogRecord]:
        return MappingProxyType(self._machine.state.logs)

    def log(self, name: str) -> LogRecord | None:
        return self._machine.state.logs.get(name)

    def partition(self, log: str, partition: str) -> PartitionRecord | None:
        record = self.log(log)
        if record is None or not partition.isascii() or not partition.isdigit():
            return None
        number = int(partition)
        if number >= len(record.partitions) or partition != record.partitions[number].name:
            return None  # also "00" and the like
        return record.partitions[number]

    def group(self, group: int) -> tuple[LogRecord, PartitionRecord] | None:
        return self._by_group().get(group)

    def hosted_by(self, node: int) -> Iterator[tuple[LogRecord, PartitionRecord]]:
        """Partitions of which the node keeps a replica, or is to get one by a move under way."""
        every = self._by_group().values()
        return (pair for pair in every if node in pair[1].replicas or pair[1].replica_on(node) is not None)

    def moving(self) -> Iterator[tuple[LogRecord, PartitionRecord]]:
        """Partitions that have a target or a move, in the order of their groups."""
        state = self._machine.state
        return (moving_record(state, group) for group in sorted(state.moving))

    def under_way(self) -> Iterator[PartitionRecord]:
        """Partitions that have a move, in the order of their groups: few, however many wait."""
        state = self._machine.state
        return (moving_record(state, group)[1] for group in sorted(state.under_way))

    def count_moves(self) -> MoveCounts:
        """Count moves. That takes as long as there are moves under way, however many wait."""
        state = self._machine.state
        stalled = sum(move.stalled for move in state.under_way.values())
        return MoveCounts(len(state.moving), len(state.under_way), stalled)

    def refusal_of(self, command: Reassign) -> Refusal | None:
        """Tell why targets would be refused, as far as this node has heard; None: they would not."""
        try:
            check_targets(self._machine.state, command)
        except CommandRefused as refused:
            return refused.rejected
        return None

    def was_deleted(self, group: int) -> bool:
        """True if the group was allocated once and is gone: what a node still has of it can be erased. False for ids
        this node has not heard of yet."""
        return 0 < group < self._machine.state.next_group and group not in self._by_group()

    # -- nodes

    @property
    def cluster_id(self) -> str | None:
        """Identity of the cluster, for people and clients. None: none drawn yet, and no log made but in older data."""
        drawn = self._machine.state.cluster_id
        return f"{drawn:016x}" if drawn else None

    @property
    def active_version(self) -> int:
        """Version of all that nodes say, log and store; UNSET before the first node is registered."""
        return self._machine.state.active_version

    @property
    def balance(self) -> BalanceSettings:
        """Settings of the planner."""
        return self._machine.state.balance

    @property
    def nodes(self) -> Mapping[int, NodeRecord]:
        return MappingProxyType(self._machine.state.nodes)

    @property
    def able_nodes(self) -> int:
        """Number of nodes on which replicas are placed."""
        return sum(record.state == "active" for record in self._machine.state.nodes.values())

    @property
    def announced(self) -> Collection[int]:
        """Nodes that an operator has announced and that have not come yet."""
        return self._machine.state.announced.keys()

    def removed(self, node: int) -> tuple[int, ...] | None:
        """Incarnations of the data of a node that was removed; None: it was not."""
        return self._machine.state.tombstones.get(node)

    @property
    def tombstones(self) -> Collection[int]:
        """Nodes that were removed."""
        return self._machine.state.tombstones.keys()

    @property
    def cluster_number(self) -> int:
        """Identity of the cluster, as nodes compare it; 0: none is known."""
        return self._machine.state.cluster_id

    def incarnation(self, node: int) -> int:
        """Incarnation of the data directory that the cluster knows the node by; 0 if it is not registered."""
        record = self._machine.state.nodes.get(node)
        return 0 if record is None else record.incarnation

    def start(self, node: int) -> KnownStart:
        """Latest start of a node's directory that was registered."""
        record = self._machine.state.nodes.get(node)
        return NEVER_STARTED if record is None else record.start

    def lost_below_group(self, node: int) -> int:
        """The node came back without its data: of groups below this one it may have forgotten votes and entries."""
        record = self._machine.state.nodes.get(node)
        return 0 if record is None else record.lost_below_group

    def lost_below_birth(self, node: int) -> int:
        """The node came back without its data: of replicas that were moved to it with births below this one it may have
        forgotten votes and entries."""
        record = self._machine.state.nodes.get(node)
        return 0 if record is None else record.lost_below_birth

    def listener_address(self, node: int, listener: str) -> str | None:
        """The address of the node's listener of that name, else of its first one."""
        record = self._machine.state.nodes.get(node)
        if record is None or not record.listeners:
            return None
        by_name = {item.name: item.address for item in record.listeners}
        return by_name.get(listener, record.listeners[0].address)

    # -- access

    @property
    def users(self) -> Mapping[str, UserRecord]:
        return self._machine.state.access.users

    @property
    def grants(self) -> Mapping[GrantRecord, None]:
        """Grants, as a set that keeps its order."""
        return self._machine.state.access.grants

    @property
    def rules(self) -> Mapping[str, RuleRecord]:
        """Shared access rules by name."""
        return self._machine.state.access.rules

    @property
    def access_secret(self) -> bytes:
        """Secret of the cluster; empty before its first user."""
        return self._machine.state.access.secret

    @property
    def access_revision(self) -> int:
        """Changes whenever users, grants or rules may have changed, in this process."""
        return self._machine.access_revision

    # -- change

    @property
    def revision(self) -> int:
        return self._machine.revision

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """`callback` is called inside a turn of the Raft host after a change: it notes that and returns. Returns the
        function that ends the subscription."""
        self._machine.on_change.append(callback)
        return lambda: self._machine.on_change.remove(callback)

    # -- for people and programs

    def describe(self, name: str, leader_of: Callable[[int], int | None]) -> dict[str, Any] | None:
        """JSON-like form of one log; `leader_of` maps a group to the node that leads it, if known."""
        log = self.log(name)
        return None if log is None else describe(log, leader_of)

    def list_logs(self) -> Sequence[dict[str, Any]]:
        return [
            {
                "name": log.name,
                "partitions": len(log.partitions),
                "replicas": log.replicas,
                "retention_ms": log.retention_ms,
                "retention_bytes": log.retention_bytes,
                "compression": log.compression,
            }
            for name, log in sorted(self._machine.state.logs.items())
            if not name.startswith(INTERNAL_PREFIX)
        ]

    def list_nodes(self) -> Sequence[dict[str, Any]]:
        return [
            {
                "node": node.node,
                "rpc_address": node.rpc_address,
                "listeners": {item.name: item.address for item in node.listeners},
                "incarnation": f"{node.incarnation:016x}",
                "readmissions": node.readmissions,
                "versions": [node.versions.oldest, node.versions.newest],
                "rack": node.rack,
                "state": node.state,
            }
            for _, node in sorted(self._machine.state.nodes.items())
        ]

    def _by_group(self) -> dict[int, tuple[LogRecord, PartitionRecord]]:
        if self._groups_revision != self._machine.revision:
            self._groups_revision = self._machine.revision
            self._groups = {
                partition.group: (log, partition)
                for log in self._machine.state.logs.values()
                for partition in log.partitions
            }
        return self._groups


def describe(log: LogRecord, leader_of: Callable[[int], int | None]) -> dict[str, Any]:
    return {
        "name": log.name,
        "replicas": log.replicas,
        "retention_ms": log.retention_ms,
        "retention_bytes": log.retention_bytes,
        "compression": log.compression,
        "created_ms": log.created_ms,
        "partitions": [
            {
                "partition": partition.name,
                "leader": leader_of(partition.group),
                "preferred": partition.preferred,
                "replicas": sorted(partition.replicas),
                "group": partition.group,
                "target": list(partition.target),
                "move": None if partition.move is None else describe_move(partition.move),
            }
            for partition in log.partitions
        ],
    }


def describe_move(move: MoveRecord) -> dict[str, Any]:
    return {
        "add": None if move.add is None else move.add.node,
        "remove": None if move.remove is None else move.remove.node,
        "cancel_asked": move.cancel_asked,
        "stalled": move.stalled,
        "reason": move.reason,
    }
