"""Messages that stand one behind the other in one piece of memory, with a table of their lengths.

Problem: what comes in one transfer, is stored in one entry and goes out in one delivery costs most where it is taken
apart and put together again on the way. Whoever passes messages on needs their number, their bytes and their lengths.
Rules never broken:
 - they are a sequence of messages like any list of them, to whoever asks for the single ones;
 - a part of them shares their memory; nothing is copied until messages are asked for.

Messages that are a body and nothing else may stand there without the heads of their data sections, which follow from
their sizes: `bodies`. Then nobody has to ask whether they can be decoded, and who wants the bodies has them side by
side.

Everybody else's lists are taken as they are: `table_of`, `pieces_of` and `bytes_in` treat both alike, and speak of what
stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import overload

from holdfast.records import lengths
from holdfast.records.lengths import LENGTH_BYTES, ends_of, split
from holdfast.records.record_batch import with_heads


class JoinedMessages(Sequence[bytes]):
    __slots__ = ("_at", "_data", "_ends", "_pieces", "_single", "bodies", "size", "table")

    def __init__(self, table: bytes, data: bytes, at: int, size: int, *, bodies: bool = False) -> None:
        """They begin at `data[at]`, and have `size` bytes together, which is the sum of the table. `bodies`: of each
        message the body alone stands there."""
        self.table, self._data, self._at, self.size, self.bodies = table, data, at, size, bodies
        self._single: list[bytes] | None = None
        self._ends: Sequence[int] | None = None
        self._pieces: Sequence[bytes | memoryview] = ()  # which make the data, once somebody asks for them

    @classmethod
    def of_pieces(cls, table: bytes, pieces: Sequence[bytes | memoryview], *, bodies: bool) -> JoinedMessages:
        """That stand in several pieces, one behind the other."""
        found = cls(table, b"", 0, sum(map(len, pieces)), bodies=bodies)
        found._pieces = pieces
        return found

    def __len__(self) -> int:
        return len(self.table) // LENGTH_BYTES

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.single())

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._part(start, max(start, stop)) if step == 1 else self.single()[index]
        return self.single()[index]

    def __eq__(self, other: object) -> bool:
        return self.single() == list(other) if isinstance(other, list | JoinedMessages) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {self.size} bytes>"

    @property
    def ends(self) -> Sequence[int]:
        """Where each ends, counted from where the first begins; kept, since a reader takes its shares of a batch one
        after the other."""
        if self._ends is None:
            self._ends = ends_of(self.table)
        return self._ends

    @property
    def data(self) -> bytes | memoryview:
        """What stands there, one behind the other."""
        whole = self._memory()
        return whole if len(whole) == self.size else memoryview(whole)[self._at : self._at + self.size]

    @property
    def pieces(self) -> Sequence[bytes | memoryview]:
        """The same, as it came."""
        return self._pieces or (self.data,)

    def _memory(self) -> bytes:
        if self._pieces:
            self._data, self._pieces = b"".join(self._pieces), ()
        return self._data

    def split(self) -> list[bytes]:
        """The single messages, for who needs them once (`split_off`)."""
        return with_heads(self.parts()) if self.bodies else self.parts()

    def parts(self) -> list[bytes]:
        """What stands there, one by one: messages or bodies."""
        return split(self._memory(), self._at, self.ends)

    def single(self) -> list[bytes]:
        """The same, kept for who asks next: a batch at the tail of a log has many readers."""
        if self._single is None:
            self._single = self.split()
        return self._single

    def _part(self, start: int, stop: int) -> Sequence[bytes]:
        if start == 0 and stop == len(self):
            return self
        ends = self.ends
        before = ends[start - 1] if start else 0
        size = ends[stop - 1] - before if stop > start else 0
        table = self.table[start * LENGTH_BYTES : stop * LENGTH_BYTES]
        return JoinedMessages(table, self._memory(), self._at + before, size, bodies=self.bodies)


def table_of(messages: Sequence[bytes]) -> bytes:
    """The table of their lengths."""
    return messages.table if isinstance(messages, JoinedMessages) else lengths.table_of(messages)


def pieces_of(messages: Sequence[bytes]) -> Sequence[bytes | memoryview]:
    """What gives the messages one behind the other when it is joined."""
    return messages.pieces if isinstance(messages, JoinedMessages) else messages


def bytes_in(messages: Sequence[bytes]) -> int:
    """Of all of them together."""
    return messages.size if isinstance(messages, JoinedMessages) else sum(map(len, messages))


def split_off(messages: Sequence[bytes]) -> Sequence[bytes]:
    """The single ones, for who needs them once."""
    return messages.split() if isinstance(messages, JoinedMessages) else messages


def ends_in(messages: Sequence[bytes]) -> Sequence[int]:
    """Where each ends, counted from where the first begins."""
    return messages.ends if isinstance(messages, JoinedMessages) else list(accumulate(map(len, messages)))


def are_bodies(messages: Sequence[bytes]) -> bool:
    """Of each the body alone stands there."""
    return isinstance(messages, JoinedMessages) and messages.bodies


def alike(parts: Sequence[Sequence[bytes]]) -> Sequence[Sequence[bytes]]:
    """The same messages, where all parts are bodies, or none is."""
    if len(parts) == 1 or len(set(map(are_bodies, parts))) == 1:
        return parts
    return [split_off(part) if are_bodies(part) else part for part in parts]


def put_together(parts: Sequence[Sequence[bytes]]) -> Sequence[bytes]:
    """The messages of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    parts = alike(parts)
    if not any(isinstance(part, JoinedMessages) for part in parts):
        return list(chain.from_iterable(parts))
    pieces = list(chain.from_iterable(map(pieces_of, parts)))
    return JoinedMessages.of_pieces(b"".join(map(table_of, parts)), pieces, bodies=are_bodies(parts[0]))
