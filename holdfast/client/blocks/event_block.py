"""Events of one partition as columns: what a program that works on many at once wants of them.

Problem: an object for each event, and a look into it for each of its fields, costs more than to receive it.
Rule never broken: what stands in the columns is what `ReceivedEvent` says of the same bytes. The short cuts are taken
for events whose bytes show that they apply (a body of one data section, with or without a key); every other event is
decoded whole.
Rejected: arrays of a library for them. Lists of integers and bytes become columns of whatever the program uses, and the
client needs no package for it.

Delivery annotations are written by the node, so they have the same length, and the same bytes but for two numbers, on
every event of a link. One pattern, found in the first event, reads the heads of all of them in one pass of C.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.amqp.messages.message_validation import DATA_HEADS
from holdfast.client.consume.publisher_reader import PublisherReader
from holdfast.client.errors import DamagedEventError, ProtocolError
from holdfast.client.events import KEY_CACHE_SIZE, DeliveryReader, ReceivedEvent

_KEY_HEAD = b"\x00\x53\x72\xd1"  # message annotations with a size of four bytes: how our client writes a key
_KEY_HEAD_BYTES = 8
_DATA8 = 0xA0
_u32 = struct.Struct(">I")


@dataclass(slots=True)
class EventColumns:
    """Each list has an entry for each event, in order."""

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[str | None]
    bodies: list[bytes]
    decoded: dict[int, ReceivedEvent] = field(default_factory=dict)
    """Events that hold more than a key and a body, by place."""
    publishers: list[tuple[int, int]] | None = None
    """Producer id and number of each, -1 if it has none; None: the reader has not asked for them."""


class _Keys(dict[bytes, "str | None"]):
    """Sections of message annotations that hold a key and nothing else -> the key. Producers repeat their keys."""

    def __missing__(self, section: bytes) -> str | None:
        if len(self) >= KEY_CACHE_SIZE:
            self.clear()
        event = ReceivedEvent("", "", 0, section + b"\x00\x53\x75\xa0\x00", 0)
        try:
            found = event.key if len(event.message.message_annotations) == 1 else None
        except DamagedEventError:  # decoding the whole event says which one
            found = None
        self[section] = found
        return found


_keys = _Keys()


def key_of(section: bytes) -> str | None:
    """The key, if that is all that this section of message annotations holds."""
    return _keys[section]


class EventBlock:
    """Some events of one partition, in order, as they came."""

    __slots__ = ("_payloads", "_reader", "partition")

    def __init__(self, partition: str, payloads: list[bytes], reader: DeliveryReader | None = None) -> None:
        self.partition = partition
        self._payloads = payloads
        self._reader = reader or DeliveryReader(partition)

    @property
    def payloads(self) -> list[bytes]:
        """Whole messages, with the delivery annotations that came with them."""
        return self._payloads

    def __len__(self) -> int:
        return len(self.payloads)

    def __repr__(self) -> str:
        return f"EventBlock(partition={self.partition!r}, {len(self)} events)"

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.payloads))

    @property
    def last_offset(self) -> int:
        """Offset of the last event. Raises ProtocolError."""
        return _number(self._reader.read(self.payloads[-1]).offset)

    @property
    def places(self) -> tuple[int, int, int, int, int] | None:
        """See `DeliveryReader.places`: of the first event."""
        return self._reader.places(self.payloads[0])

    def events(self) -> list[ReceivedEvent]:
        return [self._reader.read(payload) for payload in self.payloads]

    @property
    def numbers_at(self) -> tuple[int, int, int] | None:
        """Positions of producer id, epoch and number, which go with `places`, if the link tells them."""
        return self._reader.numbers_at if isinstance(self._reader, PublisherReader) else None

    def columns(self) -> EventColumns:
        """Columns of the events. Raises DamagedEventError for an event that cannot be decoded."""
        found = self._columns()
        if isinstance(self._reader, PublisherReader):
            found.publishers = [self._reader.published(payload) for payload in self.payloads]
        return found

    def _columns(self) -> EventColumns:
        payloads = self.payloads
        places = self.places
        if places is None or self.numbers_at is not None:
            return self._decoded_one_by_one(self.events())
        offset_at, offset_end, time_at, time_end, head_end = places
        heads = [payload[:head_end] for payload in payloads]
        if min(map(len, heads)) < head_end:
            return self._decoded_one_by_one(self.events())
        pattern = f">{offset_at}s{offset_end - offset_at}s{time_at - offset_end}sQ{head_end - time_end}s"
        before, offsets, between, times, after = zip(*struct.iter_unpack(pattern, b"".join(heads)), strict=True)
        if len(set(before)) + len(set(between)) + len(set(after)) != 3:
            return self._decoded_one_by_one(self.events())
        try:
            numbers = [int(offset, 16) for offset in offsets]
        except ValueError:
            return self._decoded_one_by_one(self.events())  # which says what is wrong with it
        found = EventColumns(numbers, list(times), [], [])
        self._contents(found, head_end)
        return found

    def _contents(self, found: EventColumns, start: int) -> None:
        """Keys and bodies, which begin at the same place in all events."""
        payloads = self.payloads
        kinds = {payload[start + 2 : start + 3] for payload in payloads}
        bodies: list[bytes | None]
        if kinds == {b"\x75"}:
            bodies = _data_bodies(payloads, [start] * len(payloads))
            found.keys = [None] * len(payloads)
        elif kinds == {b"\x72"} and all([payload.startswith(_KEY_HEAD, start) for payload in payloads]):  # noqa: C419
            sizes = [_u32.unpack_from(payload, start + 4)[0] for payload in payloads]
            ends = [start + _KEY_HEAD_BYTES + size for size in sizes]
            found.keys = [
                _keys[payload[start:end]] if end <= len(payload) else None
                for payload, end in zip(payloads, ends, strict=True)
            ]
            bodies = _data_bodies(payloads, ends)
            bodies = [None if key is None else body for key, body in zip(found.keys, bodies, strict=True)]
        else:
            found.keys = [None] * len(payloads)
            bodies = [None] * len(payloads)
        found.bodies = bodies  # type: ignore[assignment]  # those that are None are filled in now
        for place, body in enumerate(bodies):
            if body is None:
                event = self._event(place)
                event.check()
                found.keys[place], found.bodies[place] = event.key, event.body
                found.decoded[place] = event

    def _event(self, place: int) -> ReceivedEvent:
        return self._reader.read(self.payloads[place])

    def _decoded_one_by_one(self, events: Sequence[ReceivedEvent]) -> EventColumns:
        for event in events:
            event.check()
        return EventColumns(
            [_number(event.offset) for event in events],
            [event.timestamp_ms for event in events],
            [event.key for event in events],
            [event.body for event in events],
            dict(enumerate(events)),
        )


def _data_bodies(payloads: Sequence[bytes], starts: Sequence[int]) -> list[bytes | None]:
    """Bodies after `starts`, where one data section and nothing else follows; else None."""
    heads = DATA_HEADS
    return [
        payload[start + 5 :]
        if (is_data := payload.startswith(heads[len(payload) - start], start)) and payload[start + 3] == _DATA8
        else payload[start + 8 :]
        if is_data
        else None
        for payload, start in zip(payloads, starts, strict=True)
    ]


def _number(offset: str) -> int:
    """Holdfast's nodes count events in offsets."""
    try:
        return int(offset, 16)
    except ValueError:
        raise ProtocolError(f"offset {offset!r} is no number in hex digits: not a Holdfast node's") from None
