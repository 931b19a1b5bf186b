"""What a disk holds of a file whose writes were not synced: of every sector the old bytes or the new ones.

The length is one of the file system's own: the old one, the new one, or one in between; what lies behind the old end
and was not written is zeros.
"""

from __future__ import annotations

import random

SECTOR_BYTES = 512
"""What a disk writes whole."""

KEEPS = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Of the sectors of a file, that were written unasked: drawn for each file, so that all and none happen, too."""


def mixed(platter: bytes, cache: bytes, lost: list[list[int]], chance: random.Random | None) -> tuple[bytes, int, int]:
    """The content, and how many of the sectors that differ are new and old. `lost` ranges are never written."""
    if platter == cache:
        return platter, 0, 0
    longest = max(len(platter), len(cache))
    size = _size(len(platter), len(cache), chance)
    old, new = platter.ljust(longest, b"\0"), _without(cache.ljust(longest, b"\0"), platter, lost)
    content = bytearray(old)
    keep = chance.choice(KEEPS) if chance else 0.0
    kept = unwritten = 0
    for at in range(0, longest, SECTOR_BYTES):
        sector = new[at : at + SECTOR_BYTES]
        if sector == old[at : at + SECTOR_BYTES]:
            continue
        if chance is not None and chance.random() < keep:
            content[at : at + SECTOR_BYTES] = sector
            kept += 1
        else:
            unwritten += 1
    return bytes(content[:size]), kept, unwritten


def _size(before: int, after: int, chance: random.Random | None) -> int:
    if chance is None:
        return before
    low, high = sorted((before, after))
    return chance.choice((before, after, chance.randint(low, high)))


def _without(cache: bytes, platter: bytes, lost: list[list[int]]) -> bytes:
    if not lost:
        return cache
    content = bytearray(cache)
    for first, end in lost:
        end = min(end, len(content))
        if first < end:
            content[first:end] = platter[first:end].ljust(end - first, b"\0")
    return bytes(content)
