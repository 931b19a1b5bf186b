"""What must hold for the events of one partition, as its clients see them.

* Offsets are gapless, and what stands at one never changes.
* An acknowledged event is there, at the place that was named, and readable on every replica.
* What was answered as certainly not stored is not there.
* Exactly once: an event stands at one offset at most; of a producer's epoch the numbers are stored in order without a
  gap, and nothing of a lower epoch comes behind a higher one.
* One owner: of a consumer group's claims only the last that was granted commits (also once it has ended), its number
  is that of its entry, and what an owner committed does not fall.

Every event of a schedule has bytes of its own, so it can be recognised wherever it turns up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.records.record_batch import RecordBatch
from node.partition.api import Appended
from node.partition.consumer_groups.group_state import (
    Claim,
    Commit,
    Done,
    Owned,
)
from node.partition.idempotence.producer_state import FORGOTTEN, SEQUENCES
from node.partition.partition_commands import Command, decode
from node.partition.raft_entry import batches_in
from node.partition.state_machine import AppendAccepted, Trimmed
from tests.simulation.checker import GroupJudge, Violation


class PartitionJudge(GroupJudge):
    def __init__(self, group_id: int) -> None:
        super().__init__(group_id)
        self.events: list[bytes] = []
        self.start_offset = 0
        self.acknowledged = 0
        self.duplicates = 0
        self.reads = 0
        self._offset_of: dict[bytes, int] = {}
        self._never: set[bytes] = set()
        self._numbers: dict[int, tuple[int, int]] = {}
        self._last_ms = 0
        self._owners: dict[str, int] = {}
        self._positions: dict[str, int] = {}
        self.claims = 0

    def answers(self, node: int, index: int, result: object) -> None:
        is_news = index not in self.results
        super().answers(node, index, result)
        if is_news:
            self._first_applied(index, self.committed[index][1], result)

    def _first_applied(self, index: int, data: bytes, result: object) -> None:
        if isinstance(result, Trimmed):
            if result.start_offset < self.start_offset:
                raise Violation(f"group {self.group_id}: events begin at {result.start_offset} again")
            self.start_offset = result.start_offset
        elif isinstance(result, tuple):
            for batch, stored in zip(batches_in(data), result, strict=True):
                if isinstance(stored, AppendAccepted):
                    self.duplicates += sum(place.events for place in stored.known)
                    if stored.count:
                        self._store(index, batch, stored)
        elif isinstance(result, Owned | Done):
            self._own(index, decode(data), result)

    def _own(self, index: int, command: Command, result: Owned | Done) -> None:
        if isinstance(command, Claim) and isinstance(result, Owned):
            if result.claim != index:
                raise Violation(f"group {self.group_id}: the claim of entry {index} has the number {result.claim}")
            self._owners[command.key] = index
            self.claims += 1
            return
        owner = self._owners.get(getattr(command, "key", ""), 0)
        if isinstance(command, Commit) and isinstance(result, Done):
            if command.claim != owner or result.position < self._positions.get(command.key, 0):
                raise Violation(f"group {self.group_id}: {command} -> {result}, while claim {owner} is in force")
            self._positions[command.key] = result.position

    def _store(self, index: int, batch: RecordBatch, result: AppendAccepted) -> None:
        batch.check_content()
        records = batch.messages()
        skip = len(records) - result.count
        if result.base_offset != len(self.events):
            raise Violation(f"group {self.group_id}: {result} leaves a gap after offset {len(self.events) - 1}")
        if result.timestamp_ms < self._last_ms:
            raise Violation(f"group {self.group_id}: {result} is older than the event before it, {self._last_ms}")
        self._last_ms = result.timestamp_ms
        for record in records[skip:]:
            if record in self._offset_of:
                raise Violation(
                    f"group {self.group_id}: {record!r} is stored twice: at {self._offset_of[record]} and at "
                    f"{len(self.events)}"
                )
            self._offset_of[record] = len(self.events)
            self.events.append(record)
        numbering = batch.head.numbering
        if numbering is not None:
            first = (numbering.base_sequence + skip) % SEQUENCES
            self._count(numbering.producer_id, numbering.epoch, first, result.count)

    def _count(self, producer_id: int, epoch: int, first: int, count: int) -> None:
        last_epoch, last = self._numbers.get(producer_id, (epoch, (first - 1) % SEQUENCES))
        in_order = epoch > last_epoch or (epoch == last_epoch and first == (last + 1) % SEQUENCES)
        if not in_order:
            raise Violation(
                f"group {self.group_id}: producer {producer_id} stores number {first} of epoch {epoch} behind number "
                f"{last} of epoch {last_epoch}"
            )
        self._numbers[producer_id] = (epoch, (first + count - 1) % SEQUENCES)

    # ---- what clients were told

    def acknowledge(self, records: Sequence[bytes], answer: Appended) -> None:
        places = []
        for record in records:
            offset = self._offset_of.get(record)
            if offset is None:
                raise Violation(f"group {self.group_id}: {record!r} was acknowledged, but is nowhere")
            places.append(offset)
        new = places[answer.duplicates :]
        told = answer.base_offset
        if told not in (places[0], FORGOTTEN) or new != list(range(new[0], new[0] + len(new)) if new else []):
            raise Violation(f"group {self.group_id}: {answer} for records that stand at {places}")
        self.acknowledged += len(records)

    def never(self, records: Iterable[bytes]) -> None:
        """Answered as certainly not stored."""
        self._never.update(records)

    def holds(self, record: bytes) -> bool:
        return record in self._offset_of

    def offset_of(self, record: bytes) -> int | None:
        return self._offset_of.get(record)

    # ---- what is read

    def served(self, node: int, batches: Iterable[RecordBatch]) -> int:
        """Number of events in them."""
        count = 0
        for batch in batches:
            wanted = self.events[batch.offset : batch.next_offset]
            served = batch.messages()
            if wanted != served:
                raise Violation(
                    f"group {self.group_id}: node {node} serves {served!r} at {batch.offset}, "
                    f"where {wanted!r} was stored"
                )
            count += len(batch)
        self.reads += count
        return count

    def read_on(self, node: int, start: int, batches: Sequence[RecordBatch]) -> int:
        """A reader that was at `start` is given this next, and nothing is passed over. Number of events in it."""
        for batch in batches:
            if batch.offset > start and self.start_offset < batch.offset:
                raise Violation(
                    f"group {self.group_id}: a reader at node {node} that was at offset {start} is given "
                    f"{batch.offset} next"
                )
            start = batch.next_offset
        return self.served(node, batches)

    def finish(self) -> None:
        super().finish()
        wrong = sorted(self._never & self._offset_of.keys())
        if wrong:
            raise Violation(f"group {self.group_id}: answered as certainly not stored, but is: {wrong}")
