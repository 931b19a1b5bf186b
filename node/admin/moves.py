"""Administration of moves: where replicas are to be, which moves are under way, and what they wait for.

The rules: targets and cancels are commands of the metadata group; what becomes of a move its group's leader tells, and
each leader is asked for the moves that it drives. A group without a leader is shown as that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from cluster.features import Features
from cluster.metadata import (
    CommandProposer,
    LogRecord,
    MetadataView,
    NotConfirmed,
    PartitionRecord,
    Refusal,
    cancel_moves,
    reassign,
)
from cluster.metadata.metadata_pb2 import Command
from cluster.metadata.planning import BalanceInput, shared_rack
from cluster.rpc import ReplicaState
from node.admin.errors import AdminRequestFailed

MAX_DESCRIBED = 1000
"""Moves, and reasons besides, in one answer. Others wait behind them, and are counted."""

States = Mapping[int, Mapping[int, ReplicaState] | None]

Ask = Callable[[Sequence[int], Sequence[int]], Awaitable[States]]
"""(nodes, groups) -> states of their replicas, by node and group; None from a node that does not answer."""

AskLoad = Callable[[], Awaitable[BalanceInput]]
"""Asks all nodes that are up what they hold."""


class MoveAdministration:
    def __init__(
        self,
        proposer: CommandProposer,
        view: MetadataView,
        leader_of: Callable[[int], int | None],
        ask: Ask,
        ask_load: AskLoad,
        features: Features,
    ) -> None:
        self._proposer = proposer
        self._view = view
        self._leader_of = leader_of
        self._ask = ask
        self._ask_load = ask_load
        self._features = features

    def require_feature(self) -> None:
        """Raise AdminRequestFailed while replicas cannot move."""
        if not self._features.active("membership"):
            raise AdminRequestFailed(
                "not-allowed",
                "replicas move between nodes from version 15 on, and an earlier one is active: finalize the upgrade "
                "first (`holdfast cluster finalize`)",
            )

    async def reassign(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """State the target of one partition. Refused if replicas come to share a rack without need."""
        await self._current()
        log, record = self._partition(args)
        nodes, version = _nodes(args.get("to")), args.get("configuration_version") or 0
        command = reassign([(record.group, version, nodes)], reason="an operator asked for it")
        if not args.get("allow_same_rack") and self._view.refusal_of(command.reassign) is None:
            await self._require_racks(log, record, nodes)
        await self._execute(command)
        return self._moves_of(log.name, record.name)

    async def cancel(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Cancel the moves of a partition, of a log, or of the cluster."""
        await self._current()
        moving = [(log, record) for log, record in self._view.moving()]
        if "name" in args:
            log_record = self._log(args)
            moving = [(log, record) for log, record in moving if log.name == log_record.name]
        if args.get("partition") is not None:
            _, chosen = self._partition(args)
            moving = [(log, record) for log, record in moving if record.group == chosen.group]
        if moving:
            await self._execute(cancel_moves([record.group for _, record in moving]))
        return {"asked": [_named(log, record) for log, record in moving]}

    async def moves(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """List the moves under way, those that wait, and what else is not as it should be. Limit 0: count them only,
        which asks no other node."""
        await self._current()
        counts = self._view.count_moves()
        told = {"moving": counts.moving, "under_way": counts.under_way, "stalled": counts.stalled}
        limit = _limit(args.get("limit"))
        if not limit:
            return {**told, "moves": [], "unsettled": []}
        every = sorted(self._view.moving(), key=lambda pair: pair[1].move is None)
        return {**told, "moves": await self._described_of(every[:limit]), "unsettled": await self._unsettled()}

    async def _described_of(self, moving: Sequence[tuple[LogRecord, PartitionRecord]]) -> list[dict[str, Any]]:
        by_leader: dict[int, list[int]] = {}
        for _log, record in moving:
            leader = self._leader_of(record.group)
            if record.move is not None and leader is not None:  # of those that wait, nobody knows more
                by_leader.setdefault(leader, []).append(record.group)
        answers = await asyncio.gather(*(self._ask([node], groups) for node, groups in by_leader.items()))
        told: dict[int, ReplicaState] = {}
        for answer in answers:
            for states in answer.values():
                told |= states or {}
        return [self._described(log, record, told.get(record.group)) for log, record in moving]

    # ---- the parts

    async def _require_racks(self, log: LogRecord, record: PartitionRecord, nodes: Sequence[int]) -> None:
        """Raise AdminRequestFailed if replicas come to share a rack, and a node of another one is free."""
        racks = Counter(
            known.rack for node in nodes if (known := self._view.nodes.get(node)) is not None and known.rack
        )
        if max(racks.values(), default=0) < 2:
            return  # nobody has to be asked
        load = await self._ask_load()
        found = await asyncio.to_thread(shared_rack, load, self._view.balance, record.group, nodes)
        if found is not None:
            together = ", ".join(map(str, found.nodes))
            free = ", ".join(f"{node} ({_of(rack)})" for node, rack in found.free)
            raise AdminRequestFailed(
                "not-allowed",
                f"{log.name}/{record.name}: nodes {together} stand in rack {found.rack}, and other nodes are free: "
                f"{free}; name one of these instead, or allow it (`--allow-same-rack`)",
            )

    async def _unsettled(self) -> list[str]:
        """Reasons besides moves why a replica is missing, or a partition has no leader."""
        states = await self._ask(sorted(self._view.nodes), [])
        reasons = [f"node {node} does not answer" for node, told in states.items() if told is None]
        for log in self._view.logs.values():
            for record in log.partitions:
                name = f"{log.name}/{record.name}"
                if self._leader_of(record.group) is None:
                    reasons.append(f"{name} has no leader")
                if not record.target and record.move is None and len(record.replicas) != log.replicas:
                    reasons.append(
                        f"{name} has {len(record.replicas)} of {log.replicas} replicas, and none is on its way: "
                        f"`holdfast log alter {log.name} --replicas {log.replicas}` begins anew"
                    )
                for node in record.replicas:
                    state = (states.get(node) or {}).get(record.group)
                    if state is not None and (state.phase or not state.votes):
                        reasons.append(f"the replica of {name} on node {node} is not complete")
        return reasons[:MAX_DESCRIBED]

    def _described(self, log: LogRecord, record: PartitionRecord, told: ReplicaState | None) -> dict[str, Any]:
        move = record.move
        state, why = (told.move_state, told.move_waits_for) if told is not None else ("", "")
        if move is None:
            state, why = "queued", "other moves come first"
        elif self._leader_of(record.group) is None:
            state, why = "no leader", f"a majority of nodes {', '.join(map(str, record.replicas))} must be up"
        elif not state:
            state, why = "wished", "the leader of the partition has not begun yet"
        return {
            **_named(log, record),
            "add": None if move is None or move.add is None else move.add.node,
            "remove": None if move is None or move.remove is None else move.remove.node,
            "target": list(record.target),
            "state": "stalled" if told is not None and told.move_stalled else state,
            "waits_for": why,
            "cancel_asked": move is not None and move.cancel_asked,
            "reason": move.reason if move is not None else record.reason,
            "entries": 0 if told is None else told.move_entries,
            "entries_left": 0 if told is None else told.move_entries_left,
            "bytes_left": 0 if told is None else told.move_bytes_left,
        }

    def _moves_of(self, name: str, partition: str) -> dict[str, Any]:
        found = self._view.partition(name, partition)
        log = self._view.log(name)
        if found is None or log is None:
            return {"log": name, "partition": partition}
        return {**_named(log, found), "replicas": list(found.replicas), "target": list(found.target)}

    async def _current(self) -> None:
        self.require_feature()
        try:
            await self._proposer.current()
        except NotConfirmed as error:
            raise AdminRequestFailed("unavailable", f"what this node knows may be old: {error}") from error

    async def _execute(self, command: Command) -> None:
        result = await self._proposer.execute(command)
        if isinstance(result, Refusal):
            raise AdminRequestFailed(result.code, result.message)

    def _log(self, args: Mapping[str, Any]) -> LogRecord:
        name = args.get("name")
        record = self._view.log(name) if isinstance(name, str) else None
        if record is None:
            raise AdminRequestFailed(
                "not-found", f"there is no log {name!r}; `holdfast log list` shows those there are"
            )
        return record

    def _partition(self, args: Mapping[str, Any]) -> tuple[LogRecord, PartitionRecord]:
        log, number = self._log(args), args.get("partition")
        if not isinstance(number, int) or not 0 <= number < len(log.partitions):
            last = len(log.partitions) - 1
            raise AdminRequestFailed(
                "not-found", f"partition {number} does not exist: log {log.name} has 0 to {last}; choose one of these"
            )
        return log, log.partitions[number]


def _named(log: LogRecord, record: PartitionRecord) -> dict[str, Any]:
    return {"log": log.name, "partition": record.name, "group": record.group}


def _limit(value: Any) -> int:
    """Number of moves to describe: as many as are asked for, within what one answer holds."""
    if value is None:
        return MAX_DESCRIBED
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise AdminRequestFailed("invalid-argument", f"limit: must be a number of moves, not {value!r}")
    return min(value, MAX_DESCRIBED)


def _of(rack: str) -> str:
    return f"rack {rack}" if rack else "no rack"


def _nodes(text: Any) -> list[int]:
    parts = [part.strip() for part in text.split(",")] if isinstance(text, str) else []
    if not parts or not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts):
        raise AdminRequestFailed("invalid-argument", f"to: must name nodes by their numbers, as in 1,4,5, not {text!r}")
    return [int(part) for part in parts]
