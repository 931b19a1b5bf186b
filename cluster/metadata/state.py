"""The commands of the metadata group, as pure functions on a state.

The rules: the same commands in the same order give the same state and the same answers on every node (no clock, no
randomness, no set order); a command that cannot be carried out changes nothing and is answered with `Refusal`, never
with an exception; group ids and log ids are never used twice. Commands stand in a table; one that this program does not
know stops the replica (`cluster/versions.py`), since other nodes may carry it out.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata import moves, shared_access_rules
from cluster.metadata import users_and_grants as access
from cluster.metadata.nodes import node_states
from cluster.metadata.placement import place
from cluster.metadata.planning.settings import set_balance
from cluster.metadata.types import (
    COMPRESSIONS,
    COORDINATORS,
    FIRST_BIRTH,
    UNCOMPRESSED,
    BalanceSettings,
    CommandRefused,
    CommandResult,
    ListenerAddress,
    LogRecord,
    MoveRecord,
    NodeRecord,
    Ok,
    PartitionRecord,
    Refusal,
)
from cluster.metadata.users_and_grants import AccessState
from cluster.stale_copy_detection import NEVER_STARTED, DirectoryStart, copy_fault
from cluster.versions import INSTALL, UNSET, VersionRange

MAX_REPLICAS = 7
"""A majority of more than seven costs more than it protects."""

MAX_LOGS = 10_000
MAX_PARTITIONS_PER_LOG = 1024
MAX_PARTITIONS = 20_000
"""Limit for the cluster. Each is a Raft group on several nodes (some 20 KiB of memory), 30 bytes of each checkpoint."""

MAX_RETENTION = 2**62
"""Milliseconds or bytes; keeps sums with clocks and sizes inside 64 bits."""

REMEMBERED_REQUESTS = 256
"""Answers kept for repeated requests. A repetition comes within seconds; administration is some commands a second."""

NAME = re.compile(r"(?![.$])[A-Za-z0-9._-]{1,200}")
NAME_RULE = "a name has 1 to 200 characters of A-Z a-z 0-9 . _ - and does not begin with a dot"

FIRST_GROUP = 1  # 0 is the metadata group itself


@dataclass
class MetadataState:
    next_group: int = FIRST_GROUP
    next_log_id: int = 1
    nodes: dict[int, NodeRecord] = field(default_factory=dict)
    logs: dict[str, LogRecord] = field(default_factory=dict)
    remembered: OrderedDict[bytes, tuple[Refusal | None, str]] = field(default_factory=OrderedDict)
    access: AccessState = field(default_factory=AccessState)
    cluster_id: int = 0
    """Identity of this cluster, for ever: drawn with the first node that is registered. 0: none is yet."""

    active_version: int = UNSET
    """Version of all that is said, logged and stored: drawn with the first registered node, raised by operators."""

    announced: dict[int, None] = field(default_factory=dict)
    """Nodes that an operator has announced and that have not come yet, as a set that keeps its order."""

    tombstones: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Incarnations of the data of each node that was removed."""

    next_birth: int = FIRST_BIRTH
    """Number of the next move, and birth of the replica that it brings."""

    moving: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Log and number of each partition that has a target or a move, by group. Derived from the logs, like the next."""

    under_way: dict[int, MoveRecord] = field(default_factory=dict)
    """Moves, by group."""

    queued: dict[int, moves.Exchange] = field(default_factory=dict)
    """The next move of each partition that has a target and no move, by group."""

    balance: BalanceSettings = field(default_factory=BalanceSettings)
    """Settings of the planner."""

    def execute(self, command: pb.Command) -> CommandResult:
        """Carry out a command, of which this program knows all."""
        if command.request_id in self.remembered:
            rejected, log = self.remembered[command.request_id]
            return rejected or Ok(self.logs.get(log))
        kind = command.WhichOneof("command")
        assert kind is not None, "it asks for nothing"
        try:
            result: CommandResult = COMMANDS[kind](self, getattr(command, kind))
            if self.queued:
                moves.advance(self)
                result = self._as_it_is_now(result)
        except CommandRefused as error:
            result = error.rejected
        self._remember(command.request_id, result)
        return result

    def _as_it_is_now(self, result: CommandResult) -> CommandResult:
        log = result.log if isinstance(result, Ok) else None
        return result if log is None else Ok(self.logs[log.name])

    def _remember(self, request_id: bytes, result: CommandResult) -> None:
        if not request_id:
            return
        rejected = result if isinstance(result, Refusal) else None
        log = result.log.name if isinstance(result, Ok) and result.log is not None else ""
        self.remembered[request_id] = (rejected, log)
        while len(self.remembered) > REMEMBERED_REQUESTS:
            self.remembered.popitem(last=False)

    @property
    def partition_count(self) -> int:
        return sum(len(log.partitions) for log in self.logs.values())

    def existing(self, name: str) -> LogRecord:
        if name not in self.logs:
            raise CommandRefused("not-found", f"there is no log {name[:220]!r}; `log list` shows those that are")
        return self.logs[name]

    def able_nodes(self) -> list[int]:
        """Nodes on which replicas may be placed."""
        return sorted(node for node, record in self.nodes.items() if record.state == "active")

    def require_nodes(self, replicas: int, nodes: Sequence[int]) -> None:
        """Refuse what needs more nodes than there are."""
        if len(nodes) < replicas:
            known = ", ".join(map(str, nodes)) or "none"
            raise CommandRefused(
                "not-enough-nodes",
                f"{replicas} replicas need {replicas} nodes; registered: {known}. Ask for fewer, or start more nodes",
            )

    def new_partitions(self, first: int, count: int, replicas: int) -> tuple[PartitionRecord, ...]:
        nodes = self.able_nodes()
        self.require_nodes(replicas, nodes)
        if self.partition_count + count > MAX_PARTITIONS:
            raise CommandRefused(
                "invalid-argument",
                f"the cluster has {self.partition_count} partitions, {count} more would exceed {MAX_PARTITIONS}",
            )
        held, led = moves.loads(self)
        racks = {node: record.rack for node, record in self.nodes.items() if record.rack}
        placed = place(count, replicas, nodes, held, led, racks)
        group, self.next_group = self.next_group, self.next_group + count
        return tuple(PartitionRecord(str(first + i), group + i, members) for i, members in enumerate(placed))


def _register_node(state: MetadataState, command: pb.RegisterNode) -> CommandResult:
    if not 1 <= command.node < 2**31:
        raise CommandRefused("invalid-argument", f"node id {command.node}: must be 1 to 2147483647")
    known = node_states.admit(state, command)
    if known.incarnation and command.incarnation not in (0, known.incarnation):
        raise CommandRefused(
            "not-allowed",
            f"node {command.node} is known by the data of incarnation {known.incarnation:016x} and comes with "
            f"{command.incarnation:016x}: start it with its own data_dir; only if its data are lost for good, "
            f"`holdfast node readmit {command.node}`",
        )
    start = DirectoryStart(command.boot, tuple(command.marks))
    fault = copy_fault(start, known.start) if known.incarnation else None
    if fault is not None:
        raise CommandRefused("not-allowed", f"node {command.node} does not come with the latest of its data: {fault}")
    versions = VersionRange(command.oldest, command.newest)
    if command.newest and (fault := versions.fault(state.active_version)) is not None:
        raise CommandRefused("not-allowed", f"node {command.node} cannot join with its program: {fault}")
    listeners = tuple(ListenerAddress(listener.name, listener.address) for listener in command.listeners)
    state.nodes[command.node] = replace(
        known,
        rpc_address=command.rpc_address,
        listeners=listeners,
        incarnation=command.incarnation or known.incarnation,
        start=start.known if start.boot else known.start,
        versions=versions,
    )
    node_states.admitted(state, command.node)
    state.cluster_id = state.cluster_id or command.cluster_id
    state.active_version = state.active_version or command.newest
    return Ok()


def _set_rack(state: MetadataState, command: pb.SetRack) -> CommandResult:
    known = state.nodes.get(command.node)
    if known is None:
        raise CommandRefused("not-found", f"node {command.node} was never registered")
    state.nodes[command.node] = replace(known, rack=command.rack)
    return Ok()


def _activate_version(state: MetadataState, command: pb.ActivateVersion) -> CommandResult:
    if command.version == state.active_version:
        return Ok()  # done before
    if command.version < state.active_version:
        raise CommandRefused(
            "not-allowed", f"version {state.active_version} is active, and there is no way back to {command.version}"
        )
    heard = {one.node: (one.incarnation, one.boot) for one in command.starts}
    for node, record in sorted(state.nodes.items()):
        if command.version not in record.versions:
            raise CommandRefused(
                "not-allowed",
                f"node {node} was started last with a program that knows {record.versions}: {INSTALL}, and retry",
            )
        if heard.get(node) != (record.incarnation, record.start.boot):
            raise CommandRefused(
                "not-allowed", f"node {node} was started again, or registered, meanwhile: ask again when it is heard"
            )
    if not state.nodes:
        raise CommandRefused("not-allowed", "no node is registered")
    state.active_version = command.version
    return Ok()


def _readmit_node(state: MetadataState, command: pb.ReadmitNode) -> CommandResult:
    known = state.nodes.get(command.node)
    if known is None:
        listed = ", ".join(str(node) for node in sorted(state.nodes)) or "none"
        raise CommandRefused("not-found", f"node {command.node} was never registered; registered: {listed}")
    if not command.incarnation:
        raise CommandRefused("invalid-argument", "incarnation: must name the node's new data directory")
    if known.incarnation == command.incarnation:
        return Ok()  # done before
    if command.incarnation in known.former_incarnations:
        raise CommandRefused(
            "not-allowed",
            f"incarnation {command.incarnation:016x} is of data that node {command.node} had before it was readmitted: "
            "they have forgotten what it promised since, without a sign of it. Start it with an empty data_dir, and "
            "readmit that one",
        )
    state.nodes[command.node] = replace(
        known,
        incarnation=command.incarnation,
        readmissions=known.readmissions + 1,
        lost_below_group=state.next_group,
        former_incarnations=known.former_incarnations + ((known.incarnation,) if known.incarnation else ()),
        start=NEVER_STARTED,
        lost_below_birth=state.next_birth if state.next_birth > FIRST_BIRTH else 0,
    )
    moves.node_lost_disk(state, command.node)
    return Ok()


def _create_log(state: MetadataState, command: pb.CreateLog) -> CommandResult:
    if not NAME.fullmatch(command.name) and command.name != COORDINATORS:
        raise CommandRefused("invalid-argument", f"log name {command.name[:220]!r}: {NAME_RULE}")
    if command.name in state.logs:
        old = state.logs[command.name]
        raise CommandRefused(
            "already-exists",
            f"log {command.name!r} exists, with {len(old.partitions)} partitions and {old.replicas} replicas; "
            "`log alter` changes it",
        )
    if len(state.logs) >= MAX_LOGS:
        raise CommandRefused("invalid-argument", f"there are {MAX_LOGS} logs, and no room for more: delete some")
    _check_partitions(command.partitions)
    if not 1 <= command.replicas <= moves.MAX_VOTERS:
        raise CommandRefused("invalid-argument", f"replicas {command.replicas}: must be 1 to {moves.MAX_VOTERS}")
    retention_ms = _retention("retention_ms", command.retention_ms)
    retention_bytes = _retention("retention_bytes", command.retention_bytes)
    compression = _compression(command.compression)
    partitions = state.new_partitions(0, command.partitions, command.replicas)
    log = LogRecord(
        name=command.name,
        id=state.next_log_id,
        replicas=command.replicas,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        created_ms=command.now_ms,
        partitions=partitions,
        compression=compression,
    )
    state.next_log_id += 1
    state.logs[log.name] = log
    return Ok(log)


def _alter_log(state: MetadataState, command: pb.AlterLog) -> CommandResult:
    if {one.name for one, _ in command.ListFields()} - {"away"} != {"name", "replicas"}:
        _check_ours(command.name)
    log = state.existing(command.name)
    changes: dict[str, Any] = {}
    if command.HasField("replicas"):  # before partitions are placed by it
        moves.check_replicas(state, command.replicas)
    if command.HasField("retention_ms"):
        changes["retention_ms"] = _retention("retention_ms", command.retention_ms)
    if command.HasField("retention_bytes"):
        changes["retention_bytes"] = _retention("retention_bytes", command.retention_bytes)
    if command.HasField("compression"):
        changes["compression"] = _compression(command.compression)
    if command.HasField("partitions"):
        _check_partitions(command.partitions)
        have = len(log.partitions)
        if command.partitions < have:
            raise CommandRefused(
                "invalid-argument",
                f"log {log.name!r} has {have} partitions; their number can only grow, since the events in them would "
                "be lost: create another log",
            )
        if command.partitions > have:
            replicas = command.replicas if command.HasField("replicas") else log.replicas
            changes["partitions"] = log.partitions + state.new_partitions(have, command.partitions - have, replicas)
    log = state.logs[log.name] = replace(log, **changes)
    if command.HasField("replicas"):
        log = moves.resize(state, log, command.replicas, frozenset(command.away))
    return Ok(log)


def _delete_log(state: MetadataState, command: pb.DeleteLog) -> CommandResult:
    _check_ours(command.name)
    for partition in state.existing(command.name).partitions:
        moves.forget(state, partition.group)
    del state.logs[command.name]
    return Ok()


def _check_ours(name: str) -> None:
    if name == COORDINATORS:
        raise CommandRefused("not-allowed", f"{name} holds the transaction coordinators: it stays as it was made")


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS_PER_LOG:
        raise CommandRefused("invalid-argument", f"partitions {partitions}: must be 1 to {MAX_PARTITIONS_PER_LOG}")


def _retention(name: str, value: int) -> int | None:
    if not 0 <= value <= MAX_RETENTION:
        raise CommandRefused("invalid-argument", f"{name} {value}: must be 0 (no bound) to {MAX_RETENTION}")
    return value or None


def _compression(name: str) -> str:
    if name and name not in COMPRESSIONS:
        raise CommandRefused(
            "invalid-argument", f"compression {name[:40]!r}: is not supported; it can be {', '.join(COMPRESSIONS)}"
        )
    return name or UNCOMPRESSED


COMMANDS: dict[str | None, Callable[[MetadataState, Any], CommandResult]] = {
    "register_node": _register_node,
    "create_log": _create_log,
    "alter_log": _alter_log,
    "delete_log": _delete_log,
    "readmit_node": _readmit_node,
    "activate_version": _activate_version,
    "set_rack": _set_rack,
    "add_node": node_states.add_node,
    "leave_node": node_states.leave_node,
    "stay_node": node_states.stay_node,
    "remove_node": node_states.remove_node,
    "reassign": moves.reassign,
    "cancel_moves": moves.cancel_moves,
    "finish_move": moves.finish_move,
    "stall_move": moves.stall_move,
    "set_balance": set_balance,
    "put_user": lambda state, command: access.put_user(state.access, command),
    "remove_user": lambda state, command: access.remove_user(state.access, command),
    "put_grant": lambda state, command: access.put_grant(state.access, command),
    "remove_grant": lambda state, command: access.remove_grant(state.access, command),
    "put_rule": lambda state, command: shared_access_rules.put_rule(state.access, command, state.logs),
    "rotate_rule": lambda state, command: shared_access_rules.rotate_rule(state.access, command),
    "remove_rule": lambda state, command: shared_access_rules.remove_rule(state.access, command),
}

ON_ACCESS = frozenset(
    {"put_user", "remove_user", "put_grant", "remove_grant", "put_rule", "rotate_rule", "remove_rule"}
)
"""Commands after which somebody may do more, or less, than before."""
