"""The transfers of a sending link that carries packed batches; who sends over it goes on to think in single messages.

Problem: producers keep book on single events (what is unconfirmed, in which order it is sent again), and a transfer for
each costs more than all of that.
Rules never broken:
 - each message has a number of its own, and hears an outcome of its own: that of the batch that it travelled in;
 - no more messages are unsettled than the node has agreed to: so many it recognises when they come again;
 - a batch is no larger than the node takes in one message, if it holds more than one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from holdfast import protocol
from holdfast.amqp.links.delivery_states import ACCEPTED, DeliveryState, OtherState
from holdfast.amqp.links.sender_link import SenderLink
from holdfast.batches.codec import Codec
from holdfast.batches.packed_batch import ENTRY_BYTES, HEAD_BYTES, pack

BATCH_BYTES = 256 * 1024
"""Of the messages in one batch, about. More would only wait longer for the first one's outcome."""


class _Batch(NamedTuple):
    payload: bytes
    numbers: range
    txn_id: bytes | None


class PackedTransfers:
    def __init__(self, link: SenderLink, codec: Codec, most_unsettled: int) -> None:
        self._link, self._codec, self._most_unsettled = link, codec, most_unsettled
        self._next = 0
        self._unsettled = 0
        self._waiting: deque[_Batch] = deque()  # for credit
        self._under_way: dict[int, range] = {}  # the messages of a batch, by the link's number of its transfer

    @property
    def credit(self) -> int:
        """How many messages may be put now."""
        if self._waiting or not self._link.credit:
            return 0
        return max(0, self._most_unsettled - self._unsettled)

    @property
    def max_message_size(self) -> int:
        """Of a message, which goes in a batch of its own if it must; 0: there is no limit."""
        whole = self._link.remote_max_message_size
        return max(1, whole - HEAD_BYTES - ENTRY_BYTES) if whole else 0

    def put(self, messages: Sequence[bytes], txn_id: bytes | None) -> range:
        """Queue messages, at most `credit`, and send what may be sent. Returns their numbers."""
        first, at = self._next, 0
        while at < len(messages):
            stop = self._cut(messages, at)
            numbers = range(first + at, first + stop)
            self._waiting.append(_Batch(pack(messages[at:stop], self._codec), numbers, txn_id))
            at = stop
        self._next += len(messages)
        self._unsettled += len(messages)
        self.send()
        return range(first, self._next)

    def _cut(self, messages: Sequence[bytes], at: int) -> int:
        """Where the batch that begins at this message ends."""
        limit = min(BATCH_BYTES, self._link.remote_max_message_size or BATCH_BYTES)
        size, stop = HEAD_BYTES, at
        while stop < len(messages):
            size += ENTRY_BYTES + len(messages[stop])
            if size > limit and stop > at:
                break
            stop += 1
        return stop

    def send(self) -> None:
        """What waits, as far as there is credit."""
        waiting, link = self._waiting, self._link
        while waiting and link.credit and link.is_open:
            batch = waiting.popleft()
            for number in link.send_many([batch.payload], txn_id=batch.txn_id):
                self._under_way[number] = batch.numbers

    def outcomes(self, found: list[tuple[int, DeliveryState]]) -> list[tuple[int, DeliveryState]]:
        """What became of messages, from what became of transfers."""
        told: list[tuple[int, DeliveryState]] = []
        for number, state in found:
            numbers = self._under_way.pop(number, range(0))
            self._unsettled -= len(numbers)
            if isinstance(state, OtherState) and state.code == protocol.STORED_CODE and len(numbers) > 1:
                told.append((numbers[0], _row(state, len(numbers))))
                told += zip(numbers[1:], repeat(ACCEPTED))
            else:
                told += zip(numbers, repeat(state))
        return told


def _row(state: OtherState, count: int) -> OtherState:
    """A batch stands side by side: where its first message does, and how many there are."""
    if len(state.fields) != 3:
        return state
    return OtherState(state.code, (state.fields[0], count, state.fields[2]))
