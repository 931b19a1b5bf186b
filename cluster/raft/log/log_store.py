"""The log of one group on disk: entries, terms, vote and commit index. The log *is* the data; nothing is
stored twice.

The problem: pysyncobj's log store lives in RAM, forgets its vote when a file is unreadable, and is torn by a
crash in the middle of a truncation (A6-A8, L10, L15 in docs/internals/pysyncobj.md). The rules: entries and hard state
change in one atomic batch; the commit index never lies beyond the last entry (A15); a hard state that does not verify
stops the group, because a member that forgot its vote could vote twice; nothing here scans the log, neither at start
nor later.

Terms are kept as *starts* (first index of each term), so an entry's value on disk is exactly the proposed
bytes and the term of any index is a binary search in memory. `first` is always preceded by a base: the index
and term of the entry before it, which appends need as "previous". A new group has base (1, 0), which is
pysyncobj's first no-op.

The keys are in `key_layout.py`.

A snapshot replaces the whole log in one batch although its entries may be gigabytes: they were written before, into
the other of two *spaces* of the group's entries (the highest bit of the group number in their keys), and the hard
state says which space is the log.

Rejected: the term in front of every entry's bytes (a copy of each entry on the way in and out).
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable
from itertools import islice

from cluster.raft.interfaces import ENTRY_CONFIGURATION, Disk, DiskBatch, GroupId
from cluster.raft.log.entry_cache import EntryCache
from cluster.raft.log.key_layout import (
    FLAG_HAS_FORGOTTEN,
    FLAG_MUTE,
    FLAG_OTHER_SPACE,
    LAYOUT_OF_MOVED,
    LAYOUTS,
    OTHER_SPACE,
    decode_hard_state,
    encode_hard_state,
    erase_group,
    group_prefix,
    group_range,
)
from cluster.raft.membership.configuration import FOUNDING_BIRTH, Configuration
from cluster.raft.membership.configuration_rows import ConfigurationRows
from cluster.raft.proposal_outcomes import StateDamaged
from cluster.raft.pysyncobj.log_view import LazyEntry, LazySlice
from cluster.raft.pysyncobj.private_names import NO_OP
from cluster.raft.replication.message_validation import MAX_TERM
from cluster.versions import MEMBERS_CHANGE_FROM, UNSET

_U64 = struct.Struct(">Q")
_CHECK = struct.Struct(">I")

BASE_INDEX_OF_NEW_GROUP = 1
BASE_TERM_OF_NEW_GROUP = 0

CONFIGURATION_KIND = ENTRY_CONFIGURATION[0]

LET_GO_AT_ONCE = 4096
"""Entries, in one turn: a leader that steps down may have millions behind it."""


class LogStore:
    """pysyncobj's log store interface (positions relative to the base) and ours (log indexes)."""

    def __init__(
        self,
        group: GroupId,
        disk: Disk,
        cache: EntryCache,
        batch: Callable[[], DiskBatch],
        on_vote: Callable[[], None],
        on_entries: Callable[[], None],
        *,
        mute: bool = False,
        active_version: Callable[[], int] = lambda: UNSET,
        founding: Configuration | None = None,
        birth: int = FOUNDING_BIRTH,
    ) -> None:
        """`mute`: if nothing is stored of the group, it begins as a member without a vote. `active_version`: that of
        the layouts to write. `founding`: the configuration where none is stored; `birth`: of the replica, if nothing is
        stored of it. 0: it is not known yet."""
        self._group = group
        self._disk = disk
        self._cache = cache
        self._batch = batch
        self._on_vote = on_vote
        self._on_entries = on_entries
        self._active_version = active_version
        self.hard_state_version = UNSET
        """The active version when this process wrote the hard state last; UNSET: it has not."""
        self._hard_key = group_prefix(b"h", group)
        self._checkpoint_key = group_prefix(b"c", group)
        self._cached: dict[int, bytes] = {}  # in order of their indexes
        self._entry_prefix = b""
        self._hard_changed = False
        self.is_new = False
        self.mute = False
        self.has_forgotten = False
        """True if it had a life on this node that it does not remember."""
        self._space = 0
        self.term = 0
        self.vote = 0
        self.commit = BASE_INDEX_OF_NEW_GROUP
        self.base_index = BASE_INDEX_OF_NEW_GROUP
        self.base_term = BASE_TERM_OF_NEW_GROUP
        self.last = BASE_INDEX_OF_NEW_GROUP
        self.last_term = BASE_TERM_OF_NEW_GROUP
        self._starts: list[int] = []
        self._start_terms: list[int] = []
        self.birth = birth
        self.configurations = ConfigurationRows(group, disk, batch, founding)
        self._load()
        self._entry_prefix = group_prefix(b"e", group | self._space)
        if self.is_new and mute:
            self.mute = self.has_forgotten = self._hard_changed = True
        if self.is_new and birth != FOUNDING_BIRTH:
            self._hard_changed = True
        self.written = self.last
        # After kill -9 the entries may be in the page cache only; the node's first turn always syncs.
        self.durable = self.base_index

    # ---- loading

    def _load(self) -> None:
        hard = self._disk.get(self._hard_key)
        if hard is None:
            if next(self._disk.scan(*group_range(b"e", self._group)), None) is not None:
                raise self._damaged("there are entries but no hard state")
            self.is_new = True
            return
        found = decode_hard_state(hard)
        if found is None and _CHECK.pack(zlib.crc32(hard[: -_CHECK.size])) == hard[-_CHECK.size :]:
            known = f"{LAYOUTS} and {LAYOUT_OF_MOVED}"
            raise self._damaged(f"the hard state has layout {hard[0]}; this program reads layouts {known}")
        if found is None:
            raise self._damaged("the hard state (term, vote) does not match its checksum")
        (flags, self.term, self.vote, self.commit, self.base_index, self.base_term, self.last), self.birth = found
        self.mute = bool(flags & FLAG_MUTE)
        self.has_forgotten = self.mute or bool(flags & FLAG_HAS_FORGOTTEN)
        self._space = OTHER_SPACE if flags & FLAG_OTHER_SPACE else 0
        for key, value in self._disk.scan(*group_range(b"t", self._group)):
            self._starts.append(_U64.unpack(key[-8:])[0])
            self._start_terms.append(_U64.unpack(value)[0])
        self.last_term = self._start_terms[-1] if self._starts else self.base_term
        self._check_loaded()

    def _check_loaded(self) -> None:
        tail = next(self._disk.scan(*group_range(b"e", self._group | self._space), reverse=True), None)
        found = self.base_index if tail is None else _U64.unpack(tail[0][-8:])[0]
        if found != self.last:
            raise self._damaged(f"the last entry is {found}, the hard state says {self.last}")
        if not self.base_index <= self.commit <= self.last:
            raise self._damaged(f"commit index {self.commit} lies outside {self.base_index}..{self.last}")
        if self.last > self.base_index and (not self._starts or self._starts[0] != self.base_index + 1):
            raise self._damaged("the terms of the first entries are missing")
        if self.term < self.last_term:
            raise self._damaged(f"term {self.term} is older than the last entry's, {self.last_term}")
        if self.term > MAX_TERM:
            raise self._damaged(f"term {self.term} is beyond what elections can lead to ({MAX_TERM})")
        if self.configurations.latest_index > self.last:
            at = self.configurations.latest_index
            raise self._damaged(f"there is a configuration of entry {at}, and the last entry is {self.last}")

    def _damaged(self, what: str) -> StateDamaged:
        return StateDamaged(
            f"Raft group {self._group}: {what}. The member cannot tell what it promised and must not vote. "
            f"Retrying does not help. If the other members are whole, `holdfast node repair-group NODE {self._group}` "
            "makes it begin anew as an empty replica, which copies what it had from them."
        )

    def load_checkpoint(self) -> tuple[int, bytes | None]:
        """(index, state) of the last checkpoint; the base and None when there never was one."""
        stored = self._disk.get(self._checkpoint_key)
        if stored is None:
            if self.base_index != BASE_INDEX_OF_NEW_GROUP:
                raise self._damaged("the log is trimmed but there is no checkpoint")
            return self.base_index, None
        body = stored[_CHECK.size :]
        if _CHECK.pack(zlib.crc32(body)) != stored[: _CHECK.size]:
            raise self._damaged("the checkpoint does not match its checksum")
        index = _U64.unpack_from(body)[0]
        if not self.base_index <= index <= self.commit:
            raise self._damaged(f"the checkpoint is of index {index}, outside {self.base_index}..{self.commit}")
        return index, body[_U64.size :]

    # ---- reading

    def term_at(self, index: int) -> int:
        """Term of an entry or of the base; KeyError outside."""
        if index == self.last:
            return self.last_term
        if not self.base_index <= index <= self.last:
            raise KeyError(index)
        position = bisect_right(self._starts, index)
        return self._start_terms[position - 1] if position else self.base_term

    def first_of_term_at(self, index: int) -> int:
        """First index of the run of equal terms that `index` belongs to (the hint of L6)."""
        position = bisect_right(self._starts, index)
        return self._starts[position - 1] if position else self.base_index

    def data_at(self, index: int) -> bytes:
        data = self._cached.get(index)
        if data is not None:
            return data
        if not self.base_index < index <= self.last:
            if index == self.base_index:
                return NO_OP
            raise KeyError(index)
        data = self._disk.get(self._entry_key(index))
        if data is None:
            raise self._damaged(f"entry {index} of {self.base_index + 1}..{self.last} is missing")
        return data

    def take(self, start: int, max_entries: int, max_bytes: int) -> tuple[list[bytes], list[int]]:
        """Data and terms of entries from `start`, at least one, within the bounds."""
        data: list[bytes] = []
        terms: list[int] = []
        size = 0
        for index in range(start, min(self.last, start + max_entries - 1) + 1):
            one = self.data_at(index)
            size += len(one)
            if data and size > max_bytes:
                break
            data.append(one)
            terms.append(self.term_at(index))
        return data, terms

    # ---- changing (ours)

    def trim(self, index: int, checkpoint_index: int) -> None:
        """Forget entries <= index. The caller puts a checkpoint at `checkpoint_index` >= index into the same
        batch."""
        assert self.base_index < index <= checkpoint_index <= self.commit, (self.base_index, index, self.commit)
        batch = self._batch()
        term = self.term_at(index)
        batch.delete_range(self._entry_key(self.base_index + 1), self._entry_key(index + 1))
        batch.delete_range(self._start_key(0), self._start_key(index + 1))
        self._forget([cached for cached in self._cached if cached <= index])
        kept = bisect_right(self._starts, index)
        if index < self.last:
            follows_in_same_run = kept == len(self._starts) or self._starts[kept] != index + 1
            if follows_in_same_run:
                batch.put(self._start_key(index + 1), _U64.pack(term))
                self._starts[:kept] = [index + 1]
                self._start_terms[:kept] = [term]
            else:
                del self._starts[:kept], self._start_terms[:kept]
        else:
            self._starts, self._start_terms = [], []
        self.base_index, self.base_term = index, term
        self.configurations.trimmed(index)
        self._hard_changed = True

    def put_checkpoint(self, index: int, state: bytes) -> None:
        body = _U64.pack(index) + state
        self._batch().put(self._checkpoint_key, _CHECK.pack(zlib.crc32(body)) + body)

    def lose_vote(self) -> None:
        """Take the vote away, because the member has lost what it promised: from here on it is one without a memory."""
        self.mute = self.has_forgotten = True
        self._hard_changed = True
        self._on_vote()

    def regain_vote(self) -> None:
        """Let the member vote again, in terms after this one."""
        self.mute = False
        self._hard_changed = True
        self._on_vote()

    def be_born(self, birth: int) -> None:
        """Take the birth over that a leader named, which the metadata would have told this node."""
        assert self.birth == 0 < birth, (self.birth, birth)
        self.birth = birth
        self._hard_changed = True
        self._on_vote()

    def replace(
        self,
        base: tuple[int, int],
        last: int,
        starts: list[tuple[int, int]],
        commit: int,
        configuration: Configuration | None = None,
    ) -> None:
        """Make the entries in the other space the log. The caller puts the checkpoint into the same batch.
        `configuration`: the one in force at `commit`; None: the group never changed its members."""
        base_index, base_term = base
        assert self.commit < commit <= last, (self.commit, commit, last)
        first = starts[0][0] if starts else base_index
        assert first == min(base_index + 1, last), (base_index, first, last)
        batch = self._batch()
        batch.delete_range(*group_range(b"e", self._group | self._space))
        batch.delete_range(*group_range(b"t", self._group))
        batch.delete(group_prefix(b"s", self._group))
        for index, term in starts:
            batch.put(self._start_key(index), _U64.pack(term))
        self._space ^= OTHER_SPACE
        self._entry_prefix = group_prefix(b"e", self._group | self._space)
        self.forget_cached()
        self._starts, self._start_terms = [index for index, _ in starts], [term for _, term in starts]
        self.base_index, self.base_term = base_index, base_term
        self.last, self.commit = last, commit
        self.last_term = self._start_terms[-1] if starts else base_term
        assert self.last_term <= self.term, (self.last_term, self.term)
        self.durable = base_index
        self._hard_changed = True
        self._on_entries()
        self.configurations.replaced(commit, configuration)

    @property
    def other_space(self) -> int:
        """The group number under which entries are staged."""
        return self._group | (self._space ^ OTHER_SPACE)

    def staged(self) -> None:
        """Note that entries were staged: like those of the log, they are to be as durable as the options ask."""
        self._on_entries()

    @property
    def version(self) -> int:
        """The active version: everything is written and sent in its layouts."""
        return self._active_version()

    def rewrite(self) -> None:
        """Write the hard state again with the next flush."""
        self._hard_changed = True

    def flush(self) -> None:
        """Put the hard state into the turn's batch if it changed."""
        if not self._hard_changed:
            return
        assert self.base_index <= self.commit <= self.last, (self.base_index, self.commit, self.last)
        flags = (FLAG_MUTE if self.mute else 0) | (FLAG_OTHER_SPACE if self._space else 0)
        self.hard_state_version = version = self.version
        if self.has_forgotten and version >= MEMBERS_CHANGE_FROM:
            flags |= FLAG_HAS_FORGOTTEN
        told = self.birth if self.birth != FOUNDING_BIRTH or self.configurations.are_stored else None
        row = encode_hard_state(
            version, flags, self.term, self.vote, self.commit, self.base_index, self.base_term, self.last, birth=told
        )
        self._batch().put(self._hard_key, row)
        self._hard_changed = False

    def mark_written(self) -> int:
        """Note that the batch with everything so far was written. Returns the index a sync makes durable."""
        self.written = self.last
        return self.last

    def mark_durable(self, index: int) -> None:
        self.durable = min(index, self.last)

    def drop_cached(self, index: int) -> None:
        """Drop an entry for `EntryCache`, only once it can be read from disk."""
        if index <= self.written:
            self._cached.pop(index, None)

    def let_go(self, index: int) -> None:
        """Drop cached entries up to `index` that are on disk, since nothing here is about to read them."""
        end = min(index, self.written)
        self._forget([kept for kept in islice(self._cached, LET_GO_AT_ONCE) if kept <= end])

    def forget_cached(self) -> None:
        """Drop all cached entries, since the log is closed, or another one."""
        self._forget(list(self._cached))

    def _forget(self, indexes: list[int]) -> None:
        for index in indexes:
            del self._cached[index]
            self._cache.removed(self, index)

    def erase(self, *, over: int = 0) -> None:
        """Remove every trace of the group that this package wrote. `over`: its replicas up to this birth never come
        back."""
        erase_group(self._group, self._batch(), over)
        self._hard_changed = False
        self.forget_cached()

    def _entry_key(self, index: int) -> bytes:
        return self._entry_prefix + _U64.pack(index)

    def _start_key(self, index: int) -> bytes:
        return group_prefix(b"t", self._group) + _U64.pack(index)

    # ---- pysyncobj's interface

    def add(self, command: bytes, idx: int, term: int) -> None:
        assert type(command) is bytes, type(command)  # who reads it keeps slices of it, hashes them and passes them on
        assert idx == self.last + 1, (idx, self.last)
        assert term >= self.last_term, (term, self.last_term)
        batch = self._batch()
        if term != self.last_term or idx == self.base_index + 1:
            self._starts.append(idx)
            self._start_terms.append(term)
            batch.put(self._start_key(idx), _U64.pack(term))
        batch.put(self._entry_key(idx), command)
        self._cached[idx] = command
        self._cache.added(self, idx, len(command))
        self.last = idx
        self.last_term = term
        self._hard_changed = True
        self._on_entries()
        if command[0] == CONFIGURATION_KIND:
            self.configurations.appended(idx, command, self.base_index)

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        start = self.base_index + entryFrom
        assert start > self.commit, (start, self.commit)
        if start > self.last:
            return
        batch = self._batch()
        batch.delete_range(self._entry_key(start), self._entry_key(self.last + 1))
        batch.delete_range(self._start_key(start), self._start_key(self.last + 1))
        self._forget([index for index in range(start, self.last + 1) if index in self._cached])
        kept = bisect_right(self._starts, start - 1)
        del self._starts[kept:], self._start_terms[kept:]
        self.last = start - 1
        self.last_term = self._start_terms[-1] if self._starts else self.base_term
        self.written = min(self.written, self.last)
        self.durable = min(self.durable, self.last)
        self._hard_changed = True
        self._on_entries()
        self.configurations.truncated(start)

    def __len__(self) -> int:
        return self.last - self.base_index + 1

    def __getitem__(self, item: int | slice) -> LazyEntry | LazySlice:
        return LazySlice(self, self.base_index, self.last + 1)[item]

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        assert self.commit <= raftCommitIndex <= self.last, (self.commit, raftCommitIndex, self.last)
        if raftCommitIndex != self.commit:
            self.commit = raftCommitIndex
            self._hard_changed = True

    def getRaftCommitIndex(self) -> int:
        return self.commit

    def setCurrentTerm(self, term: int, votedForNodeId: int | None) -> None:
        vote = votedForNodeId or 0
        if (term, vote) == (self.term, self.vote):
            return
        assert term <= MAX_TERM, term
        assert term > self.term or (term == self.term and self.vote == 0), (term, vote, self.term, self.vote)
        self.term, self.vote = term, vote
        self._hard_changed = True
        self._on_vote()

    def getCurrentTerm(self) -> int:
        return self.term

    def getVotedForNodeId(self) -> int | None:
        return self.vote or None

    def clear(self) -> None:
        raise AssertionError("the log is never replaced by pysyncobj's snapshots")

    def deleteEntriesTo(self, entryTo: int) -> None:
        raise AssertionError("the log is trimmed by Group.trim only")

    def onOneSecondTimer(self) -> None:
        """Do nothing: no flush by time is needed, the node writes every turn."""

    def _destroy(self) -> None:
        """The disk belongs to the node."""
