"""Moves of replicas: how the metadata get each partition to its target, one move after the other.

The problem: a partition goes from one set of nodes to another by moves of which each takes minutes, and what asked for
it may be gone by then. The rules: an operator or a plan states a *target*, and the next move follows from the state
alone, at once or when slots are free; a group has one move at a time; what became of a move is what its group's log
says, and of two reports the one of the later configuration counts; whoever stated a target for an older configuration
is refused. A move's number is drawn like a birth, and is the birth of the replica that comes.

A cancel ends the target and asks the group. Only the group's answer ends the move: it may be too late.

Rejected: commands that begin single moves. A plan would have to be driven, by a process that may die in the middle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.types import (
    CommandRefused,
    CommandResult,
    LogRecord,
    MoveRecord,
    NodeRecord,
    Ok,
    PartitionRecord,
)
from cluster.raft.membership.configuration import FOUNDING_BIRTH, Replica

MAX_VOTERS = 7
"""Replicas of one partition: a majority of more costs more than it protects."""

MAX_MOVES = 32
MAX_MOVES_TO_NODE = 4
MAX_MOVES_FROM_NODE = 8
"""Moves under way at a time in the cluster, to a node and from one. A move holds memory for pieces and checkpoints."""


Exchange = tuple[int | None, Replica | None]
"""The node that comes, and the replica that goes for it."""


class MovingState(Protocol):
    """The part of the metadata that moves are about."""

    nodes: dict[int, NodeRecord]
    logs: dict[str, LogRecord]
    next_birth: int
    """Number of the next move, and birth of the replica that it brings."""
    moving: dict[int, tuple[str, int]]
    """Log and number of each partition that has a target or a move, by group. Derived from the logs, like the next."""
    under_way: dict[int, MoveRecord]
    """Moves, by group."""
    queued: dict[int, Exchange]
    """The next move of each partition that has a target and no move, by group."""

    def able_nodes(self) -> list[int]: ...
    def require_nodes(self, replicas: int, nodes: Sequence[int]) -> None: ...


def reassign(state: MovingState, command: pb.Reassign) -> CommandResult:
    """State targets: all of the command, or none."""
    places = _places(state)
    chosen = check_targets(state, command, places)
    records = (
        _aimed(_at(state, places[group])[1], target, command.reason, command.plan) for group, target in chosen.items()
    )
    _put_all(state, places, list(records))
    return Ok()


def check_targets(
    state: MovingState, command: pb.Reassign, places: Mapping[int, tuple[str, int]] | None = None
) -> dict[int, tuple[int, ...]]:
    """Check the targets of a command, and return them by group. Raises CommandRefused."""
    if not command.items:
        raise CommandRefused("invalid-argument", "items: name a partition, and the nodes that are to keep it")
    places, able = places or _places(state), set(state.able_nodes())
    chosen: dict[int, tuple[int, ...]] = {}
    for item in command.items:
        if item.group not in places:
            raise _no_group(item.group)
        log, record = _at(state, places[item.group])
        if item.group in chosen:
            raise CommandRefused("invalid-argument", f"{_shown(log, record)} is named twice: give it one target")
        _check_target(state, able, log, record, item)
        chosen[item.group] = tuple(item.replicas)
    return chosen


def cancel_moves(state: MovingState, command: pb.CancelMoves) -> CommandResult:
    """End targets, and ask for the end of moves under way."""
    groups = command.groups or sorted(state.moving)
    places = state.moving if all(group in state.moving for group in groups) else _places(state)
    for group in groups:
        if group not in places:
            raise _no_group(group)
    records = [_at(state, places[group])[1] for group in groups]
    _put_all(state, places, [_cancelled(record) for record in records])
    return Ok()


def finish_move(state: MovingState, command: pb.FinishMove) -> CommandResult:
    """Take over what a group's log says. A report that is late or repeated changes nothing."""
    settled = tuple(Replica(one.node, one.birth) for one in command.replicas)
    if not 1 <= len({one.node for one in settled}) == len(settled) <= MAX_VOTERS:
        raise CommandRefused("invalid-argument", f"FinishMove.replicas of group {command.group} are no set of voters")
    found = find_group(state, command.group)
    if found is None:
        return Ok()  # its log was deleted meanwhile
    log, record = found
    if command.version <= record.configuration_version:
        return Ok()
    # A move that was planned for an older configuration can never begin, so it ends with the one that is reported.
    record = replace(record, founding=record.founders, configuration_version=command.version, move=None)
    _put(state, log, _with_replicas(record, settled))
    return Ok()


