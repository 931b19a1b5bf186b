"""The state machine of the metadata group: entries in, state and answers out.

The rule: what a node does because of a change (opening and closing groups, telling clients) happens outside, on notice,
and is derived from the state alone, so that a node that was away does the same after it has caught up.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

from cluster.metadata import metadata_pb2 as pb
from cluster.metadata.codec import CheckpointUnreadable, decode_checkpoint, encode_checkpoint
from cluster.metadata.command_validation import entry_fault, is_of_later_version
from cluster.metadata.state import ON_ACCESS, MetadataState
from cluster.metadata.types import CommandResult, Ok, Refusal
from cluster.raft import ENTRY_REGULAR, DiskBatch, UnknownEntry
from cluster.versions import INSTALL, OURS, UNSET, VersionRange

KEPT_ENTRIES = 1000
"""Entries of the log that are kept at least; at most twice as many while all nodes are there. A node that was away for
more changes than that is sent the state instead, which is smaller than they are."""


def encode_command(command: pb.Command) -> bytes:
    """Encode a command as an entry of the group's log."""
    return ENTRY_REGULAR + command.SerializeToString()


class MetadataMachine:
    """Implements `cluster.raft.StateMachine`; writes nothing to the batch, its state is small and in the checkpoint."""

    def __init__(self, versions: VersionRange = OURS) -> None:
        """`versions`: that this program knows; one of another active version stops its replica."""
        self._versions = versions
        self.state = MetadataState()
        self.revision = 0  # of this process: changes whenever the state may have changed
        self.access_revision = 0  # the same of users and grants
        self.on_change: list[Callable[[], None]] = []  # called inside a turn: they note it and return

    def apply(self, index: int, term: int, data: bytes, batch: DiskBatch) -> CommandResult:
        try:
            command = pb.Command.FromString(data[len(ENTRY_REGULAR) :])
        except DecodeError:
            return Refusal("invalid-argument", f"entry {index} of the metadata group is not a command")
        if is_of_later_version(command):
            raise UnknownEntry(f"entry {index} is a metadata command that this program does not know: {INSTALL}")
        fault = entry_fault(command)
        if fault is not None:
            return Refusal("invalid-argument", f"entry {index} of the metadata group cannot be: {fault}")
        result = self.state.execute(command)
        if (fault := self._versions.fault(self.state.active_version)) is not None:
            raise UnknownEntry(fault)
        if isinstance(result, Ok):
            self.access_revision += command.WhichOneof("command") in ON_ACCESS
            self._changed()
        return result

    def checkpoint(self, version: int = UNSET) -> bytes:
        return encode_checkpoint(self.state, version)

    def restore(self, index: int, data: bytes | None) -> None:
        try:
            self.state = MetadataState() if data is None else decode_checkpoint(data)
        except DecodeError as error:
            raise CheckpointUnreadable(f"metadata checkpoint at index {index} is damaged: {error}") from error
        if (fault := self._versions.fault(self.state.active_version)) is not None:
            raise UnknownEntry(fault)
        self.access_revision += 1
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        for callback in list(self.on_change):
            callback()
