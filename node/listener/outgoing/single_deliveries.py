"""Deliveries of one event each, which any AMQP client reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.records.record_batch import RecordBatch
from node.listener.outgoing.partition_cursor import PartitionCursor

POLL_EVENTS = 1024
"""Events taken from one partition before the next one, or the next link, has its turn."""

POLL_BYTES = 256 * 1024
"""Bytes, roughly, taken from one partition before the next one has its turn: one chunk of socket output."""

SCAN_EVENTS = 256
"""Events that a filter looks at before the next partition, link or connection has its turn: some two milliseconds."""

SCAN_BYTES = 64 * 1024
"""Bytes, roughly, that a filter looks at before the next one has its turn: a filter of four hundred words takes some
time for each."""


class SingleDeliveries:
    properties: Mapping[str, object] = {}
    """Link properties that tell the peer of them: none."""

    def read(self, cursor: PartitionCursor, room: int) -> list[RecordBatch]:
        """Read the partition's next share, for a link that may send `room` deliveries."""
        assert cursor.reader is not None
        if cursor.scans:
            return cursor.reader.poll(SCAN_EVENTS, SCAN_BYTES)
        return cursor.reader.poll(min(room, POLL_EVENTS), POLL_BYTES)

    def payloads(self, cursor: PartitionCursor, batches: Sequence[RecordBatch]) -> list[bytes]:
        """Payloads to send at once; the rest is held."""
        return cursor.payloads(batches)

    def release(self, cursor: PartitionCursor, room: int) -> list[bytes]:
        """Up to `room` held payloads."""
        return cursor.release(room)
