"""A node on which either of two releases is installed, and another one from its next start on.

The versions that its data name, and the words of Hello, are judged by the production code. What must hold besides: no
process of the earlier program runs on data that the later version was written to; and none is stopped by an activation
but one whose start the metadata had not heard of.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from cluster import features
from cluster.features import Features
from cluster.metadata import MetadataMachine
from cluster.metadata.state import MetadataState
from cluster.raft import METADATA_GROUP, RaftError, RaftGroup
from cluster.versions import NEWEST, UNSET, VersionRange, mismatch
from node.partition.partition_replica import PartitionReplica
from node.storage import OtherVersion
from node.storage.data_versions import DataVersions
from tests.simulation.checker import Violation
from tests.simulation.mixed.machines import (
    EARLIER_PROGRAM,
    LATER,
    LATER_PROGRAM,
    NOTE,
    JudgedMetadata,
    LaterPartition,
)
from tests.simulation.world.nodes import Frame, SimNode

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

MOST_NOTES = 5
"""Of a partition: they are there to be in the way of what is wrong."""


class MixedNode(SimNode):
    def __init__(self, schedule: Schedule, node_id: int) -> None:
        self.program = EARLIER_PROGRAM
        self.boot = 0
        self.data = DataVersions(NEWEST, NEWEST)
        """What the file in its directory says; durable at once."""
        self.registered_at_activation = 0
        super().__init__(schedule, node_id)

    # ---- life

    def install(self, *, later: bool) -> bool:
        """Start again with this release, if it is another one."""
        program = LATER_PROGRAM if later else EARLIER_PROGRAM
        if program == self.program or not self.is_running:
            return False
        self.schedule.trace(f"{self.id} gets the program of {program}")
        self.program = program
        self.schedule.faults.bounce(self, down_s=self.schedule.randomness.uniform(0.002, 0.1))
        return True

    def replace(self) -> None:
        self.data = DataVersions(NEWEST, NEWEST)
        super().replace()

    def _start(self) -> None:
        had = self.data.newest
        try:
            self.data.require(self.program.oldest, self.program.newest, Path(f"data of {self.id}"))
        except OtherVersion:
            self.schedule.count("refused an earlier program")
            self.program = LATER_PROGRAM  # somebody installs it again
        if had not in self.program:
            raise Violation(f"node {self.id} starts the program of {self.program} on data of version {had}")
        self.boot += 1
        super()._start()
        self.schedule.load.registers(self)

    def _features(self) -> Features:
        ours = Features(self.program, self.data.newest if self.data.newest > NEWEST else UNSET)
        ours.on_rise.append(self._rise)
        return ours

    def _rise(self, version: int) -> None:
        if version > self.data.newest:
            self.data = DataVersions(self.data.oldest, version)
            self.schedule.count("risen")

    def _metadata_machine(self) -> MetadataMachine:
        machine = JudgedMetadata(self.program, self._activated)
        machine.on_change.append(lambda: self.features.rise(machine.state.active_version))
        return machine

    def changed_machine(self, machine: Any) -> Any:
        if isinstance(machine, PartitionReplica) and LATER in self.program:
            machine._machine = LaterPartition(lambda: self.schedule.load.is_activated, self.features.active)
        return machine

    def _activated(self, state: MetadataState) -> None:
        for node, record in state.nodes.items():
            if LATER not in record.versions:
                raise Violation(f"version {LATER} is activated, and node {node} was started with {record.versions}")
        self.schedule.load.activated({node: record.start.boot for node, record in state.nodes.items()})

    def _quarantined(self, group: RaftGroup) -> None:
        """The earlier program may meet the activation itself, if its start was not heard of by then; nothing else."""
        registered = self.schedule.load.registered_at_activation.get(self.id)
        is_expected = group.group_id == METADATA_GROUP and self.program == EARLIER_PROGRAM
        if not is_expected or registered is None or registered >= self.boot:
            super()._quarantined(group)
        self.schedule.count("stopped by an activation")
        self.after(self.schedule.now, lambda: self.install(later=True))

    # ---- the network

    def _lead(self) -> Frame:
        return (bytes((self.program.oldest, self.program.newest, self.features.heard)),)

    def arrive(self, sender: int, frame: Frame) -> None:
        if self.schedule.now < self._paused_until:
            self._held.append((sender, frame))
            return
        oldest, newest, heard = frame[0]
        why = mismatch(self.program, self.features.heard, VersionRange(oldest, newest), heard)
        if why is not None:
            self.schedule.count("not let in")
            return
        self.features.rise(heard)
        super().arrive(sender, frame[1:])

    # ---- what the later release does

    def compaction(self) -> None:
        super().compaction()
        for group in self.multiraft.groups.values():
            if group.quarantined is None and group.rewritten_version < self.features.version == LATER:
                group.rewrite()
                self.schedule.count("rewritten")
        for replica in self.replicas.all_open():
            machine = replica._machine
            if isinstance(machine, LaterPartition) and machine.notes < MOST_NOTES and replica.is_leader:
                self._note(replica)

    def _note(self, replica: PartitionReplica) -> None:
        if self.features.active("notes"):
            with contextlib.suppress(RaftError):
                replica.group.propose(NOTE, lambda _: self.schedule.count("note"))


@contextlib.contextmanager
def with_notes(schedule: Schedule) -> Iterator[None]:
    """The later version brings them."""
    with mock.patch.dict(features.FEATURES, {"notes": LATER}):
        yield
