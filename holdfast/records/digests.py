"""The digests of events: the CRC-32C of each whole message, by which it is recognised however it is sent again.

A digest protects its producer from itself, and is taken at its word.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat

from crc32c import crc32c

from holdfast.amqp.messages.data_section import HEAD_CACHE_SIZE, data_head


def digests_of(bodies: Sequence[bytes], sizes: Sequence[int] = ()) -> bytes:
    """Digests of the messages that have these bodies. The checksum of a body goes on from that of its head; bodies of
    one size have one head. `sizes`: those of the bodies, if the caller has them."""
    sizes = sizes or list(map(len, bodies))
    alike = bool(sizes) and sizes.count(sizes[0]) == len(sizes)
    heads = repeat(_head_checksum(sizes[0])) if alike else map(_head_checksum, sizes)
    return struct.pack(f">{len(bodies)}I", *map(crc32c, bodies, heads))


def digests_of_messages(messages: Sequence[bytes]) -> bytes:
    """Digests of these messages."""
    return struct.pack(f">{len(messages)}I", *map(crc32c, messages))


@lru_cache(maxsize=HEAD_CACHE_SIZE)
def _head_checksum(size: int) -> int:
    return crc32c(data_head(size))
