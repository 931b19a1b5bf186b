"""Reading a partition on the node that leads it: at the tail from memory, older events from the store.

The problem: most readers are at the tail, and many of them at the same place; some read everything from the start and
must do so at the speed of the disk. The rules: only what is applied is read; a reader never skips an event above the
start offset, and begins again at the start offset when retention overtook it; a damaged batch ends the reader with an
error, it is never passed over. A *committed* reader, which is the default, goes as far as the last stable offset, and
passes over the events of aborted transactions; an *uncommitted* one sees everything.

A reader is given record batches as they are stored, with heads that say which of the events are its own. A link that
sends whole batches on asks for them as they are; for others they are opened here.

Tail readers share batches through `BatchCache`, filled when a batch is committed while there is a reader. A reader of
old data fetches index rows some dozens at a time and loads for itself; two such readers have nothing in common.

`wake` is called at most once for each poll that returned nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from holdfast.records.record_batch import Damaged, RecordBatch
from node.partition.api import ReadError
from node.partition.offset_index import IndexRow

ABORTED_BATCHES_PER_POLL = 1024
"""Aborted batches passed over in one poll: some milliseconds, since their entries are not loaded. A reader that has met
so many goes on in the next turn."""

EVENT_OVERHEAD_BYTES = 64
"""Bytes counted for an event in the cache, in addition to its own: its object, once the batch is open. A body may be
empty, and a batch of 65,536 of them would else be free."""


class BatchCache:
    """Batches by their first event's offset, oldest out first. Consecutive: a newer one follows the last.

    They are bounded in bytes: of the stored bytes, and of the messages that are kept once a batch was opened."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._batches: dict[int, tuple[RecordBatch, int]] = {}
        self.held_bytes = 0
        self.is_used = False
        """True while there are readers. Without one nothing need be added."""

    def add(self, batch: RecordBatch) -> None:
        if batch.offset in self._batches:
            return
        size = 2 * batch.opened_size + EVENT_OVERHEAD_BYTES * batch.head.record_count
        self._batches[batch.offset] = (batch, size)
        self.held_bytes += size
        while self.held_bytes > self._limit and len(self._batches) > 1:
            oldest = next(iter(self._batches))
            self.held_bytes -= self._batches.pop(oldest)[1]

    def get(self, offset: int) -> RecordBatch | None:
        found = self._batches.get(offset)
        return None if found is None else found[0]

    def clear(self) -> None:
        """Empty the cache: the last reader is gone."""
        self.is_used = False
        self._batches.clear()
        self.held_bytes = 0


class ReaderSource(Protocol):
    """A partition, as far as its readers need it."""

    @property
    def start_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def stable_offset(self) -> int: ...
    def is_aborted(self, transaction: tuple[int, int], offset: int) -> bool: ...
    @property
    def cache(self) -> BatchCache: ...
    def rows_from(self, offset: int) -> list[IndexRow]: ...
    def load(self, row: IndexRow) -> RecordBatch | None:
        """Load the batch of a row. None: it was trimmed. Raises Damaged."""
        ...

    def open(self, batch: RecordBatch) -> None:
        """Open the batch, so that its records are at hand. Raises Damaged."""
        ...

    def forget_reader(self, reader: LocalReader) -> None: ...