def stall_move(state: MovingState, command: pb.StallMove) -> CommandResult:
    """Leave the slot of a move that makes no progress to others. One that goes on takes a slot, free or not."""
    found = find_group(state, command.group)
    if found is not None and found[1].move is not None and found[1].move.id == command.move:
        log, record = found
        _put(state, log, replace(record, move=replace(found[1].move, stalled=not command.goes_on)))
    return Ok()


def check_replicas(state: MovingState, replicas: int) -> None:
    """Refuse a number of replicas that no log can have now."""
    if not 1 <= replicas <= MAX_VOTERS:
        raise CommandRefused("invalid-argument", f"replicas {replicas}: must be 1 to {MAX_VOTERS}")
    state.require_nodes(replicas, state.able_nodes())


def resize(state: MovingState, log: LogRecord, replicas: int, away: Collection[int] = ()) -> LogRecord:
    """State targets of another size for all partitions of a log. Nodes that are away keep a replica only if there are
    too few others. Returns the log as it is then."""
    nodes = state.able_nodes()
    log = replace(log, replicas=replicas)
    state.logs[log.name] = log
    held, led = loads(state)
    for number in range(len(log.partitions)):
        log = state.logs[log.name]
        record = log.partitions[number]
        target = _resized(state, record.wanted, replicas, nodes, held, led, away)
        held.subtract(record.wanted)
        held.update(target)
        if len(target) != len(record.wanted):
            _put(state, log, _aimed(record, target, f"{log.name} is to have {replicas} replicas", 0))
    return state.logs[log.name]


def node_lost_disk(state: MovingState, node: int) -> None:
    """Give up the moves to a node that lost what it had copied. Their targets stay: new moves bring new replicas."""
    for group in sorted(state.moving):
        log, record = moving_record(state, group)
        if record.move is not None and record.move.add is not None and record.move.add.node == node:
            _put(state, log, replace(record, move=replace(record.move, cancel_asked=True)))


def advance(state: MovingState) -> None:
    """Begin the moves that targets still ask for, in the order of the groups, as far as slots are free."""
    slots = _Slots(state.under_way.values())
    for group in sorted(group for group, exchange in state.queued.items() if slots.has_one(*exchange)):
        add, gone = state.queued[group]
        is_there = add is None and gone is None
        if not is_there and not slots.take(add, gone):
            continue
        log, record = moving_record(state, group)
        if is_there:
            _put(state, log, replace(record, target=(), reason="", plan=0))
            continue
        state.next_birth, number = state.next_birth + 1, state.next_birth
        coming = None if add is None else Replica(add, number)
        move = MoveRecord(number, record.configuration_version, coming, gone, reason=record.reason, plan=record.plan)
        _put(state, log, replace(record, move=move, founding=record.founders))


def find_group(state: MovingState, group: int) -> tuple[LogRecord, PartitionRecord] | None:
    """Find a partition by its group."""
    if group in state.moving:
        return moving_record(state, group)
    found = ((log, one) for log in state.logs.values() for one in log.partitions if one.group == group)
    return next(found, None)


def moving_record(state: MovingState, group: int) -> tuple[LogRecord, PartitionRecord]:
    """Look up a partition that has a target or a move."""
    return _at(state, state.moving[group])


