"""Usage of the write-ahead log's segments: for each one, the owners of the values in it.

The problem: a segment holds entries of many groups, each trimmed at its own time; it can go only when none of them is
needed, and finding that out must not mean looking at every key of the store.

A group's entries are written in the order of their index and trimmed from the front, which makes it cheap. So for each
segment and group the first and last index and the bytes are enough; when the group's first entry is after the last one
in the segment, the group is done with it. A group's *owner* is the first nine bytes of its keys: kind and number.

The rule: an estimate may keep a segment too long (overwritten entries count until the front passes them), never lose
one too early.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from node.storage.row_format import is_entry

OWNER_BYTES = 9
_ITEM = struct.Struct(">9sQQQ")
_INDEX = struct.Struct(">Q")
FIRST_INDEX, LAST_INDEX = b"\0" * 8, b"\xff" * 8


@dataclass(slots=True)
class Span:
    """Entries of one owner in one segment: first and last index, and bytes."""

    first: int
    last: int
    size: int


class Spans(dict[bytes, Span]):
    """Spans of one segment by their owners."""

    live_bytes = 0

    def drop(self, owner: bytes) -> None:
        """Forget an owner, if it is here."""
        span = self.pop(owner, None)
        if span is not None:
            self.live_bytes -= span.size


def note(spans: Spans, key: bytes, size: int) -> None:
    """Note a value of `size` bytes under `key` in the segment of `spans`."""
    owner = key[:OWNER_BYTES]
    index = int(_INDEX.unpack_from(key, OWNER_BYTES)[0])
    spans.live_bytes += size
    span = spans.get(owner)
    if span is None:
        spans[owner] = Span(index, index, size)
    else:
        span.first = min(span.first, index)
        span.last = max(span.last, index)
        span.size += size


def encode(spans: Spans) -> bytes:
    return b"".join(_ITEM.pack(owner, span.first, span.last, span.size) for owner, span in sorted(spans.items()))


def decode(data: bytes) -> Spans:
    spans = Spans()
    for owner, first, last, size in _ITEM.iter_unpack(data):
        spans[owner] = Span(first, last, size)
        spans.live_bytes += size
    return spans


def drop_unneeded(spans: Spans, first_needed: dict[bytes, int | None]) -> None:
    """Drop owners that need nothing here. `first_needed`: the first index that each owner still has; None if it has
    nothing."""
    for owner, span in list(spans.items()):
        if owner in first_needed:
            first = first_needed[owner]
            if first is None or span.last < first:
                spans.drop(owner)


def emptied_owner(start: bytes, end: bytes) -> bytes | None:
    """Find the owner whose entries all lie in the range [start, end) of keys; None: there is none."""
    owner = start[:OWNER_BYTES]
    first = owner + FIRST_INDEX
    return owner if is_entry(first) and start <= first and end > owner + LAST_INDEX else None
