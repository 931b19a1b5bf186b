"""Limits of every codec here, and their error for bytes that are not the ones that were compressed."""

from __future__ import annotations

MAX_UNCOMPRESSED_BYTES = 16 * 1024 * 1024 + 64 * 1024
"""Limit of one batch's records, and of the window that a stream may ask for: as much as the largest call of `append`
may have (`node/partition/limits.py`), so that no batch is stored compressed that could not be stored as it came. It is
what the worst entry, made by a hostile peer or a damaged disk, can make a reader allocate."""


class Undecodable(ValueError):
    """The bytes do not decompress to exactly as many as they should; the text says why."""
