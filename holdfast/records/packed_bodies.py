"""Bodies in a packed batch that was not opened: what a node passes on, or stores, without a look at a single event.

Problem: a node that does not lead the partition takes in a batch only to send it to the node that does; opened, its
events are found, copied and put together again on the way, and held twice until they are answered.
Rules never broken:
 - what is here was looked at from outside (version, checksum, table of lengths, count, bytes; `packed_batch.py`). A
   body is whatever bytes it is, so there is one thing left that may be wrong: a batch that does not decompress, which
   whoever opens it finds out;
 - the batch is held once, opened or unopened.

Rejected: decompressing it at the gateway, too, so as to refuse it there. Whoever stores it must not take anybody's word
for it, and so asks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from holdfast.records.joined_messages import JoinedMessages, bytes_in
from holdfast.records.lengths import LENGTH_BYTES
from holdfast.records.packed_batch import Outside, PackedNumbers, pack_joined, read_outside


class PackedBodies(Sequence[bytes]):
    __slots__ = ("_opened", "_outside", "_packed")

    def __init__(self, packed: bytes, outside: Outside) -> None:
        """`outside`: of that batch, and it says that it holds bodies."""
        assert outside.bodies
        self._packed: bytes | None = packed  # None: it was compressed, and is open
        self._outside = outside
        self._opened: JoinedMessages | None = None

    def __len__(self) -> int:
        return len(self._outside.table) // LENGTH_BYTES

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.open().split())

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        return self.open()[index]

    def __repr__(self) -> str:
        return f"<{len(self)} bodies of {self.size} bytes, packed>"

    @property
    def size(self) -> int:
        """Of the bodies together."""
        return self._outside.size

    @property
    def held_bytes(self) -> int:
        """Of memory, at most, opened or not."""
        return max(self._outside.size, len(self._packed or b""))

    @property
    def numbers(self) -> PackedNumbers | None:
        """What the batch says of them."""
        return self._outside.numbers

    def open(self) -> JoinedMessages:
        """Raises MalformedMessage: it does not decompress."""
        if self._opened is None:
            assert self._packed is not None
            self._opened = self._outside.open(self._packed)
            if self._outside.codec:
                self._packed = None
        return self._opened

    def packed(self) -> bytes:
        """The batch, as it came; one that was opened may be another with the same in it."""
        if self._packed is None:
            assert self._opened is not None
            return pack_joined(self._outside.table, (self._opened.data,), bodies=True, numbers=self.numbers)
        return self._packed


def packed_bodies(packed: bytes, most_bytes: int) -> PackedBodies | None:
    """None: it holds messages. Raises MalformedMessage: it is no packed batch, or one of more than `most_bytes`."""
    outside = read_outside(packed, most_bytes)
    return PackedBodies(packed, outside) if outside.bodies else None


def opened(messages: Sequence[bytes]) -> Sequence[bytes]:
    """Whatever they came in. Raises MalformedMessage."""
    return messages.open() if isinstance(messages, PackedBodies) else messages


def held_bytes(messages: Sequence[bytes]) -> int:
    """Of memory that they take, whatever they came in."""
    return messages.held_bytes if isinstance(messages, PackedBodies) else bytes_in(messages)
