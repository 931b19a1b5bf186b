"""Configurations in one group's log, kept as rows beside its entries.

The problem: who votes has to be known before the first message, also where the entry that says so is trimmed, or came
by a snapshot. The rules: a row is in the batch of its entry; what cuts off the entry deletes the row; of a trimmed log
the newest row at or below its base stays; a snapshot brings the one in force at its index, in the batch that installs
it. The latest row is in force, committed or not.

A group that never changed has no rows: `founding`, given at its open, is its configuration. The first change writes
that down too, since whoever opens the group later may no longer know.

Rejected: finding them by reading the log. Nothing scans a log, and trimmed ones no longer have them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from cluster.raft.interfaces import Disk, DiskBatch, GroupId
from cluster.raft.log.key_layout import group_prefix, group_range
from cluster.raft.membership.configuration import Configuration, is_legal
from cluster.raft.membership.configuration_codec import decode_entry, encode_entry
from cluster.raft.proposal_outcomes import InvariantBroken, StateDamaged

_U64 = struct.Struct(">Q")
_CHECK = struct.Struct(">I")

NO_INDEX = 0


class ConfigurationRows:
    def __init__(
        self, group: GroupId, disk: Disk, batch: Callable[[], DiskBatch], founding: Configuration | None
    ) -> None:
        """`founding`: in force where no row is stored. None: then nothing is known of the members."""
        self._group = group
        self._batch = batch
        self._founding = founding
        self._rows: list[tuple[int, Configuration]] = []
        self.on_change: Callable[[], None] = _nothing
        """Called when another configuration is in force."""
        for key, value in disk.scan(*group_range(b"g", group)):
            self._rows.append((_U64.unpack(key[-8:])[0], self._read(value)))

    def _read(self, value: bytes) -> Configuration:
        body = value[_CHECK.size :]
        if _CHECK.pack(zlib.crc32(body)) != value[: _CHECK.size]:
            raise StateDamaged(
                f"Raft group {self._group}: a configuration does not match its checksum, so the replica cannot tell "
                f"who votes. If the other replicas are whole: `holdfast node repair-group NODE {self._group}`"
            )
        return decode_entry(body)

    # ---- asking

    @property
    def are_stored(self) -> bool:
        """True if the group has changed its members, as far as is known here."""
        return bool(self._rows)

    @property
    def latest(self) -> Configuration | None:
        """The configuration in force, committed or not. None: nothing is known of the members."""
        return self._rows[-1][1] if self._rows else self._founding

    @property
    def latest_index(self) -> int:
        """Index from which the latest is in force; NO_INDEX: the group never changed."""
        return self._rows[-1][0] if self._rows else NO_INDEX

    def as_of(self, index: int) -> Configuration | None:
        """The configuration that was in force at an index of the log."""
        return next((one for at, one in reversed(self._rows) if at <= index), self._founding)

    # ---- what happens to the log

    def appended(self, index: int, entry: bytes, base_index: int) -> None:
        """Put the configuration of an entry in force. Raises InvariantBroken if it may not follow the latest."""
        old, new = self.latest, decode_entry(entry)
        if old is not None and not is_legal(old, new):
            raise InvariantBroken(f"Raft group {self._group}: entry {index} ({new}) may not follow {old}")
        if not self._rows and old is not None:
            self._put(base_index, old)
        self._put(index, new)
        self.on_change()

    def truncated(self, start: int) -> None:
        """Drop the rows of entries from `start` on, which are cut off."""
        if self.latest_index < start:
            return
        self._delete(start, self.latest_index + 1)
        self._rows = [(index, one) for index, one in self._rows if index < start]
        self.on_change()

    def trimmed(self, base_index: int) -> None:
        """Keep the newest row at or below the new base, of all that are below it."""
        below = [index for index, _ in self._rows if index <= base_index]
        if len(below) > 1:
            self._delete(0, below[-1])
            self._rows = self._rows[len(below) - 1 :]

    def replaced(self, index: int, configuration: Configuration | None) -> None:
        """Take over the configuration that a snapshot has at its index. None: its group never changed."""
        if self._rows:
            self._delete(0, self.latest_index + 1)
            self._rows = []
        if configuration is not None:
            self._put(index, configuration)
        self.on_change()

    def _put(self, index: int, configuration: Configuration) -> None:
        body = encode_entry(configuration)
        self._rows.append((index, configuration))
        self._batch().put(self._key(index), _CHECK.pack(zlib.crc32(body)) + body)

    def _delete(self, start: int, end: int) -> None:
        self._batch().delete_range(self._key(start), self._key(end))

    def _key(self, index: int) -> bytes:
        return group_prefix(b"g", self._group) + _U64.pack(index)


def stored_configuration(group: GroupId, disk: Disk) -> Configuration | None:
    """The latest configuration that is stored of a group which is not open; None: none is. Raises StateDamaged."""
    return ConfigurationRows(group, disk, disk.batch, None).latest


def _nothing() -> None:
    """Tell nobody."""
