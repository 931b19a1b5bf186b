"""Deliveries of whole record batches, which our own clients ask for.

The problem: a delivery for each event is most of the work for a reader of everything, on both sides. The rules: the
peer is given what single deliveries would give it, in the same order; batches go out as they are stored, with heads
that say which of their events are the peer's; credit is for deliveries, and each is one share of reading, so what a
peer makes this node hold is bounded as ever. Only a batch that is larger than the peer's largest message is opened, and
sealed again in pieces.

They are for links on which nothing becomes of a single event (`link_plan.py` says which those are): they come settled,
of one partition, whole. Members of groups that commit their position by request are among them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from holdfast import protocol
from holdfast.amqp import uint
from holdfast.records.batch_transfer import SECTION_BYTES, transfer_of
from holdfast.records.lengths import LENGTH_BYTES
from holdfast.records.record_batch import DIGEST_BYTES, HEAD_BYTES, VERSION, Attributes, RecordBatch
from node.listener.outgoing.partition_cursor import PartitionCursor

DELIVERY_EVENTS = 4096
DELIVERY_BYTES = 512 * 1024
"""Bounds of one delivery, unless a single batch is larger. Bytes are counted as they are once the peer has opened
it."""


class BatchDeliveries:
    def __init__(self, largest: int, delivered: Callable[[int, int], None], version: int = VERSION) -> None:
        """`largest`: bytes of the peer's largest message, 0: no limit. `delivered`: told of events that are sent in
        addition to the first of each delivery. `version`: of the batches."""
        self.properties: Mapping[str, object] = {protocol.RECORD_BATCHES: uint(version)}
        """Link properties that tell the peer of batches."""
        self._room = largest - SECTION_BYTES if largest else 1 << 62
        self._delivered = delivered

    def read(self, cursor: PartitionCursor, room: int) -> list[RecordBatch]:
        """Read the partition's next share."""
        assert cursor.reader is not None
        return cursor.reader.poll(DELIVERY_EVENTS, DELIVERY_BYTES, True)

    def payloads(self, cursor: PartitionCursor, batches: Sequence[RecordBatch]) -> list[bytes]:
        """Queue the batches until there is credit: one may become several deliveries."""
        cursor.waiting.extend(part for batch in batches if (part := cursor.within_bounds(batch)) is not None)
        return []

    def release(self, cursor: PartitionCursor, room: int) -> list[bytes]:
        """Up to `room` deliveries of the waiting batches."""
        found: list[bytes] = []
        while cursor.waiting and len(found) < room:
            batches = self._next(cursor.waiting)
            self._delivered(sum(map(len, batches)) - 1, 0)
            found.append(transfer_of(batches))
        return found

    def _next(self, waiting: deque[RecordBatch]) -> list[RecordBatch]:
        """Take the batches of one delivery."""
        found: list[RecordBatch] = []
        room = self._room
        while waiting and waiting[0].size <= room:
            room -= waiting[0].size
            found.append(waiting.popleft())
        if found:
            return found
        batch = waiting[0]
        count = _fitting(batch, room)
        if count == len(batch):
            waiting.popleft()
        else:
            waiting[0] = batch.part(count, len(batch))
        return [batch.rebuilt(0, count)]


def _fitting(batch: RecordBatch, room: int) -> int:
    """Number of the reader's first events that make a batch of that size; at least one."""
    column = LENGTH_BYTES + (DIGEST_BYTES if batch.head.attributes & Attributes.DIGESTS else 0)
    sizes = range(1, len(batch) + 1)
    return max(1, bisect_right(sizes, room, key=lambda count: HEAD_BYTES + column * count + batch.bytes_of(0, count)))
