"""Prefix of each event that a node hands out: the section of delivery annotations.

Problem: it is written for every delivery, a hundred thousand times a second, and differs in one or two numbers.
Rule never broken: the producer's bytes follow it unchanged; its header, if it has one, stays first.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from holdfast.amqp.encoding.codec import encode_value, symbol
from holdfast.amqp.messages.sections import OFFSET, SOURCE_PARTITION, TIMESTAMP, splice

_U32, _I16, _I32, _I64 = Struct(">I"), Struct(">h"), Struct(">i"), Struct(">q")

PUBLISHER = ("com.microsoft:producer-id", "com.microsoft:producer-epoch", "com.microsoft:producer-sequence-number")
Publisher = tuple[int, int, int]
"""Producer id, epoch, and number of the first of some events."""


class DeliveryPrefix:
    """The 0x71 section of every delivery from one partition: offset, time of append, source partition.

    One formatting operation per event: everything but the offset is formatted once per timestamp, and the events of one
    batch share theirs."""

    __slots__ = ("_format", "_head", "_joined", "_tail", "_timestamp_ms", "partition")

    def __init__(self, partition: str, *, more: int = 0, more_bytes: int = 0) -> None:
        """`more`: keys and values besides, and their bytes; they stand before the partition."""
        self.partition = partition
        where = encode_value(symbol(SOURCE_PARTITION)) + encode_value(symbol(partition))
        what, when = encode_value(symbol(OFFSET)), encode_value(symbol(TIMESTAMP))
        size = len(what) + 18 + len(when) + 9 + more_bytes + len(where)
        head = b"\x00\x53\x71\xc1" + bytes((size + 1, 6 + more)) if size < 255 else b""
        head = head or b"\x00\x53\x71\xd1" + _U32.pack(size + 4) + _U32.pack(6 + more)
        self._head = _escaped(head + what + b"\xa3\x10") + b"%016x" + _escaped(when + b"\x83")
        self._tail = _escaped(where)
        self._timestamp_ms: int | None = None
        self._format = self._joined = b""

    def _stamp(self, timestamp_ms: int) -> None:
        self._timestamp_ms = timestamp_ms
        self._format = self._head + _escaped(_I64.pack(timestamp_ms)) + self._tail
        self._joined = self._format + b"%b"

    def build(self, offset: int, timestamp_ms: int) -> bytes:
        """The section for one event."""
        if timestamp_ms != self._timestamp_ms:
            self._stamp(timestamp_ms)
        return self._format % offset

    def splice_batch(
        self, base_offset: int, timestamp_ms: int, records: Sequence[bytes], publisher: Publisher | None = None
    ) -> list[bytes]:
        """Messages to send for stored records with consecutive offsets and one time of append. `publisher`: is not
        told, but by a `PublisherPrefix`."""
        if timestamp_ms != self._timestamp_ms:
            self._stamp(timestamp_ms)
        joined = self._joined
        messages: list[bytes] = []
        for offset, record in enumerate(records, base_offset):
            if record[2:3] == b"p":  # begins with its header, which must stay first
                messages.append(splice(record, self._format % offset))
            else:
                messages.append(joined % (offset, record))
        return messages

    def splice_chosen(
        self,
        base_offset: int,
        timestamp_ms: int,
        records: Sequence[bytes],
        indexes: Sequence[int],
        publisher: Publisher | None = None,
    ) -> list[bytes]:
        """Messages to send for some of the records, by their indexes."""
        if timestamp_ms != self._timestamp_ms:
            self._stamp(timestamp_ms)
        return [splice(records[index], self._format % (base_offset + index)) for index in indexes]


class PublisherPrefix(DeliveryPrefix):
    """Delivery prefix that also names the event's publisher and its number there; -1 each if it has none. Always as
    long, so that a reader of many events finds all of them in the same places."""

    __slots__ = ("_keys",)

    NOBODY: Publisher = (-1, -1, -1)
    NUMBERS = 1 << 31

    def __init__(self, partition: str) -> None:
        self._keys = [_escaped(encode_value(symbol(name))) for name in PUBLISHER]
        super().__init__(partition, more=6, more_bytes=sum(map(len, self._keys)) + 9 + 3 + 5)

    def _stamp_publisher(self, timestamp_ms: int, publisher: Publisher) -> bytes:
        """The format of events of one time and publisher; the offset and the number are left open."""
        name, epoch, number = self._keys
        who = name + b"\x81" + _escaped(_I64.pack(publisher[0])) + epoch + b"\x61" + _escaped(_I16.pack(publisher[1]))
        return self._head + _escaped(_I64.pack(timestamp_ms)) + who + number + b"\x71%b" + self._tail

    def build(self, offset: int, timestamp_ms: int) -> bytes:
        return self._stamp_publisher(timestamp_ms, self.NOBODY) % (offset, _I32.pack(-1))

    def splice_batch(
        self, base_offset: int, timestamp_ms: int, records: Sequence[bytes], publisher: Publisher | None = None
    ) -> list[bytes]:
        return self.splice_chosen(base_offset, timestamp_ms, records, range(len(records)), publisher)

    def splice_chosen(
        self,
        base_offset: int,
        timestamp_ms: int,
        records: Sequence[bytes],
        indexes: Sequence[int],
        publisher: Publisher | None = None,
    ) -> list[bytes]:
        form = self._stamp_publisher(timestamp_ms, publisher or self.NOBODY)
        joined, messages, number = form + b"%b", list[bytes](), _I32.pack(-1)
        for index in indexes:
            if publisher is not None:
                number = _I32.pack((publisher[2] + index) % self.NUMBERS)
            record = records[index]
            if record[2:3] == b"p":  # begins with its header, which must stay first
                messages.append(splice(record, form % (base_offset + index, number)))
            else:
                messages.append(joined % (base_offset + index, number, record))
        return messages


def _escaped(raw: bytes) -> bytes:
    return raw.replace(b"%", b"%%")