def note_moving(state: MovingState, log: str, record: PartitionRecord) -> None:
    """Keep what is derived true to a partition that has changed."""
    forget(state, record.group)
    if record.target or record.move is not None:
        state.moving[record.group] = (log, int(record.name))
    if record.move is not None:
        state.under_way[record.group] = record.move
    elif record.target:
        state.queued[record.group] = _next_exchange(record)


def forget(state: MovingState, group: int) -> None:
    """Take a partition out of what is derived: it does not move, or is no more."""
    for derived in (state.moving, state.under_way, state.queued):
        derived.pop(group, None)


def loads(state: MovingState) -> tuple[Counter[int], Counter[int]]:
    """Replicas and preferred leaderships of each node, as they are to be."""
    held: Counter[int] = Counter()
    led: Counter[int] = Counter()
    for log in state.logs.values():
        for partition in log.partitions:
            held.update(partition.wanted)
            led[partition.wanted[0]] += 1
    return held, led


class _Slots:
    """Slots that moves under way take: in the cluster, to a node and from one."""

    def __init__(self, moves: Iterable[MoveRecord | None]) -> None:
        self._all = 0
        self._to: Counter[int] = Counter()
        self._from: Counter[int] = Counter()
        for move in moves:
            if move is not None and not move.stalled:
                self._note(move.add and move.add.node, move.remove and move.remove.node)

    def has_one(self, add: int | None, gone: Replica | None) -> bool:
        """True if there is a slot for this move; nothing that comes or goes needs none."""
        if add is None and gone is None:
            return True
        if self._all >= MAX_MOVES or (add is not None and self._to[add] >= MAX_MOVES_TO_NODE):
            return False
        return gone is None or self._from[gone.node] < MAX_MOVES_FROM_NODE

    def take(self, add: int | None, gone: Replica | None) -> bool:
        is_free = self.has_one(add, gone)
        if is_free:
            self._note(add, gone and gone.node)
        return is_free

    def _note(self, add: int | None, remove: int | None) -> None:
        self._all += 1
        if add is not None:
            self._to[add] += 1
        if remove is not None:
            self._from[remove] += 1


def _places(state: MovingState) -> dict[int, tuple[str, int]]:
    """Log and number of each partition, by group."""
    return {one.group: (log.name, number) for log in state.logs.values() for number, one in enumerate(log.partitions)}


def _no_group(group: int) -> CommandRefused:
    return CommandRefused("not-found", f"group {group} is of no log, or of one that was deleted: look again")


def _at(state: MovingState, place: tuple[str, int]) -> tuple[LogRecord, PartitionRecord]:
    name, number = place
    return state.logs[name], state.logs[name].partitions[number]


def _check_target(
    state: MovingState, able: Collection[int], log: LogRecord, record: PartitionRecord, item: pb.Target
) -> None:
    name, target = _shown(log, record), list(item.replicas)
    if not target:
        raise CommandRefused("invalid-argument", f"{name} would have no replica: name the nodes that are to keep it")
    if len(set(target)) < len(target):
        raise CommandRefused("invalid-argument", f"{name}: a node is named twice in {target}; name each once")
    if len(target) > MAX_VOTERS:
        raise CommandRefused(
            "invalid-argument", f"{name}: {len(target)} replicas, and a partition has at most {MAX_VOTERS}"
        )
    unknown = [node for node in target if node not in state.nodes]
    if unknown:
        known = ", ".join(map(str, sorted(state.nodes)))
        raise CommandRefused("not-found", f"{name}: node {unknown[0]} is not registered; registered: {known}")
    unable = [node for node in target if node not in able and node not in record.replicas]
    if unable:
        raise CommandRefused("not-allowed", f"{name}: node {unable[0]} leaves the cluster; choose another one")
    if len(target) != log.replicas:
        raise CommandRefused(
            "not-allowed",
            f"{name}: log {log.name} has {log.replicas} replicas, and {len(target)} nodes are named: name "
            f"{log.replicas}, or change the log by `log alter --replicas`",
        )
    if item.version not in (0, record.configuration_version):
        raise CommandRefused(
            "not-allowed",
            f"{name}: its replicas have changed since this was decided (configuration {item.version}, now "
            f"{record.configuration_version}): look again",
        )


