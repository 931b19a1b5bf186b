"""One partition under one receiving link: its position, its bounds, and the events that wait to be sent.

Problem: what is read from a partition and what is sent to the peer are no longer the same events when a filter stands
between them, and both the peer's credit and a change of leader must still find the right place.
Rules never broken: an event that passed is sent or held, and the place to go on from is before the first held one;
nothing is read beyond the end of what can pass; no more is held than one share of scanning found.

Events that were handed out and given back after a rollback are handed out again before anything else of the partition,
in the order of the log: the cursor reads from there again, and passes over the others.
Rejected: keeping the events themselves until they are settled; a link may have twenty thousand of four MiB under way.

Rejected: reading no more than the credit allows, as without a filter. A peer with credit for one event would make a
scan of a million events a million reads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from holdfast.amqp import DeliveryPrefix, PublisherPrefix
from holdfast.records.record_batch import RecordBatch
from node.listener.outgoing.source_filters import Selection
from node.partition.api import After, Earliest, Reader, Start


class PartitionCursor:
    __slots__ = (
        "_above_offset",
        "_above_time_ms",
        "_again",
        "_below_offset",
        "_below_time_ms",
        "_held",
        "_latest",
        "_predicate",
        "_resume_at",
        "_runs",
        "done",
        "drain_to",
        "partition",
        "prefix",
        "reader",
        "start",
        "waiting",
    )

    def __init__(self, partition: str, selection: Selection, *, publishers: bool = False) -> None:
        """`publishers`: deliveries tell the publisher of the event."""
        self.partition = partition
        self.prefix = PublisherPrefix(partition) if publishers else DeliveryPrefix(partition)
        self.start: Start = selection.start  # of the reader, or of the one that replaces it
        self.reader: Reader | None = None
        self.drain_to = 0  # a drain is answered no sooner than the reader stands here
        self.done = selection.empty
        """True when no later event can pass."""
        predicate = selection.predicate
        self._predicate = None if predicate is None or predicate.is_range else predicate.matching
        self._latest = selection.latest
        self._above_offset = selection.above_offset
        self._above_time_ms = selection.above_time_ms
        self._below_offset = selection.below_offset
        self._below_time_ms = selection.below_time_ms
        self._held: deque[tuple[int, bytes]] = deque()  # offset and payload; passed, and waiting for credit
        self.waiting: deque[RecordBatch] = deque()  # waiting batches of a link that sends whole batches
        self._runs: list[tuple[int, int]] = []  # (offset, count) of the payloads that were returned last
        self._again: set[int] = set()  # offsets that were given back
        self._resume_at = 0  # below this only events that were given back are handed out

    @property
    def scans(self) -> bool:
        """True if events are looked at one by one, and most may not pass."""
        return self._predicate is not None

    @property
    def holds(self) -> bool:
        return bool(self._held or self.waiting)

    def payloads(self, batches: Sequence[RecordBatch]) -> list[bytes]:
        """Payloads to send of batches that were read; with a predicate they are held instead, see `release`."""
        found: list[bytes] = []
        self._runs = []
        for batch in batches:
            ahead: RecordBatch | None = batch
            if batch.offset < self._resume_at:
                ahead = self._hand_out_again(batch, found)
            if ahead is None:
                continue
            self._again.clear()  # events that are left of them are not stored any more
            part = self.within_bounds(ahead)
            if part is None:
                continue
            base, time_ms, records = part.offset, part.head.time_ms, part.messages()
            if self._predicate is None:
                found += self.prefix.splice_batch(base, time_ms, records, part.publisher)
                self._runs.append((base, len(records)))
                continue
            now_ms = time.time_ns() // 1_000_000
            chosen = self._predicate(base, time_ms, records, self.partition, now_ms, self._latest)
            if chosen:
                spliced = self.prefix.splice_chosen(base, time_ms, records, chosen, part.publisher)
                self._held += zip([base + index for index in chosen], spliced, strict=True)
        return found

    def release(self, count: int) -> list[bytes]:
        """Up to `count` of the held payloads."""
        chosen = [self._held.popleft() for _ in range(min(count, len(self._held)))]
        self._runs += [(offset, 1) for offset, _ in chosen]
        return [payload for _, payload in chosen]

    def take_runs(self) -> list[tuple[int, int]]:
        """Take (offset, count) of each run of events among the payloads returned since the last call."""
        runs, self._runs = self._runs, []
        return runs

    # ------------------------------------------------------------ again, after a rollback

    def give_back(self, offset: int) -> None:
        """Note an event that is to be handed out again; `rewind` follows."""
        self._again.add(offset)

    def rewind(self) -> None:
        """Let the next reader begin at the first event that was given back."""
        self.drop_reader()
        self._drop_held()
        if isinstance(self.start, After):
            self._resume_at = max(self._resume_at, self.start.offset + 1)
        self._go_on_at(min(self._again))
        self.done = False

    def _hand_out_again(self, batch: RecordBatch, found: list[bytes]) -> RecordBatch | None:
        """Hand out the given-back events of the part of a batch that was read before. Returns the rest of the batch."""
        base = batch.offset
        behind = min(len(batch), self._resume_at - base)
        chosen = [index for index in range(behind) if base + index in self._again]
        if chosen:
            records = batch.messages()
            payloads = self.prefix.splice_chosen(base, batch.head.time_ms, records, chosen, batch.publisher)
            offsets = [base + index for index in chosen]
            self._again.difference_update(offsets)
            if self._predicate is None:
                found += payloads
                self._runs += [(offset, 1) for offset in offsets]
            else:
                self._held += zip(offsets, payloads, strict=True)
        return None if behind == len(batch) else batch.part(behind, len(batch))

    def within_bounds(self, batch: RecordBatch) -> RecordBatch | None:
        """The part of a batch within all bounds. Offsets and times only rise: a lower bound once passed is dropped, an
        upper one once reached is the end."""
        if self._above_time_ms >= 0:
            if batch.head.time_ms <= self._above_time_ms:
                return None
            self._above_time_ms = -1
        if batch.head.time_ms >= self._below_time_ms or batch.next_offset >= self._below_offset:
            self.done = True
            if batch.head.time_ms >= self._below_time_ms:
                return None
        first = max(0, self._above_offset + 1 - batch.offset)
        last = min(len(batch), self._below_offset - batch.offset)
        if first >= last:
            return None
        self._above_offset = -1
        return batch if last - first == len(batch) else batch.part(first, last)

    def drop_reader(self) -> None:
        """Close the reader, and remember its position for the next one."""
        reader, self.reader = self.reader, None
        if reader is None:
            return
        if getattr(reader, "resolved", True):  # a remote one may not have learned where it stands
            self._go_on_at(reader.position)
        self._drop_held()
        reader.close()

    def _drop_held(self) -> None:
        """Drop the held events: they are read again."""
        if self.waiting:
            self._go_on_at(self.waiting[0].offset)
            self.waiting.clear()
        if self._held:
            self._go_on_at(self._held[0][0])
            self._again.update(offset for offset, _ in self._held if offset < self._resume_at)
            self._held.clear()

    def _go_on_at(self, offset: int) -> None:
        self.start = After(offset - 1) if offset > 0 else Earliest()

    def finish(self) -> None:
        """Close the reader at the end of what can pass; held events are still to be sent."""
        if self.reader is not None:
            self._go_on_at(self.reader.position)
            self.reader.close()
            self.reader = None
