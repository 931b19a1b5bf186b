"""The transfers of a sending link that carries record batches.

Rules never broken:
 - no more events are unanswered than a partition remembers for certain: so many it recognises when they come again;
 - a batch is no larger than the node takes in one message, if it holds more than one event.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import protocol
from holdfast.amqp.links.sender_link import SenderLink
from holdfast.records.batch_transfer import SECTION_BYTES, transfer_of
from holdfast.records.lengths import LENGTH_BYTES
from holdfast.records.record_batch import DIGEST_BYTES, HEAD_BYTES, RecordBatch

BATCH_BYTES = 256 * 1024
"""Size of one batch, about. More would only wait longer for the first one's outcome."""

OVERHEAD_BYTES = SECTION_BYTES + HEAD_BYTES
"""Around all events of a batch together."""

EVENT_BYTES = LENGTH_BYTES + DIGEST_BYTES
"""Bytes beside each event, at most."""


class BatchTransfers:
    def __init__(self, link: SenderLink) -> None:
        self._link = link
        self._unanswered = 0  # events
        self._under_way: dict[int, int] = {}  # events, by the link's number of the transfer

    @property
    def batch_bytes(self) -> int:
        """Bytes of the events in one batch at most, each with EVENT_BYTES; one event may be larger."""
        return min(BATCH_BYTES, self._link.remote_max_message_size or BATCH_BYTES) - OVERHEAD_BYTES

    @property
    def credit(self) -> int:
        """Number of events that may be sent now, in one batch."""
        return max(0, protocol.MOST_EVENTS_UNANSWERED - self._unanswered) if self._link.credit else 0

    @property
    def max_message_size(self) -> int:
        """Size of an event at most, which goes in a batch of its own if it must; 0: there is no limit."""
        whole = self._link.remote_max_message_size
        return max(1, whole - OVERHEAD_BYTES - EVENT_BYTES) if whole else 0

    def send(self, batch: RecordBatch, txn_id: bytes | None) -> int:
        """Send one batch, of at most `credit` events. Returns the number of its transfer."""
        (number,) = self._link.send_many([transfer_of([batch])], txn_id=txn_id)
        self._under_way[number] = len(batch)
        self._unanswered += len(batch)
        return number

    def answered(self, numbers: Iterable[int]) -> None:
        """Count those transfers as settled."""
        for number in numbers:
            self._unanswered -= self._under_way.pop(number, 0)
