"""Reader of events with their publishers and numbers, as the node tells them on a link that was attached with
`holdfast:publishers`.

Problem and rule are those of `DeliveryReader`: one pattern for many deliveries, and each byte around the numbers is
compared before it is believed. The node writes the three numbers with the same length for every event, also where there
are none (-1), so events of many producers follow one pattern.
"""

from __future__ import annotations

import struct

from holdfast import protocol
from holdfast.amqp.encoding.codec import encode_value, symbol
from holdfast.amqp.messages.message import decode_message
from holdfast.client.errors import ProtocolError
from holdfast.client.events import DeliveryReader, ReceivedEvent

_i32, _u64, _i64 = struct.Struct(">i"), struct.Struct(">Q"), struct.Struct(">q")
_KINDS = (b"\x81", b"\x61", b"\x71")  # long, short, int
_SIZES = (8, 2, 4)
_NONE = ((0, 1, b"\xff"),)
"""Pattern that no message begins with."""


class PublisherReader(DeliveryReader):
    def __init__(self, partition: str) -> None:
        super().__init__(partition)
        self.numbers_at = (0, 0, 0)
        """Positions of producer id, epoch and number in a message that follows the pattern; 8, 2 and 4 bytes long."""
        self._fixed: tuple[tuple[int, int, bytes], ...] = _NONE

    def places(self, payload: bytes) -> tuple[int, int, int, int, int] | None:
        self.read(payload)
        return self._places if self._follows(payload) else None

    def read(self, payload: bytes) -> ReceivedEvent:
        if not self._follows(payload):
            return self._read_in_full(payload)
        offset_at, offset_end, time_at, _, end = self._places
        offset = payload[offset_at:offset_end].decode("latin-1")
        return ReceivedEvent(self._seen_partition, offset, _u64.unpack_from(payload, time_at)[0], payload, end)

    def _follows(self, payload: bytes) -> bool:
        return all(payload[start:end] == what for start, end, what in self._fixed)

    def _remember(self, payload: bytes, offset: str, timestamp_ms: int, partition: str, content: int) -> None:
        self._fixed = _NONE
        super()._remember(payload, offset, timestamp_ms, partition, content)
        offset_at, offset_end, time_at, time_end, end = self._places
        edges, found = [0, offset_at, offset_end, time_at, time_end], []
        for name, kind, size in zip(protocol.PRODUCER_NAMES, _KINDS, _SIZES, strict=True):
            before = encode_value(symbol(name)) + kind
            place = payload.find(before, edges[-1], end) + len(before)
            if place < len(before):
                return
            found.append(place)
            edges += [place, place + size]
        edges.append(end)
        self.numbers_at = (found[0], found[1], found[2])
        between = zip(edges[::2], edges[1::2], strict=True)
        self._fixed = tuple((start, stop, payload[start:stop]) for start, stop in between)

    def published(self, payload: bytes) -> tuple[int, int]:
        """Producer id and number of the event; -1 each if it has none. Raises ProtocolError."""
        if self._follows(payload):
            producer_at, _, number_at = self.numbers_at
            return _i64.unpack_from(payload, producer_at)[0], _i32.unpack_from(payload, number_at)[0]
        annotations = decode_message(payload).delivery_annotations
        found = annotations.get(protocol.PRODUCER_ID), annotations.get(protocol.PRODUCER_SEQUENCE)
        if not isinstance(found[0], int) or not isinstance(found[1], int):
            raise ProtocolError("a delivery does not tell who has published the event, on a link that was to tell it")
        return int(found[0]), int(found[1])
