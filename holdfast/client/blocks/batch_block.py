"""Events of one partition that came as record batches, all those of one delivery.

The rule: a block says of each event what `EventBlock` says of the same one that came by itself. Offsets and times
follow from the heads of the batches; only the events themselves lack the delivery annotations that say so.
"""

from __future__ import annotations

from itertools import chain, repeat

from holdfast.amqp.messages.message import offset_text
from holdfast.client.blocks.event_block import EventBlock, EventColumns
from holdfast.client.events import BareEvent, ReceivedEvent
from holdfast.records.batch_transfer import batches_in
from holdfast.records.record_batch import SEQUENCES, Attributes, Damaged, RecordBatch


class BatchBlock(EventBlock):
    __slots__ = ("batches", "damage", "tells_publishers")

    def __init__(self, partition: str, batches: list[RecordBatch], *, publishers: bool = False) -> None:
        """`publishers`: the columns tell them."""
        super().__init__(partition, [])
        self.batches = batches
        self.damage: Damaged | None = None
        """Fault of the batch after these events, which is not what was sealed; None: there is none."""
        self.tells_publishers = publishers

    @classmethod
    def read(cls, partition: str, transfer: bytes, *, publishers: bool = False) -> BatchBlock:
        """Read the events of a delivery, up to the first batch of it that is damaged."""
        block, end = cls(partition, [], publishers=publishers), 0
        try:
            for batch in batches_in(transfer):
                if batch.offset < end or batch.head.base_offset < 0 or batch.head.attributes & Attributes.CONTROL:
                    raise Damaged(f"{batch!r} at {batch.head.base_offset}, behind {end}, is none for a reader")
                batch.open()
                block.batches.append(batch)
                end = batch.next_offset
        except Damaged as error:
            block.damage = error
        return block

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    @property
    def are_bodies(self) -> bool:
        """True if all its records are bodies."""
        return all([batch.are_bodies for batch in self.batches])  # noqa: C419

    @property
    def payloads(self) -> list[bytes]:
        if not self._payloads:
            self._payloads = [message for batch in self.batches for message in batch.messages()]
        return self._payloads

    @property
    def size_bytes(self) -> int:
        return sum(batch.bytes_of(0, len(batch)) for batch in self.batches)

    @property
    def last_offset(self) -> int:
        return self.batches[-1].next_offset - 1

    @property
    def places(self) -> None:
        return None

    @property
    def numbers_at(self) -> None:
        return None

    def events(self) -> list[ReceivedEvent]:
        partition, batches = repeat(self.partition), self.batches
        offsets = map(offset_text, chain.from_iterable(range(one.offset, one.next_offset) for one in batches))
        times = chain.from_iterable(repeat(one.head.time_ms, one.head.events) for one in batches)
        if self.are_bodies:
            return list(map(BareEvent, partition, offsets, times, self._bodies()))
        return list(map(ReceivedEvent, partition, offsets, times, self.payloads, repeat(0)))

    def _bodies(self) -> list[bytes]:
        return list(chain.from_iterable(batch.records() for batch in self.batches))

    def columns(self) -> EventColumns:
        found = EventColumns([], [], [], [])
        for batch in self.batches:
            found.offsets += range(batch.offset, batch.next_offset)
            found.timestamps_ms += [batch.head.time_ms] * len(batch)
        if self.are_bodies:
            found.keys, found.bodies = [None] * len(self), self._bodies()
        else:
            self._contents(found, 0)
        if self.tells_publishers:
            found.publishers = [numbers for batch in self.batches for numbers in _publishers(batch)]
        return found

    def _event(self, place: int) -> ReceivedEvent:
        for batch in self.batches:
            if place < len(batch):
                break
            place -= len(batch)
        return ReceivedEvent(
            self.partition, offset_text(batch.offset + place), batch.head.time_ms, batch.messages()[place], 0
        )


def _publishers(batch: RecordBatch) -> list[tuple[int, int]]:
    if batch.publisher is None:
        return [(-1, -1)] * len(batch)
    producer, _, first = batch.publisher
    return [(producer, (first + index) % SEQUENCES) for index in range(len(batch))]
