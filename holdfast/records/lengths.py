"""The table of lengths in front of a batch's records: one u32, big-endian, for each.

Records of one size are usual, and need not be added up one by one.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise

LENGTH_BYTES = 4


def table_of(lengths: Iterable[int]) -> bytes:
    """The table of these lengths."""
    table = array("I", lengths)
    if sys.byteorder == "little":
        table.byteswap()
    return table.tobytes()


def size_of(table: bytes) -> int:
    """Bytes of all records together."""
    one = _same_size(table)
    return sum(_sizes_in(table)) if one is None else one * (len(table) // LENGTH_BYTES)


def ends_of(table: bytes) -> Sequence[int]:
    """Ends of the records, each counted from where the first begins."""
    one = _same_size(table)
    return range(one, size_of(table) + 1, one) if one else list(accumulate(_sizes_in(table)))


def split(data: bytes, start: int, ends: Sequence[int]) -> list[bytes]:
    """Cut the records out by their ends, counted from `start` on."""
    if isinstance(ends, range) and len(ends) and ends.start == ends.step:  # one size: the whole list is cut in C
        return list(struct.Struct(f"{ends.step}s" * len(ends)).unpack_from(data, start))
    return [data[start + left : start + right] for left, right in pairwise(chain((0,), ends))]


def _same_size(table: bytes) -> int | None:
    """The size of every record, or None: they differ."""
    first = table[:LENGTH_BYTES]
    return int.from_bytes(first, "big") if table == first * (len(table) // LENGTH_BYTES) else None


def _sizes_in(table: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(table) // LENGTH_BYTES}I", table)