def _aimed(record: PartitionRecord, target: tuple[int, ...], reason: str, plan: int) -> PartitionRecord:
    move = record.move
    if move is not None:
        contradicts = move.add is not None and move.add.node not in target
        contradicts |= move.remove is not None and move.remove.node in target
        move = replace(move, cancel_asked=move.cancel_asked or contradicts)
    record = replace(record, target=target, move=move, reason=reason, plan=plan)
    return _with_replicas(record, record.settled)


def _cancelled(record: PartitionRecord) -> PartitionRecord:
    move = record.move and replace(record.move, cancel_asked=True)
    return replace(record, target=(), reason="", plan=0, move=move)


def _with_replicas(record: PartitionRecord, settled: Sequence[Replica]) -> PartitionRecord:
    """Order replicas as the target names them, then as they were: who is to leave comes last."""
    order = {node: place for place, node in reversed(list(enumerate((*record.target, *record.replicas))))}
    ordered = sorted(settled, key=lambda one: (order.get(one.node, len(order) + MAX_VOTERS), one.node))
    births = tuple(one.birth for one in ordered)
    founding = record.founders
    replicas = tuple(one.node for one in ordered)
    return replace(
        record,
        replicas=replicas,
        births=() if set(births) == {FOUNDING_BIRTH} else births,
        founding=() if set(founding) == set(replicas) and not record.was_moved else founding,
    )


def _next_exchange(record: PartitionRecord) -> Exchange:
    """The next move of a partition that has a target; nothing comes and nothing goes: it is there."""
    coming = next((node for node in record.target if node not in record.replicas), None)
    going = [replica for replica in record.settled if replica.node not in record.target]
    return coming, going[-1] if going else None


def _resized(
    state: MovingState,
    nodes: Sequence[int],
    replicas: int,
    able: Collection[int],
    held: Mapping[int, int],
    led: Mapping[int, int],
    away: Collection[int],
) -> tuple[int, ...]:
    """Nodes of a partition that is to have so many replicas: those that are there, on distinct racks as far as there
    are enough. The preferred leader stays, if it is there."""
    chosen = list(nodes)
    racks = {node: record.rack or node for node, record in state.nodes.items()}
    while len(chosen) < replicas:
        taken = {racks.get(node) for node in chosen}
        free = [node for node in able if node not in chosen]
        chosen.append(min(free, key=lambda node: (node in away, racks[node] in taken, held[node], led[node], node)))
    while len(chosen) > replicas:
        shared = Counter(racks.get(node) for node in chosen)
        leaving = {node for node in chosen if node in away or node not in able}
        others = chosen if chosen[0] in away else chosen[1:]
        chosen.remove(max(others, key=lambda node: (node in leaving, shared[racks.get(node)] > 1, held[node], node)))
    return tuple(chosen)


def _put(state: MovingState, log: LogRecord, record: PartitionRecord) -> None:
    _put_all(state, {record.group: (log.name, int(record.name))}, [record])


def _put_all(state: MovingState, places: Mapping[int, tuple[str, int]], records: Sequence[PartitionRecord]) -> None:
    """Put partitions into their logs, each of which is made anew once. `places`: log and number of each, by group."""
    partitions: dict[str, list[PartitionRecord]] = {}
    for record in records:
        name, number = places[record.group]
        partitions.setdefault(name, list(state.logs[name].partitions))[number] = record
        note_moving(state, name, record)
    for name, every in partitions.items():
        state.logs[name] = replace(state.logs[name], partitions=tuple(every))


def _shown(log: LogRecord, record: PartitionRecord) -> str:
    return f"{log.name}/{record.name}"
