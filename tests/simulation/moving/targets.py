"""The board as the metadata group writes it: its commands, carried out by its own state machine, at each reader's pace.

What a node knows is what the commands that it has read have made of its own state, from the first command on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.metadata import (
    CommandResult,
    Ok,
    PartitionRecord,
    cancel_moves,
    create_log,
    finish_move,
    readmit_node,
    reassign,
    register_node,
)
from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.moves import find_group
from cluster.metadata.state import MetadataState
from cluster.raft.membership.changes import Wish
from cluster.raft.membership.configuration import Configuration, founding
from node.movement.lifecycle import LostBelow
from tests.simulation.checker import Violation
from tests.simulation.moving.board import Board, GroupWishes


@dataclass
class TargetedGroup(GroupWishes):
    """One group, as a state of the metadata has it."""

    record: PartitionRecord | None = None

    def birth_on(self, node: int) -> int | None:
        assert self.record is not None
        replica = self.record.replica_on(node)
        return None if replica is None else replica.birth

    def as_record(self, group: int) -> PartitionRecord:
        assert self.record is not None
        return self.record

    @property
    def is_at_rest(self) -> bool:
        """Nothing is to move, nor does it."""
        assert self.record is not None
        return not self.record.target and self.record.move is None


class MetadataReader:
    """A state of the metadata that is as old as what was read of the commands."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self._read = 0

    def read(self, commands: Sequence[pb.Command], count: int) -> MetadataState:
        """The state after so many commands. One that is to know fewer than before begins anew."""
        if count < self._read:
            self.state, self._read = MetadataState(), 0
        for command in itertools.islice(commands, self._read, count):
            self.carry_out(command)
        return self.state

    def carry_out(self, command: pb.Command) -> CommandResult:
        self._read += 1
        return self.state.execute(command)


class TargetBoard(Board):
    """Founders are chosen by the state machine: one log for each number of replicas that is asked for."""

    def __init__(self, nodes: Sequence[int], replicas: Sequence[int], first_nodes: Sequence[int]) -> None:
        """`first_nodes`: they are there when the logs are made; the others are registered after that."""
        super().__init__({}, {})
        self.commands: list[pb.Command] = []
        self._latest, self._readers = MetadataReader(), dict[int, MetadataReader]()
        for node in first_nodes:
            self._register(node)
        for number, count in enumerate(replicas):
            self.post(create_log(f"log-{number}", now_ms=1, partitions=1, replicas=count))
        for node in nodes:
            if node not in first_nodes:
                self._register(node)
        for log in self.state.logs.values():
            for partition in log.partitions:
                self.founders[partition.group] = partition.replicas

    def _register(self, node: int) -> None:
        self.post(register_node(node, f"10.0.0.{node}:7000", {}, 1000 * node))

    @property
    def state(self) -> MetadataState:
        """What the leader of the metadata knows."""
        return self._latest.read(self.commands, len(self.commands))

    @property
    def length(self) -> int:
        return len(self.commands)

    def post(self, command: pb.Command) -> None:
        """Put a command into the log, which nobody may refuse."""
        self.commands.append(command)
        result = self._latest.carry_out(command)
        if not isinstance(result, Ok):
            raise Violation(f"the metadata refuse {command}: {result}")

    # ---- readers

    def read(self, seen: int, reader: int = 0) -> dict[int, GroupWishes]:
        """`reader`: a node, which has a state of its own."""
        return self._groups(self._state_of(reader, seen))

    def _state_of(self, reader: int, seen: int) -> MetadataState:
        return self._readers.setdefault(reader, MetadataReader()).read(self.commands, seen)

    def now(self) -> dict[int, GroupWishes]:
        return self._groups(self.state)

    def _groups(self, state: MetadataState) -> dict[int, GroupWishes]:
        found = {partition.group: partition for log in state.logs.values() for partition in log.partitions}
        return {group: self._group(record) for group, record in found.items()}

    def _group(self, record: PartitionRecord) -> TargetedGroup:
        committed = self.judges[record.group].configurations.get(record.configuration_version)
        if committed is None:
            committed = founding(record.founders)
        if committed.voters != frozenset(record.settled) or committed.version != record.configuration_version:
            raise Violation(f"group {record.group} is settled as {record}, and {committed} was committed")
        move = record.move
        wish = None if move is None else Wish(
            move.id, move.version, voter=move.add, gone=move.remove, is_cancelled=move.cancel_asked
        )  # fmt: skip
        return TargetedGroup(record.founders, committed, wish, record=record)

    # ---- what is proposed to the metadata

    def aim(self, group: int, nodes: Sequence[int]) -> None:
        """State a target."""
        self.post(reassign([(group, self._record(group).configuration_version, nodes)]))

    def cancel(self, group: int) -> None:
        self.post(cancel_moves([group]))

    def report(self, group: int, configuration: Configuration) -> None:
        """A leader's log is past a move. That comes late, and again: the state machine has to bear it."""
        judge, before = self.judges[group], self._record(group)
        move = before.move
        if judge.configurations.get(configuration.version) != configuration or configuration.is_joint:
            raise Violation(f"group {group}: {configuration} is reported, and was not committed as the end of a move")
        if move is not None and move.id == configuration.ended and move.add not in (None, *configuration.voters):
            judge.told_cancelled.add(move.id)
            judge.check_told()
        self.post(finish_move(group, configuration.ended, configuration.version, configuration.voters))
        if self._record(group).configuration_version < before.configuration_version:
            raise Violation(f"group {group}: {self._record(group)} follows {before}")

    def _record(self, group: int) -> PartitionRecord:
        found = find_group(self.state, group)
        assert found is not None
        return found[1]

    # ---- disks

    def disk_lost(self, node: int, incarnation: int) -> None:
        self.post(readmit_node(node, incarnation))

    def lost_on(self, node: int, number: int, seen: int) -> LostBelow:
        known = self._state_of(node, seen).nodes.get(node)
        return LostBelow(0, 0) if known is None else LostBelow(known.lost_below_group, known.lost_below_birth)

    def knows(self, node: int, incarnation: int, seen: int) -> bool:
        known = self._state_of(node, seen).nodes.get(node)
        return known is not None and known.incarnation == incarnation
