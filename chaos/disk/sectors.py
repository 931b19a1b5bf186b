"""Content of a file with unsynced writes after a loss of power: each sector has its old bytes or its new ones.

The length may be the old one, the new one, or one in between. Bytes after the old end that were not written are zeros.
"""

from __future__ import annotations

import random

SECTOR_BYTES = 512
"""Size that a disk writes atomically."""

KEEPS = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Shares of a file's unsynced sectors that the disk has written; drawn for each file, so that all and none occur."""


def mixed(platter: bytes, cache: bytes, lost: list[list[int]], chance: random.Random | None) -> tuple[bytes, int, int]:
    """Return the content, and how many of the differing sectors are new and old. `lost` ranges are never written."""
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
