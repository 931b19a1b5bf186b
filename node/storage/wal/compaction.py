"""Compaction of the write-ahead log: removing segments without live entries, and thinning out those with few.

The order that keeps a power loss harmless: find the segments that are not needed any more; sync, so that the trim or
move that made them so is durable; only then remove. And a segment stays while RocksDB, after a crash, would be rebuilt
from it. Files are removed without the lock that writers take: where a file system tells the disk of freed blocks at
once, dozens of segments take seconds.

A thin segment is emptied by *moving*: its live entries are put again, under the same keys, in front of the batches that
the node writes anyway. So moving needs no lock between a reader of old values and the writer of new ones, it is paid
for in small parts, and an idle node does nothing.

A file system that gets full is *short*: the fuller it is, the less of it may be dead, and entries move by writes of
their own, which the node paces (`node/movement/segment_cleaner.py`), whether it writes anything else or not. Moving
takes room before it gives some back, so no more is begun than a part of what is free beyond the reserve.

Rejected: moving in a thread (it would have to exclude a trim of the same key between its read and its write). Holes in
segments where a group was: with events of 1 KiB of many groups, few of them are as long as a block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rocksdict import Rdict, ReadOptions

from node.storage.rocksdb_options import DiskOptions
from node.storage.row_format import (
    ENTRY_KEY_BYTES,
    place_of,
    segment_of,
    summary_key,
    summary_range,
)
from node.storage.wal import segment_usage
from node.storage.wal.record_format import DELETE, PUT, Op, WalPosition
from node.storage.wal.segment_usage import Span, Spans
from node.storage.wal.write_ahead_log import WriteAheadLog

MAX_THIN_SEGMENTS = 4
"""Segments emptied at a time: the next call sees the result."""

THIN_SHARE = 0.1
"""Share of a segment that is dead, at least, when it is emptied because space is short: a byte that comes free costs
nine that move, at most."""
MOVED_OF_FREE = 0.5
"""Moving takes at most this share of what is free beyond the reserve, until segments are removed. If no segment fits,
one may go into the reserve: otherwise a disk with nothing but the reserve would never be cleaned."""

ROW_COST_BYTES = 256
"""Looking at a row that need not move costs what moving so many bytes does: an owner's rows may be many."""


@dataclass(frozen=True, slots=True)
class Room:
    """Space of the file system that the store is on."""

    free_bytes: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    segments: int  # removed
    freed_bytes: int
    moving_bytes: int  # live entries that will move with the next writes; then call again
    is_short: bool = False  # they move by `Store.move` only


@dataclass(slots=True)
class _Move:
    segment: int
    owner: bytes
    span: Span
    next_key: bytes


