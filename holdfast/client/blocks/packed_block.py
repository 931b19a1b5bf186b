"""Events of one partition that came in one packed delivery (`holdfast/records/packed_delivery.py`).

Rule never broken: it says of each event what `EventBlock` says of the same one that came by itself. Offsets and
timestamps are reckoned from the runs; only the events themselves lack the delivery annotations that say so.
"""

from __future__ import annotations

from itertools import chain, repeat

from holdfast.amqp.errors import MalformedMessage
from holdfast.amqp.messages.message import offset_text
from holdfast.client.blocks.event_block import EventBlock, EventColumns
from holdfast.client.errors import ProtocolError
from holdfast.client.events import BareEvent, ReceivedEvent
from holdfast.client.produce.idempotent.producer_identity import SEQUENCES
from holdfast.records.packed_delivery import PackedDelivery, unpack


class PackedBlock(EventBlock):
    __slots__ = ("_publishers", "delivery")

    def __init__(self, partition: str, delivery: PackedDelivery, *, publishers: bool = False) -> None:
        """`publishers`: the node was asked to tell them."""
        super().__init__(partition, [])
        self.delivery = delivery
        self._publishers = publishers

    @classmethod
    def read(cls, partition: str, payload: bytes, *, publishers: bool = False) -> PackedBlock:
        """Raises ProtocolError."""
        try:
            return cls(partition, unpack(payload), publishers=publishers)
        except MalformedMessage as error:
            raise ProtocolError(f"what came from partition {partition} is no packed delivery: {error}") from error

    def __len__(self) -> int:
        return len(self.delivery.messages)

    @property
    def payloads(self) -> list[bytes]:
        if not self._payloads:
            self._payloads = self.delivery.events()
        return self._payloads

    @property
    def size_bytes(self) -> int:
        return self.delivery.messages.size

    @property
    def last_offset(self) -> int:
        return self.delivery.last_offset

    @property
    def places(self) -> None:
        return None

    @property
    def numbers_at(self) -> None:
        return None

    def events(self) -> list[ReceivedEvent]:
        partition, runs = self.partition, self.delivery.runs
        offsets = chain.from_iterable(range(run.offset, run.offset + run.events) for run in runs)
        times = chain.from_iterable(repeat(run.timestamp_ms, run.events) for run in runs)
        messages = self.delivery.messages
        if messages.bodies:
            return list(map(BareEvent, repeat(partition), map(offset_text, offsets), times, messages.parts()))
        return list(map(ReceivedEvent, repeat(partition), map(offset_text, offsets), times, self.payloads, repeat(0)))

    def columns(self) -> EventColumns:
        runs = self.delivery.runs
        found = EventColumns([], [], [], [])
        for run in runs:
            found.offsets += range(run.offset, run.offset + run.events)
            found.timestamps_ms += [run.timestamp_ms] * run.events
        messages = self.delivery.messages
        if messages.bodies:
            found.keys, found.bodies = [None] * len(self), messages.parts()
        else:
            self._contents(found, 0)
        if self._publishers:
            found.publishers = [numbers for run in runs for numbers in _publishers(run.publisher, run.events)]
        return found

    def _event(self, place: int) -> ReceivedEvent:
        before = 0
        for run in self.delivery.runs:
            if place < before + run.events:
                break
            before += run.events
        offset = run.offset + place - before
        return ReceivedEvent(self.partition, offset_text(offset), run.timestamp_ms, self.payloads[place], 0)

    @property
    def tells_publishers(self) -> bool:
        return self._publishers


def _publishers(publisher: tuple[int, int, int] | None, count: int) -> list[tuple[int, int]]:
    if publisher is None:
        return [(-1, -1)] * count
    producer, _, first = publisher
    return [(producer, (first + index) % SEQUENCES) for index in range(count)]
