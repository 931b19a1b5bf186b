"""A receiving link whose deliveries hold many events each: what our own clients ask for.

Problem: for a reader of everything a delivery for each event is most of the work, on both sides.
Rule never broken: what the peer is given is what a link of single events would give it, in the same order; credit is
for deliveries, and each is one share of reading, so what a peer makes this node hold is bounded as ever.

Only for links on which nothing becomes of a single event (`link_plan.py` says which those are): they come settled, of
one partition, whole. Members of groups that commit their position by request are among them.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import protocol
from holdfast.records.packed_delivery import Run, pack
from node.listener.outgoing.consumer_groups.group_link import GroupLink
from node.listener.outgoing.outgoing_link import OutgoingLink
from node.listener.outgoing.partition_cursor import PartitionCursor
from node.partition.api import StoredBatch

DELIVERY_EVENTS = 2048
DELIVERY_BYTES = 512 * 1024
"""In one delivery, or a single event that is larger. Measured with events of 1 KiB, read from the start as columns, CPU
of node and client together: 1.33 us an event with 256 KiB, 1.19 with 512 KiB, 1.09 with a MiB, which is all that some
readers want to have under way."""


class PackedLink(OutgoingLink):
    def _properties(self) -> dict[str, object]:
        return super()._properties() | {protocol.PACKED_DELIVERIES: True}

    def _share(self, cursor: PartitionCursor, room: int) -> tuple[int, int]:
        return DELIVERY_EVENTS, DELIVERY_BYTES

    def _payloads(self, cursor: PartitionCursor, batches: Sequence[StoredBatch]) -> list[bytes]:
        parts = [part for batch in batches if (part := cursor.within_bounds(batch)) is not None]
        if not parts:
            return []
        told = self.plan.publishers
        runs = [
            Run(part.base_offset, part.timestamp_ms, len(part.records), part.publisher if told else None)
            for part in parts
        ]
        count = sum(run.events for run in runs)
        self.host.delivered(count - 1, 0)  # the delivery itself is counted, with its bytes, when it is sent
        return [pack(runs, [part.records for part in parts])]


class PackedGroupLink(PackedLink, GroupLink):
    """Of a member of a group."""
