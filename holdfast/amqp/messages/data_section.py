"""Messages that are a body of bytes and nothing else: one data section (AMQP 1.0, part 3, 3.2.6).

Most events are such messages, and all that distinguishes one from its body is the section's head, which follows from
the body's size.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

_DATA8, _DATA32 = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"
_U32 = Struct(">I")

MAX_HEAD_BYTES = len(_DATA32) + _U32.size

HEAD_CACHE_SIZE = 1 << 14
"""Sizes of bodies whose head is remembered; a hit costs a third of building it."""


@lru_cache(maxsize=HEAD_CACHE_SIZE)
def data_head(size: int) -> bytes:
    """Bytes before a body of `size` bytes in a data section."""
    return _DATA8 + bytes((size,)) if size < 256 else _DATA32 + _U32.pack(size)


def content_at(beginning: bytes, size: int) -> int | None:
    """Find where the body begins of a message that is one data section, by its first MAX_HEAD_BYTES and its size; None:
    it is something else."""
    for head, width in ((_DATA8, 1), (_DATA32, 4)):
        start = len(head) + width
        if beginning.startswith(head) and start + int.from_bytes(beginning[len(head) : start], "big") == size:
            return start
    return None
