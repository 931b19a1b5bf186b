"""Outgoing messages as bytes, joined once.

The problem: a Frame holds what a turn has to say, or what has waited. Built as a protobuf object each message is copied
into it and serialised again, twice the copies of the very bytes that fill the network. Protobuf's encoding is
concatenative (a repeated field is the sequence of its elements), so a frame is the join of its encoded elements: each
message is serialised once and joined once. What several peers get makes its element itself, once for all of them, and
where a frame has no other it is that element. Of an append with large entries only the head is an element; the entries
go beside the frame, as they are. The rule: what `take` returns parses as the message of `proto/cluster/rpc/rpc.proto`
whose field number was given, in the order of `push`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from cluster.raft.replication.message_encoding import varint

FRAME_HELLO = 1
FRAME_MESSAGES = 2
FRAME_HINTS = 3
FRAME_CLOCK = 4
FRAME_ACTIVE = 5
APPEND_FRAME_REQUESTS = 2
APPEND_REQUEST_BATCH = 2
APPEND_REPLIES = 1


class Encodable(Protocol):
    """A message; one that goes to several peers may have `element(tag)` and `beside`, as an `EncodedAppend` has."""

    def SerializeToString(self) -> bytes: ...


def prefix(field: int, length: int) -> bytes:
    """Bytes before a submessage of `length` bytes in field number `field` (below 16)."""
    return bytes((field << 3 | 2,)) + varint(length)


def submessage(field: int, message: Encodable) -> bytes:
    data = message.SerializeToString()
    return prefix(field, len(data)) + data


class Taken(NamedTuple):
    """A frame, of so many elements."""

    frame: bytes
    elements: int
    beside: Sequence[bytes] = ()
    """Entries that follow the frame, piece by piece."""

    @property
    def size(self) -> int:
        """Bytes of the frame and of all that follows it."""
        return len(self.frame) + sum(map(len, self.beside))


_Part = tuple[bytes, bytes | memoryview, Sequence[bytes]]
"""Two pieces of an element, of which the first may be empty, and what goes beside it."""


class PartQueue:
    """Encoded elements waiting for a frame; counts its bytes."""

    __slots__ = ("_parts", "bytes")

    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._parts)

    def push(self, field: int, messages: Iterable[Encodable]) -> None:
        for message in messages:
            element = getattr(message, "element", None)
            if element is None:
                self.push_parts(field, b"", message.SerializeToString())
            else:
                self._push(b"", element(bytes((field << 3 | 2,))), getattr(message, "beside", ()))

    def push_parts(self, field: int, front: bytes, data: bytes | memoryview) -> None:
        """An element that is encoded already, the larger part of it in `data`, which is not copied here."""
        self._push(prefix(field, len(front) + len(data)) + front, data)

    def _push(self, head: bytes, data: bytes | memoryview, beside: Sequence[bytes] = ()) -> None:
        self._parts.append((head, data, beside))
        self.bytes += _size(self._parts[-1])

    def take(self, target_bytes: int, max_parts: int = 1 << 30, *, lead: bytes = b"") -> Taken:
        """Take one frame of at least one element, cut before the one that would exceed the target, and after one with
        something beside it. `lead`: encoded fields in front of them."""
        chosen: list[bytes | memoryview] = [lead] if lead else []
        size = count = 0
        beside: Sequence[bytes] = ()
        while self._parts and count < max_parts and not beside:
            length = _size(self._parts[0])
            if count and size + length > target_bytes:
                break
            head, data, beside = self._parts.popleft()
            if head:
                chosen.append(head)
            chosen.append(data)
            size += length
            count += 1
        self.bytes -= size
        only = chosen[0] if len(chosen) == 1 else None
        return Taken(only if isinstance(only, bytes) else b"".join(chosen), count, beside)

    def clear(self) -> None:
        self._parts.clear()
        self.bytes = 0


def _size(part: _Part) -> int:
    head, data, beside = part
    return len(head) + len(data) + sum(map(len, beside))
