"""States of nodes: announced, active, leaving, removed.

The problem: a node that is let in by mistake, or comes back after it was removed, votes for what nobody gave it. The
rules: a node joins only after an operator has announced it; a node that leaves gets no new replicas; it is removed only
when it keeps nothing; and its number stays taken for ever, with the incarnations of its data (a *tombstone*), so that
neither its old directory nor another machine under its number is let in again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.types import (
    COORDINATORS,
    CommandRefused,
    CommandResult,
    LogRecord,
    NodeRecord,
    Ok,
    PartitionRecord,
)
from cluster.versions import MEMBERS_CHANGE_FROM

FOUNDED_AT_MOST_BEFORE = 7
"""Nodes of a cluster before they could come and go: each of them votes on metadata."""

MAX_NODES = 31
"""Every node has a stream to every other one; what that costs is known up to here (docs/cost.md)."""

MAX_TOMBSTONES = 4096
"""Eleven nodes replaced a day, for a year. Each is some 20 bytes of every checkpoint."""


class KnownNodes(Protocol):
    """The part of the state by which it is judged whether a node may leave."""

    @property
    def nodes(self) -> Mapping[int, NodeRecord]: ...
    @property
    def logs(self) -> Mapping[str, LogRecord]: ...
    @property
    def announced(self) -> Collection[int]: ...
    @property
    def tombstones(self) -> Collection[int]: ...


class NodeTable(Protocol):
    """The part of the state that this is about."""

    nodes: dict[int, NodeRecord]
    logs: dict[str, LogRecord]
    announced: dict[int, None]
    tombstones: dict[int, tuple[int, ...]]
    active_version: int
    next_birth: int


def admit(state: NodeTable, command: pb.RegisterNode) -> NodeRecord:
    """Return what is known of a node that registers, with its birth if it is new. Raises CommandRefused."""
    node = command.node
    if node in state.tombstones:
        raise CommandRefused("not-allowed", f"node {node} was removed: its number is not used again. {_another(state)}")
    known = state.nodes.get(node)
    if known is not None:
        return known
    if command.joins and node not in state.announced:
        raise CommandRefused("not-allowed", f"node {node} is not announced: type `holdfast node add {node}` first")
    most = MAX_NODES if state.active_version >= MEMBERS_CHANGE_FROM else FOUNDED_AT_MOST_BEFORE
    if len(state.nodes) >= most:
        raise CommandRefused("invalid-argument", f"a cluster has at most {most} nodes, since each votes on metadata")
    if node not in state.announced:
        return NodeRecord(node, "")  # one of those with which the cluster begins
    return NodeRecord(node, "", birth=state.next_birth)


def admitted(state: NodeTable, node: int) -> None:
    """Note that the node was registered as `admit` said."""
    if node in state.announced:
        del state.announced[node]
        state.next_birth += 1


def add_node(state: NodeTable, command: pb.AddNode) -> CommandResult:
    node = command.node
    if not 1 <= node < 2**31:
        raise CommandRefused("invalid-argument", f"node id {node}: must be 1 to 2147483647")
    if node in state.announced:
        return Ok()  # done before
    if node in state.nodes:
        raise CommandRefused("already-exists", f"node {node} belongs to the cluster; `holdfast node list` shows it")
    if node in state.tombstones:
        raise CommandRefused("not-allowed", f"node {node} was removed: its number is not used again. {_another(state)}")
    if len(state.tombstones) >= MAX_TOMBSTONES:
        raise CommandRefused("not-allowed", f"{MAX_TOMBSTONES} nodes were removed from this cluster: it takes no more")
    if len(state.nodes) + len(state.announced) >= MAX_NODES:
        raise CommandRefused("invalid-argument", f"a cluster has at most {MAX_NODES} nodes, announced ones included")
    state.announced[node] = None
    return Ok()


def leave_node(state: NodeTable, command: pb.LeaveNode) -> CommandResult:
    state.nodes[command.node] = leaving(state, command.node)
    return Ok()


def leaving(state: KnownNodes, node: int) -> NodeRecord:
    """Return what is known of a node when it has begun to leave. Raises CommandRefused, and changes nothing."""
    known = _registered(state, node)
    if known.state == "leaving":
        return known  # done before
    staying = [other for other, one in state.nodes.items() if one.state == "active" and other != node]
    if not staying:
        raise CommandRefused(
            "not-allowed", f"node {node} is the last one that stays: it votes on the metadata and keeps them"
        )
    large = [log for _, log in sorted(state.logs.items()) if log.replicas > len(staying)]
    if large:
        named = ", ".join(f"{log.name} has {log.replicas} replicas" for log in large[:8])
        raise CommandRefused(
            "not-enough-nodes",
            f"{named}, and {len(staying) + 1} nodes would be {len(staying)}; add a node first"
            + ("" if all(log.name == COORDINATORS for log in large) else ", or `holdfast log alter --replicas`"),
        )
    return replace(known, state="leaving")


def stay_node(state: NodeTable, command: pb.StayNode) -> CommandResult:
    if command.node in state.announced:
        del state.announced[command.node]
        return Ok()
    known = _registered(state, command.node)
    state.nodes[command.node] = replace(known, state="active")
    return Ok()


def remove_node(state: NodeTable, command: pb.RemoveNode) -> CommandResult:
    if command.node in state.tombstones:
        return Ok()  # done before
    known = _registered(state, command.node)
    if known.state != "leaving":
        raise CommandRefused("not-allowed", f"node {command.node} is not leaving: `holdfast node remove` comes first")
    held = sum(keeps(partition, command.node) for log in state.logs.values() for partition in log.partitions)
    if held:
        raise CommandRefused("not-allowed", f"node {command.node} still keeps {held} replica(s): they move away first")
    incarnations = known.former_incarnations + ((known.incarnation,) if known.incarnation else ())
    state.tombstones[command.node] = incarnations
    del state.nodes[command.node]
    return Ok()


def keeps(partition: PartitionRecord, node: int) -> bool:
    """True if the node keeps a replica of the partition, or is to keep one."""
    return node in partition.replicas or node in partition.target or partition.replica_on(node) is not None


def _registered(state: KnownNodes, node: int) -> NodeRecord:
    known = state.nodes.get(node)
    if known is not None:
        return known
    if node in state.tombstones:
        raise CommandRefused("not-found", f"node {node} was removed already")
    if node in state.announced:
        raise CommandRefused(
            "not-found", f"node {node} is announced, and never came: `holdfast node cancel {node}` takes that back"
        )
    listed = ", ".join(str(one) for one in sorted(state.nodes)) or "none"
    raise CommandRefused("not-found", f"node {node} is not registered; registered: {listed}")


def _another(state: NodeTable) -> str:
    free = max([0, *state.nodes, *state.announced, *state.tombstones]) + 1
    return f"Give the machine another node.id, such as {free}, and an empty data_dir"
