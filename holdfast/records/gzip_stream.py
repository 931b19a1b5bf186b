"""gzip, as Kafka's codec 1: one member, from the standard library.

The rule: no more is decompressed than one byte beyond what was promised, and that byte only to notice it. The
decompressor's buffer grows with what comes out, so a stream that promises much and holds little costs little.
"""

from __future__ import annotations

import zlib

from holdfast.records.decompression_limits import Undecodable

LEVEL = 1
"""The fastest. The leader compresses within its turn, so time counts more than the last tenth of the size."""

_GZIP_FORMAT = 31
"""zlib's word for a gzip header and the largest window, 32 KiB."""


def compress(data: bytes) -> bytes:
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
    return stream.compress(data) + stream.flush()


def decompress(data: memoryview, size: int) -> bytes:
    """Decompress. Raises Undecodable: it is not one gzip member of `size` bytes."""
    stream = zlib.decompressobj(_GZIP_FORMAT)
    try:
        out = stream.decompress(data, size + 1)
    except zlib.error as error:
        raise Undecodable(f"no gzip stream: {error}") from error
    if len(out) > size:
        raise Undecodable(f"a gzip stream of more than the {size} bytes that were promised")
    if not stream.eof:
        raise Undecodable(f"a gzip stream that is cut off after {len(out)} of {size} bytes")
    if len(out) < size or stream.unused_data:
        raise Undecodable(f"a gzip stream of {len(out)} bytes, not {size}, and {len(stream.unused_data)} behind it")
    return out
