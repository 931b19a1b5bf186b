"""The transfers of a sending link that carries packed batches.

Rules never broken:
 - no more messages are unsettled than the node has agreed to: so many it recognises when they come again;
 - a batch is no larger than the node takes in one message, if it holds more than one.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.amqp.links.sender_link import SenderLink
from holdfast.records.lengths import LENGTH_BYTES
from holdfast.records.packed_batch import HEAD_BYTES, MAX_MESSAGES

BATCH_BYTES = 256 * 1024
"""Of one batch, about. More would only wait longer for the first one's outcome."""


class PackedTransfers:
    def __init__(self, link: SenderLink, most_unsettled: int) -> None:
        self._link, self._most_unsettled = link, most_unsettled
        self._unsettled = 0
        self._under_way: dict[int, int] = {}  # messages, by the link's number of the transfer
        # Two batches at least can be under way at a time.
        self.batch_events = max(1, min(MAX_MESSAGES, most_unsettled // 2))
        """Messages in one batch at most."""

    @property
    def batch_bytes(self) -> int:
        """Of the messages in one batch at most, each with LENGTH_BYTES; one message may be larger."""
        return min(BATCH_BYTES, self._link.remote_max_message_size or BATCH_BYTES) - HEAD_BYTES

    @property
    def credit(self) -> int:
        """How many messages may be sent now, in one batch."""
        return max(0, self._most_unsettled - self._unsettled) if self._link.credit else 0

    @property
    def max_message_size(self) -> int:
        """Of a message, which goes in a batch of its own if it must; 0: there is no limit."""
        whole = self._link.remote_max_message_size
        return max(1, whole - HEAD_BYTES - LENGTH_BYTES) if whole else 0

    def send(self, batch: bytes, count: int, txn_id: bytes | None) -> int:
        """One batch, of so many messages, at most `credit`. Returns the number of its transfer."""
        (number,) = self._link.send_many([batch], txn_id=txn_id)
        self._under_way[number] = count
        self._unsettled += count
        return number

    def answered(self, numbers: Iterable[int]) -> None:
        """Those transfers are settled."""
        for number in numbers:
            self._unsettled -= self._under_way.pop(number, 0)
