"""Staging: the part of a snapshot that a replica has received so far, on disk.

The problem: a snapshot may be gigabytes, and a replica that is interrupted must not begin again. The rules: entries go
into the space of the group that is not its log (`log_store`), where nobody reads them; the note of how far they go is
in the same batch as the entries, and the turn that stages them is synced like one that appends; committed entries never
change, so what one leader sent is good for the next; and nothing here changes the log itself.

Rows of the state machine are not staged but written in place: they are a function of the log, and a machine bears rows
of entries that it has not applied yet, since a crash leaves them behind too.

Rejected: files beside the store. They would need their own checksums, syncs and cleaning up.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence

from cluster.raft.interfaces import Disk, DiskBatch, GroupId
from cluster.raft.log.key_layout import group_prefix, group_range
from cluster.raft.log.log_store import LogStore

_U64 = struct.Struct(">Q")
_NOTE = struct.Struct(">BQQQ")  # layout, base index, base term, next entry; then pairs of first index and term
_PAIR = struct.Struct(">QQ")
_CHECK = struct.Struct(">I")
_LAYOUT = 1


class Staging:
    def __init__(self, group: GroupId, disk: Disk, log_store: LogStore, batch: Callable[[], DiskBatch]) -> None:
        self._key = group_prefix(b"s", group)
        self._log_store = log_store
        self._batch = batch
        self.base = (0, 0)
        self.next_index = 0  # 0: nothing is staged
        self.starts: list[tuple[int, int]] = []
        self._load(disk)

    def _load(self, disk: Disk) -> None:
        """Load the note. One that does not verify is none: what it speaks of is received again, and overwritten."""
        stored = disk.get(self._key)
        if stored is None:
            return
        body = stored[_CHECK.size :]
        if _CHECK.pack(zlib.crc32(body)) != stored[: _CHECK.size] or body[0] != _LAYOUT:
            return
        _, base_index, base_term, next_index = _NOTE.unpack_from(body)
        self.base, self.next_index = (base_index, base_term), next_index
        self.starts = [(index, term) for index, term in _PAIR.iter_unpack(body[_NOTE.size :])]

    @property
    def last_index(self) -> int:
        return self.next_index - 1

    @property
    def last_term(self) -> int:
        return self.starts[-1][1] if self.starts else self.base[1]

    def term_at(self, index: int) -> int:
        """Term of a staged entry, or of the base."""
        position = bisect_right(self.starts, index, key=lambda start: start[0])
        return self.starts[position - 1][1] if position else self.base[1]

    def begin(self, base_index: int, base_term: int) -> None:
        """Forget what was staged; entries after the base come next."""
        self._batch().delete_range(*group_range(b"e", self._log_store.other_space))
        self.base, self.next_index, self.starts = (base_index, base_term), base_index + 1, []
        self._note()

    def add(self, entries: Sequence[bytes], terms: Sequence[int]) -> None:
        batch, prefix = self._batch(), group_prefix(b"e", self._log_store.other_space)
        for data, term in zip(entries, terms, strict=True):
            if not self.starts or term != self.last_term:
                self.starts.append((self.next_index, term))
            batch.put(prefix + _U64.pack(self.next_index), data)
            self.next_index += 1
        self._note()
        self._log_store.staged()

    def _note(self) -> None:
        body = _NOTE.pack(_LAYOUT, *self.base, self.next_index) + b"".join(_PAIR.pack(*pair) for pair in self.starts)
        self._batch().put(self._key, _CHECK.pack(zlib.crc32(body)) + body)

    def drop(self) -> None:
        """Drop the staging: the log went on without it."""
        if self.next_index:
            batch = self._batch()
            batch.delete_range(*group_range(b"e", self._log_store.other_space))
            batch.delete(self._key)
            self.forget()

    def forget(self) -> None:
        """Forget the staging, whose entries on disk are deleted or have become the log."""
        self.base, self.next_index, self.starts = (0, 0), 0, []