class WalCompactor:
    """The bookkeeping of space of one store. The store calls everything but `first_needed` with its lock held."""

    def __init__(self, wal: WriteAheadLog, options: DiskOptions) -> None:
        self._wal = wal
        self._options = options
        self._spans: dict[int, Spans] = {}
        self._sealed: set[int] = set()
        self._flushed = WalPosition(0, 0)
        self._pending: list[Op] = []
        self._moves: deque[_Move] = deque()
        self._is_short = False

    # ------------------------------------------------------------ opening

    def load(self, db: Rdict, start: WalPosition) -> None:
        """Load the spans of the segments before the one in which the recovery begins. Those without a row hold nothing
        that is needed: a row goes only after its segment."""
        self._flushed = start
        for key, value in _rows(db, *summary_range()):
            segment = segment_of(key)
            if segment not in self._wal.segments:
                self._pending.append((DELETE, key, b""))
            elif segment < start.segment:
                self._spans[segment] = segment_usage.decode(value)
                self._sealed.add(segment)
        for segment in self._wal.segments:
            if segment < start.segment and segment not in self._spans:
                self._spans[segment] = Spans()
                self._sealed.add(segment)

    def seal_all(self) -> None:
        """Seal all segments after recovery: none of them will be written again."""
        for segment in sorted(self._wal.segments):
            if segment not in self._sealed:
                self._pending += self.seal(segment)

    # ------------------------------------------------------------ along with writes

    def spans(self, segment: int) -> Spans:
        """Spans of the segment, in which new entries are noted."""
        return self._spans.setdefault(segment, Spans())

    def seal(self, segment: int) -> list[Op]:
        self._sealed.add(segment)
        return [(PUT, summary_key(segment), segment_usage.encode(self.spans(segment)))]

    def emptied(self, owner: bytes) -> None:
        """Note that an owner needs nothing of what was written until now."""
        for spans in self._spans.values():
            spans.drop(owner)

    def has_ops(self) -> bool:
        return bool(self._pending or (self._moves and not self._is_short))

    def ops_before(self, db: Rdict) -> list[Op]:
        """Operations to write before a batch: entries move along with it while there is space."""
        return self.moved(db, 0 if self._is_short else self._options.move_bytes)[0]

    def upcoming(self) -> list[_Move]:
        """Copies of the moves that wait."""
        return [replace(move) for move in self._moves]

    def warm(self, db: Rdict, moves: list[_Move], most_bytes: int) -> None:
        """Read what `moved` will move next, of about so many bytes, so that the system has it in memory. For any
        thread, without a lock: values stay where they are for as long as they are needed."""
        left = most_bytes
        for move in moves:
            for _, row in _rows(db, move.next_key, _end_of(move)):
                if left <= 0:
                    return
                place = place_of(row)
                if place is not None and place.segment == move.segment:
                    self._wal.warm(place)
                    left -= place.length
                else:
                    left -= ROW_COST_BYTES

    def moved(self, db: Rdict, most_bytes: int) -> tuple[list[Op], int]:
        """Operations that move entries of thin segments, of about so many bytes at most; and what they cost, in bytes.
        It is 0 when nothing waits to be moved any more.

        In front of them are the rows of segments that were sealed or removed. The first record after a start must have
        them, whatever it is for: once RocksDB holds it, a segment without a row counts as one without entries."""
        ops, self._pending = self._pending, []
        left = most_bytes
        while self._moves and left > 0:
            move = self._moves[0]
            for key, row in _rows(db, move.next_key, _end_of(move)):
                if left <= 0:
                    move.next_key = key
                    break
                place = place_of(row)
                if place is not None and place.segment == move.segment:
                    ops.append((PUT, key, self._wal.read(place)))
                    left -= place.length
                else:
                    left -= ROW_COST_BYTES
            else:
                self._moves.popleft()
                if (spans := self._spans.get(move.segment)) is not None:
                    spans.drop(move.owner)
        return ops, most_bytes - left

    # ------------------------------------------------------------ reclaiming

    def sealed(self) -> frozenset[int]:
        """Segments to which nothing is added any more."""
        return frozenset(self._sealed)

    def first_needed(self, db: Rdict, sealed: frozenset[int]) -> dict[bytes, int | None]:
        """The first index that each owner in these segments has: the begin of its log."""
        owners = {owner for segment in sealed for owner in list(self._spans.get(segment, ()))}
        first: dict[bytes, int | None] = {}
        for owner in owners:
            first[owner] = None
            for key, _ in _rows(db, owner, owner + b"\xff" * 9):
                if len(key) == ENTRY_KEY_BYTES:
                    first[owner] = int.from_bytes(key[segment_usage.OWNER_BYTES :], "big")
                    break
        return first

    def unneeded(self, first_needed: dict[bytes, int | None], sealed: frozenset[int]) -> list[int]:
        """Segments, of those that were sealed before the first needed indexes were looked up, in which nothing is
        needed. To be removed after a sync. Those sealed since then may hold a new life of an owner that had nothing."""
        there = sealed & self._sealed
        for segment in there:
            segment_usage.drop_unneeded(self._spans[segment], first_needed)
        return sorted(segment for segment in there if not self._spans[segment])

    def flushed(self, position: WalPosition) -> None:
        """Note that RocksDB's tables hold everything up to here."""
        self._flushed = max(self._flushed, position)

    def removable(self, segments: list[int]) -> list[int]:
        """Choose unneeded segments, after a sync, from which RocksDB would not be rebuilt after a crash."""
        return [segment for segment in segments if segment < self._flushed.segment]

    def removed(self, segments: list[int], room: Room) -> CompactionResult:
        """Note that the segments' files are removed. Chooses the next segments to thin out."""
        freed = 0
        for segment in segments:
            freed += self._wal.forget(segment)
            self._sealed.discard(segment)
            self._spans.pop(segment, None)
            self._pending.append((DELETE, summary_key(segment), b""))
        self._is_short = self.is_short(room)
        if not self._moves:
            self._choose_thin(room)
        return CompactionResult(len(segments), freed, sum(move.span.size for move in self._moves), self._is_short)

    def is_short(self, room: Room) -> bool:
        return room.free_bytes < self._options.short_share * room.capacity_bytes

    def _choose_thin(self, room: Room) -> None:
        options, dead, sizes = self._options, self._dead(), self._wal.segments
        total = sum(sizes.get(segment, 0) for segment in dead)
        allowed = max(options.garbage_floor_bytes, options.garbage_share * total)
        thin_share, left = options.garbage_share, float(total)
        if self._is_short:
            spare = max(0, room.free_bytes - options.reserve_bytes)
            allowed = min(allowed, options.garbage_of_free * spare)
            thin_share, left = THIN_SHARE, MOVED_OF_FREE * spare
        if sum(dead.values()) <= allowed:
            return
        thin = [segment for segment in dead if dead[segment] >= thin_share * sizes[segment]]
        thin.sort(key=lambda segment: dead[segment] / sizes[segment], reverse=True)
        live = {segment: self._spans[segment].live_bytes for segment in thin if self._spans[segment]}
        chosen: list[int] = []
        for segment in live:
            if live[segment] <= left and len(chosen) < MAX_THIN_SEGMENTS:
                left -= live[segment]
                chosen.append(segment)
        if not chosen and live:
            least = min(live, key=live.__getitem__)
            chosen = [least] if live[least] <= MOVED_OF_FREE * room.free_bytes else []
        for segment in chosen:
            for owner, span in self._spans[segment].items():
                self._moves.append(_Move(segment, owner, span, owner + span.first.to_bytes(8, "big")))

    def _dead(self) -> dict[int, int]:
        """Bytes of each sealed segment that are not needed."""
        sizes = self._wal.segments
        return {segment: sizes.get(segment, 0) - self._spans[segment].live_bytes for segment in self._sealed}

    def garbage_bytes(self) -> int:
        """Bytes that are dead, and are given back when space gets short."""
        sizes = self._wal.segments
        return sum(size for segment, size in self._dead().items() if size >= THIN_SHARE * sizes.get(segment, 0))

    def live_bytes(self) -> int:
        return sum(spans.live_bytes for spans in self._spans.values())


def _end_of(move: _Move) -> bytes:
    return move.owner + move.span.last.to_bytes(8, "big") + b"\0"


def _rows(db: Rdict, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Raw rows of [start, end). Raises the library's error at a damaged block."""
    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(end)
    rows = db.iter(bounds)
    rows.seek(start)
    while rows.valid():
        yield rows.key(), rows.value()
        rows.next()
    rows.status()
