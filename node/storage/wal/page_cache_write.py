"""Writing through the page cache, to the end."""

from __future__ import annotations

import os

MAX_BUFFERS = 1000
"""Buffers of one writev; the system takes 1024."""


def write_all(file: int, buffers: list[bytes], at: int) -> None:
    """Write all buffers, one after the other from `at` on, into the page cache. Raises OSError."""
    for first in range(0, len(buffers), MAX_BUFFERS):
        part = buffers[first : first + MAX_BUFFERS]
        expected = sum(map(len, part))
        written = os.pwritev(file, part, at)
        if written < expected:
            rest = memoryview(b"".join(part))[written:]
            while rest:  # it fills up, or a signal came: writing on tells which
                written = os.pwrite(file, rest, at + expected - len(rest))
                rest = rest[written:]
        at += expected