class LocalReader:
    def __init__(
        self,
        source: ReaderSource,
        position: int,
        after_ms: int | None,
        wake: Callable[[], None],
        *,
        uncommitted: bool = False,
    ) -> None:
        self.error: ReadError | None = None
        self._source = source
        self._position = position
        self._after_ms = after_ms  # until an event is newer, older ones are passed over
        self._wake = wake
        self._uncommitted = uncommitted
        self._passed_over = 0  # aborted batches, in this poll
        self._waiting = False
        self._closed = False
        self._rows: deque[IndexRow] = deque()
        self._batch: RecordBatch | None = None  # the batch that holds the position, if it is loaded

    @property
    def position(self) -> int:
        return self._position

    # ------------------------------------------------------------ the link's side

    def poll(self, max_events: int, max_bytes: int, whole: bool = False) -> list[RecordBatch]:
        found: list[RecordBatch] = []
        if self.error is not None or self._closed or max_events <= 0:
            return found
        self._passed_over = 0
        while max_events > 0 and max_bytes > 0:
            try:
                batch = self._next_batch()
                if batch is not None and not whole:
                    self._source.open(batch)
            except Damaged as error:
                self._damaged(error)
                break
            if batch is None:
                break
            own = batch.part(self._position - batch.offset, len(batch)) if self._position > batch.offset else batch
            part, size = own.within(max_events, max_bytes, whole=whole, at_least_one=not found)
            if part is None:
                break
            found.append(part)
            self._position = part.next_offset
            max_events -= len(part)
            max_bytes -= size
        if not found and self.error is None:
            if self._passed_over >= ABORTED_BATCHES_PER_POLL:
                self._wake()
            else:
                self._waiting = True
        return found

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._rows.clear()
            self._batch = None
            self._source.forget_reader(self)

    # ------------------------------------------------------------ the partition's side

    def more(self) -> None:
        """Note that something was applied: wake a reader that waits."""
        if self._waiting:
            self._waiting = False
            self._wake()

    def fail(self, error: ReadError) -> None:
        if self.error is None and not self._closed:
            self.error = error
            self._rows.clear()
            self._batch = None
            self._wake()

    # ------------------------------------------------------------ finding the next batch

    def _next_batch(self) -> RecordBatch | None:
        """Load the batch that holds the position; move the position where the rules say so. None at the tail, or when
        enough was passed over for now."""
        source = self._source
        while True:
            if self._position < source.start_offset:
                self._position = source.start_offset
                self._rows.clear()
            position = self._position
            if position >= (source.next_offset if self._uncommitted else source.stable_offset):
                self._batch = None
                return None
            batch = self._batch
            if batch is None or not batch.offset <= position < batch.next_offset:
                batch = source.cache.get(position)
                if batch is None:
                    row = self._row(position)
                    if self._is_aborted(row.transaction, row.base_offset):
                        if not self._pass_over(row.next_offset):
                            return None
                        continue
                    batch = self._load(row, position)
                    if batch is None:
                        continue
                elif self._is_aborted(batch.head.transaction, batch.offset):
                    if not self._pass_over(batch.next_offset):
                        return None
                    continue
                self._batch = batch
            if self._after_ms is not None:
                if batch.head.time_ms <= self._after_ms:
                    self._position = batch.next_offset
                    continue
                self._after_ms = None
            return batch

    def _is_aborted(self, transaction: tuple[int, int] | None, offset: int) -> bool:
        return transaction is not None and not self._uncommitted and self._source.is_aborted(transaction, offset)

    def _pass_over(self, next_offset: int) -> bool:
        """Pass over an aborted batch. False: the rest is for another poll."""
        self._position = next_offset
        self._passed_over += 1
        return self._passed_over < ABORTED_BATCHES_PER_POLL

    def _row(self, position: int) -> IndexRow:
        """The index row that holds the position. Raises Damaged."""
        rows = self._rows
        while rows and rows[0].next_offset <= position:
            rows.popleft()
        if not rows or not rows[0].base_offset <= position:
            self._rows = rows = deque(self._source.rows_from(position))
        if not rows or not rows[0].base_offset <= position < rows[0].next_offset:
            where = "nothing" if not rows else f"a batch at {rows[0].base_offset}"
            raise Damaged(f"the offset index has {where} where event {position} should be")
        return rows[0]

    def _load(self, row: IndexRow, position: int) -> RecordBatch | None:
        """Load a batch from the store. None: retention was faster; look again."""
        batch = self._source.load(row)
        if batch is None:
            self._rows.clear()
            start = self._source.start_offset
            if start <= position:
                raise Damaged(f"the entry of event {position} is gone, though events begin at {start}")
        return batch

    def _damaged(self, error: Damaged) -> None:
        detail = f"event {self._position} cannot be read on this node: {error}"
        self.fail(ReadError("damaged", detail, retriable=True))
