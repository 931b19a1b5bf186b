"""One partition under one receiving link: where it is, what of it passes, and what waits to be sent.

Problem: what is read from a partition and what is sent to the peer are no longer the same events when a filter stands
between them, and both the peer's credit and a change of leader must still find the right place. Rules never broken: an
event that passed is sent or held, and the place to go on from lies before the first held one; nothing is read beyond
the end of what can pass; no more is held than one share of scanning found.

Rejected: reading no more than the credit allows, as without a filter. A peer with credit for one event would make a
scan of a million events a million reads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from holdfast.amqp import DeliveryPrefix
from node.listener.outgoing.source_filters import Selection
from node.partition.api import After, Earliest, Reader, Start, StoredBatch


class PartitionCursor:
    __slots__ = (
        "_above_offset",
        "_above_time_ms",
        "_below_offset",
        "_below_time_ms",
        "_held",
        "_latest",
        "_predicate",
        "done",
        "drain_to",
        "partition",
        "prefix",
        "reader",
        "start",
    )

    def __init__(self, partition: str, selection: Selection) -> None:
        self.partition = partition
        self.prefix = DeliveryPrefix(partition)
        self.start: Start = selection.start  # of the reader, or of the one that replaces it
        self.reader: Reader | None = None
        self.drain_to = 0  # a drain is answered no sooner than the reader stands here
        self.done = selection.empty
        """Nothing that comes can pass."""
        predicate = selection.predicate
        self._predicate = None if predicate is None or predicate.is_range else predicate.matching
        self._latest = selection.latest
        self._above_offset = selection.above_offset
        self._above_time_ms = selection.above_time_ms
        self._below_offset = selection.below_offset
        self._below_time_ms = selection.below_time_ms
        self._held: deque[tuple[int, bytes]] = deque()  # offset and payload; passed, and waiting for credit

    @property
    def scans(self) -> bool:
        """Events are looked at one by one, and most may not pass."""
        return self._predicate is not None

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def payloads(self, batches: Sequence[StoredBatch]) -> list[bytes]:
        """What to send of batches that were read; with a predicate it is held instead, see `release`."""
        found: list[bytes] = []
        for batch in batches:
            part = self._within_bounds(batch)
            if part is None:
                continue
            base, time_ms, records = part.base_offset, part.timestamp_ms, part.records
            if self._predicate is None:
                found += self.prefix.splice_batch(base, time_ms, records)
                continue
            now_ms = time.time_ns() // 1_000_000
            chosen = self._predicate(base, time_ms, records, self.partition, now_ms, self._latest)
            if chosen:
                spliced = self.prefix.splice_chosen(base, time_ms, records, chosen)
                self._held += zip([base + index for index in chosen], spliced, strict=True)
        return found

    def release(self, count: int) -> list[bytes]:
        """Up to `count` of what is held."""
        return [self._held.popleft()[1] for _ in range(min(count, len(self._held)))]

    def _within_bounds(self, batch: StoredBatch) -> StoredBatch | None:
        """The part of a batch within all bounds. Offsets and times only rise: a lower bound once passed is dropped, an
        upper one once reached is the end."""
        if self._above_time_ms >= 0:
            if batch.timestamp_ms <= self._above_time_ms:
                return None
            self._above_time_ms = -1
        if batch.timestamp_ms >= self._below_time_ms or batch.next_offset >= self._below_offset:
            self.done = True
            if batch.timestamp_ms >= self._below_time_ms:
                return None
        first = max(0, self._above_offset + 1 - batch.base_offset)
        last = min(len(batch.records), self._below_offset - batch.base_offset)
        if first >= last:
            return None
        self._above_offset = -1
        if last - first == len(batch.records):
            return batch
        return StoredBatch(batch.base_offset + first, batch.timestamp_ms, batch.records[first:last])

    def drop_reader(self) -> None:
        """Remember the position, so that the next reader goes on behind it."""
        reader, self.reader = self.reader, None
        if reader is None:
            return
        if self._held:
            self._go_on_at(self._held[0][0])
            self._held.clear()
        elif getattr(reader, "resolved", True):  # a remote one may not have learned where it stands
            self._go_on_at(reader.position)
        reader.close()

    def _go_on_at(self, offset: int) -> None:
        self.start = After(offset - 1) if offset > 0 else Earliest()

    def finish(self) -> None:
        """The end of what can pass has been read; what is held is still to be sent."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None
