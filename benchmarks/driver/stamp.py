"""Body of a benchmark event: filler, and at its very end a stamp.

The stamp has the sender's number, the sequence number and the time. It is at the *end* because a broker may add
sections in front (delivery or message annotations), while the data section is the last one. So the reader finds the
stamp without decoding anything.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache

_STAMP = struct.Struct("<QIIQ")
_SEQUENCE_AT, _SEQUENCE_BYTES = 12, 4  # in the stamp
_LARGE_BYTES = 4096
"""Size below which many bodies are stamped at once, column by column, which is faster than one by one."""
_MAGIC = 0x48464253_42454E43  # any constant that filler bytes cannot form: tells a foreign message from one of ours
_DATA_HEADER = struct.Struct(">3sBI")
_DATA_SECTION = b"\x00\x53\x75"
_DURABLE_HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"  # a header section: a list of one field, durable=true
_BINARY_32 = 0xB0

MIN_BODY_BYTES = _STAMP.size

GREETING = b"a sender is here"
"""First event of a sender whose client connects by itself, so that its connection is open before the measurement, as an
AMQP sender's link is. Receivers skip it."""


class Template:
    """The encoded message of one sender, rewritten in place for every event: nothing is allocated per event."""

    def __init__(self, body_bytes: int, sender_id: int, *, durable: bool = False) -> None:
        if body_bytes < MIN_BODY_BYTES:
            raise ValueError(f"an event body needs at least {MIN_BODY_BYTES} bytes for its stamp, not {body_bytes}")
        filler = bytes(range(32, 127)) * (body_bytes // 95 + 1)
        head = (_DURABLE_HEADER if durable else b"") + _DATA_HEADER.pack(_DATA_SECTION, _BINARY_32, body_bytes)
        self.buffer = bytearray(head + filler[:body_bytes])
        self.size = len(self.buffer)
        self._at = self.size - _STAMP.size
        self._filler = bytes(self.buffer[len(head) : self._at])
        self._sender_id = sender_id

    def stamp(self, sequence: int, now_ns: int) -> None:
        _STAMP.pack_into(self.buffer, self._at, _MAGIC, self._sender_id, sequence & 0xFFFFFFFF, now_ns)

    def bodies(self, first: int, number: int, now_ns: int) -> list[bytes]:
        """Make `number` stamped bodies without AMQP encoding, for drivers on a client library."""
        filler, pack, sender_id = self._filler, _STAMP.pack, self._sender_id
        if len(filler) > _LARGE_BYTES:
            return [filler + pack(_MAGIC, sender_id, n & 0xFFFFFFFF, now_ns) for n in range(first, first + number)]
        body = filler + pack(_MAGIC, sender_id, 0, now_ns)
        size, joined = len(body), bytearray(body) * number
        sequences = array("Q", range(first, first + number))
        if sys.byteorder == "big":
            sequences.byteswap()
        columns = sequences.tobytes()
        for place in range(_SEQUENCE_BYTES):
            joined[len(filler) + _SEQUENCE_AT + place :: size] = columns[place :: sequences.itemsize]
        return list(_side_by_side(size, number).unpack(joined))


@lru_cache(maxsize=16)
def _side_by_side(size: int, number: int) -> struct.Struct:
    return struct.Struct(f"{size}s" * number)


def read_stamp(buffer: bytes | bytearray | memoryview, size: int) -> tuple[int, int, int] | None:
    """Read (sender id, sequence, time sent in ns) from a message of `size` bytes; None if it is not ours."""
    if size < _STAMP.size:
        return None
    magic, sender_id, sequence, sent_ns = _STAMP.unpack_from(buffer, size - _STAMP.size)
    return (sender_id, sequence, sent_ns) if magic == _MAGIC else None


class Sequences:
    """Check, for receivers of many bodies at a time, that each sender's events come in order and once.

    It skips greetings. The AMQP receiver, which gets deliveries one by one, does the same check itself.
    """

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self.gaps = 0
        self.repeats = 0
        self.foreign = 0

    def take(self, bodies: Iterable[bytes]) -> list[int]:
        """Check bodies; return the times in ns at which ours were sent."""
        sent = []
        for body in bodies:
            stamp = read_stamp(body, len(body))
            if stamp is None:
                self.foreign += body != GREETING
                continue
            sender_id, sequence, sent_ns = stamp
            expected = self._next.get(sender_id, sequence)
            if sequence > expected:
                self.gaps += sequence - expected
            elif sequence < expected:
                self.repeats += 1
            self._next[sender_id] = max(sequence + 1, expected)
            sent.append(sent_ns)
        return sent

    def count(self, number: int, first: bytes, last: bytes, bodies: Callable[[], Iterable[bytes]]) -> int:
        """Check bodies without reading their times; return how many are ours.

        Opening each body would cost more than reading it. So if the stamps of the first and the last body fit `number`,
        only these two are opened. A list in which one body is missing and another one is there twice is not noticed.
        """
        begin, end = read_stamp(first, len(first)), read_stamp(last, len(last))
        if begin is not None and end is not None:
            (sender_id, low, _), (other_id, high, _) = begin, end
            if sender_id == other_id and high - low == number - 1 and self._next.get(sender_id, low) == low:
                self._next[sender_id] = high + 1
                return number
        return len(self.take(bodies()))
