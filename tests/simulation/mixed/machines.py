"""State machines of a later release: it knows notes, by a command in logs of partitions, and has a layout for them.

What must hold: no note is applied, and no later layout is written, before the later version was activated; and nothing
is written in an earlier layout that has no room for what the state holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.metadata import MetadataMachine
from cluster.metadata.state import MetadataState
from cluster.raft import DiskBatch
from cluster.versions import NEWEST, UNSET, VersionRange
from node.partition.state_machine import PartitionMachine
from tests.simulation.checker import Violation

LATER = NEWEST + 1
EARLIER_PROGRAM, LATER_PROGRAM = VersionRange(NEWEST, NEWEST), VersionRange(NEWEST, LATER)
NOTE = bytes((0, 99))
"""An entry, of a tag that the release as it is does not know."""
_LATER_LAYOUT = b"later"


class JudgedMetadata(MetadataMachine):
    """Metadata of either program; `on_active` is told when a version was activated."""

    def __init__(self, program: VersionRange, on_active: Callable[[MetadataState], None]) -> None:
        super().__init__(program)
        self._on_active = on_active

    def apply(self, index: int, term: int, data: bytes, batch: DiskBatch) -> Any:
        before = self.state.active_version
        try:
            return super().apply(index, term, data, batch)
        finally:
            if before != self.state.active_version == LATER:
                self._on_active(self.state)


class LaterPartition(PartitionMachine):
    """A partition as the later program has it."""

    def __init__(self, is_activated: Callable[[], bool], may_use: Callable[[str], bool]) -> None:
        super().__init__()
        self.notes = 0
        self.may_use = may_use  # for mutations: the machine itself never asks
        self._is_activated = is_activated

    def apply(self, index: int, entry: bytes) -> Any:
        if entry != NOTE:
            return super().apply(index, entry)
        if not self._is_activated():
            raise Violation(f"entry {index} is a note, and nothing was activated")
        self.state.applied_index = index
        self.notes += 1
        return "noted", ()

    def whole_state(self) -> bytes:
        return super().checkpoint(NEWEST) + (b"%d notes" % self.notes if self.notes else b"")

    def checkpoint(self, version: int = UNSET) -> bytes:
        if version < LATER:
            if self.notes:
                raise Violation(f"{self.notes} notes would be forgotten by a checkpoint of version {version}")
            return super().checkpoint(version)
        if not self._is_activated():
            raise Violation(f"a checkpoint of version {version}, and nothing was activated")
        return _LATER_LAYOUT + self.notes.to_bytes(4, "big") + super().checkpoint(version)

    def restore(self, data: bytes | None) -> None:
        self.notes = 0
        if data is not None and data.startswith(_LATER_LAYOUT):
            self.notes = int.from_bytes(data[5:9], "big")
            data = data[9:]
        super().restore(data)
